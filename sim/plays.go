package sim

import (
	"context"
	"errors"
	"maps"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
)

// In some seeds the jobs send a stream of plays. The judge reads it as docs/plays.md tells other systems to.

// playsDoor is the stream as a job reaches it.
type playsDoor struct{ *process }

var _ archive.Plays = playsDoor{}

// Send may send only the first messages. A request whose answer was lost does not land later: that is a stated limit.
func (d playsDoor) Send(ctx context.Context, messages []history.PlayMessage) error {
	var part error
	err := d.read(ctx, "plays", history.UserKey(messages[0].Key.UID), func() {
		n := len(messages)
		if dice, fails := d.w.src.chance(streamFate, d.w.faults()); fails {
			n, part = dice.n(n), errNoAnswer
		}
		d.w.plays = append(d.w.plays, messages[:n]...)
	})
	return errors.Join(err, part)
}

// readPlays returns the plays that a reader of messages has in the end, by id.
func readPlays(messages []history.PlayMessage) map[string]history.Key {
	type play struct {
		key history.Key
		at  int64
	}
	plays, removed := make(map[string]play), make(map[history.Key]int64)
	for _, m := range messages {
		switch m.Kind {
		case history.PlayCompleted:
			plays[m.ID()] = play{m.Key, m.At}
		case history.PlayRetracted:
			delete(plays, m.ID())
		default:
			if removed[m.Key] >= m.At {
				continue
			}
			removed[m.Key] = m.At
			maps.DeleteFunc(plays, func(_ string, p play) bool {
				all := m.Key.Object.ID == "" && (m.Key.Object.Type == 0 || m.Key.Object.Type == p.key.Object.Type)
				return p.at <= m.At && p.key.UID == m.Key.UID && (all || p.key == m.Key)
			})
		}
	}
	keys := make(map[string]history.Key, len(plays))
	for id, p := range plays {
		keys[id] = p.key
	}
	return keys
}

// judgePlays compares the stream with what the archive shows. A play that goes on across a clear comes again only
// with the next report. The stream keeps plays that a record no longer lists.
func (w *World) judgePlays() {
	got := make(map[history.Key]int)
	for _, k := range readPlays(w.plays) {
		got[k]++
	}
	for _, uid := range w.uids {
		for _, o := range w.objects() {
			k := history.Key{UID: uid, Object: o}
			e, want := w.inArchive(k), 0
			if r := e.Record.Visible(o, &e.User); r != nil {
				if r.PlaysBefore > 0 || r.RemovedAt > 0 && r.RemovedAt <= e.User.ClearedAt(o.Type) {
					continue
				}
				want = int(r.Plays()) //nolint:gosec // small
			}
			if got[k] != want {
				w.fail("%s: the stream has %d plays, and the archive %d", k, got[k], want)
			}
		}
	}
}
