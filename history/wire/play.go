package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
)

// play is a message of the stream of plays, as docs/plays.md describes it.
type play struct {
	ID      string      `json:"id"`
	Kind    string      `json:"kind"`
	User    string      `json:"user"`
	Object  *playObject `json:"object,omitempty"`
	Type    uint32      `json:"type,omitempty"`    // of a clear
	Viewing string      `json:"viewing,omitempty"` // 16 hexadecimal digits
	Time    time.Time   `json:"time"`
}

type playObject struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

// AppendPlay appends an encoded message of the stream of plays. It is JSON, for readers outside Playhead.
func AppendPlay(dst []byte, m history.PlayMessage) []byte {
	p := play{ID: m.ID(), Kind: string(m.Kind), User: m.Key.UID, Time: time.UnixMilli(m.At).UTC()}
	if m.Kind == history.PlaysCleared {
		p.Type = m.Key.Object.Type
	} else {
		p.Object = &playObject{m.Key.Object.ID, m.Key.Object.Type}
	}
	if m.Viewing != 0 {
		p.Viewing = fmt.Sprintf("%016x", m.Viewing)
	}
	b, err := json.Marshal(p)
	if err != nil { // times are from 1970 to 2248
		panic(fmt.Sprintf("encode play: %v", err))
	}
	return append(dst, b...)
}

// Play decodes a message of the stream of plays. It fails with [ErrCorrupt].
func Play(b []byte) (m history.PlayMessage, err error) {
	var p play
	if err := json.Unmarshal(b, &p); err != nil {
		return m, fmt.Errorf("play of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	m = history.PlayMessage{Kind: history.PlayKind(p.Kind), Key: history.Key{UID: p.User, Object: history.Object{Type: p.Type}}, At: p.Time.UnixMilli()}
	if p.Object != nil {
		m.Key.Object = history.Object(*p.Object)
	}
	if p.Viewing != "" {
		if m.Viewing, err = strconv.ParseUint(p.Viewing, 16, 64); err != nil {
			return m, fmt.Errorf("viewing of a play: %w: %w", ErrCorrupt, err)
		}
	}
	return m, nil
}
