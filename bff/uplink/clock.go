package uplink

import (
	"sync"
	"time"
)

// clock is what an edge knows of an instance's time: by how much it is ahead of the client's life. As
// a player does, it takes the least offset that the answers prove, which is behind by the
// quickest way back.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // from 1970
	proved time.Duration // when an answer came last, of the client's life; 0 for never
}

const (
	// doubt is how long the first answer may take, and so how far the offset may be behind then.
	doubt = 500 * time.Millisecond
	// provedFor is for how long an answer proves anything: clocks drift.
	provedFor = time.Minute
)

// answered takes what an answer says of the time. It was asked for and came at moments of the client's
// life.
func (k *clock) answered(nowMS int64, asked, came time.Duration) {
	if nowMS == 0 {
		return
	}
	now := time.Duration(nowMS) * time.Millisecond
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.known(came):
		k.offset = min(max(k.offset, now-came), now-asked)
	case came-asked > doubt:
		return
	default:
		k.offset = now - came
	}
	k.proved = came
}

// known reports whether an answer has told the time lately. The caller holds k.mu.
func (k *clock) known(life time.Duration) bool { return k.proved > 0 && life-k.proved < provedFor }

// at is the instance's time in milliseconds at a moment of the client's life, 0 when it is not known.
func (k *clock) at(life time.Duration) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known(life) {
		return 0
	}
	return (k.offset + life).Milliseconds()
}
