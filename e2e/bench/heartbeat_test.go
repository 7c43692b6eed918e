//go:build e2e

package bench_test

import (
	"iter"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// audience is viewers of running viewings, each as the write of the last heartbeat. Its parts may be used
// concurrently.
type audience []history.Write

func newAudience(n int, name string) audience {
	a, now := make(audience, n), time.Now().UnixMilli()
	for i := range a {
		a[i].Key = history.Key{UID: name + strconv.Itoa(1_000_000+i), Object: history.Object{ID: "1000000", Type: 1}}
		a[i].Record = record(now)
	}
	return a
}

func (a audience) uids() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range a {
			if !yield(a[i].Key.UID) {
				return
			}
		}
	}
}

// beat turns each write into the viewer's next heartbeat. One in 14 viewers starts another object: without a base
// and with a mark, like the first write of a hold. That mark covers the next thirteen.
func (a audience) beat(turn int) {
	version := history.VersionOf(time.Now().UnixMilli(), history.RankProgress)
	for i := range a {
		w := &a[i]
		r := *w.Record
		w.Base, w.BeginsHold = r.Revision, (i+turn)%beats == 0
		if w.BeginsHold {
			w.Base, w.Key.Object.ID = 0, strconv.Itoa(2_000_000+turn)
		}
		r.Version, r.Position, r.Revision = version, r.Position+replay.Period, rand.Uint64()>>1+1
		w.Record = &r
	}
}

func record(at int64) *history.Record {
	e := history.Event{
		Kind: history.KindStart, At: at, Position: 61_000, Duration: 7_200_000,
		Session: "5f2b7c1e-9d0a-4f6b-8e3c-1a2b3c4d5e6f", Device: "living-room-tv-0001",
		Meta: history.NewMeta(map[string]string{"season": "2", "episode": "11"}),
	}
	r := e.Record()
	r.Partial, r.Revision = false, rand.Uint64()>>1+1
	return r
}
