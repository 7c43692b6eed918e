package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Load is heartbeats in order of arrival. Every side of a comparison receives the same ones.
type Load struct {
	Name string

	plan     *replay.Plan
	metadata map[history.Object]metadata
}

// metadata is the metadata of an object's heartbeats: as our services accept it, and as JSON text for a table.
type metadata struct {
	entries map[string]string
	record  history.Meta // in a record's format
	text    string
}

// NewLoad expands viewings into heartbeats with a number of bytes of metadata each, keys and values counted.
func NewLoad(viewings []replay.Viewing, bytes int) *Load {
	l := &Load{plan: replay.Expand(viewings, 0), metadata: make(map[history.Object]metadata)}
	for _, v := range viewings {
		if _, ok := l.metadata[v.Object]; !ok {
			l.metadata[v.Object] = newMetadata(v.Object, bytes)
		}
	}
	return l
}

// EndAt moves the heartbeats in time: the last one is at the given Unix millisecond.
func (l *Load) EndAt(ms int64) { l.plan.EndAt(ms) }

// Len returns the number of heartbeats.
func (l *Load) Len() int { return l.plan.Len() }

// Viewings returns the number of viewings with heartbeats.
func (l *Load) Viewings() int { return l.plan.Reported() }

// Event returns heartbeat i.
func (l *Load) Event(i int) history.Event {
	e := l.plan.Event(i)
	e.Meta = l.metadata[e.Key.Object].record
	return e
}

func (l *Load) fill(i int, hb *historyv1.Heartbeat) {
	e := l.plan.Event(i)
	replay.Fill(hb, &e, l.metadata[e.Key.Object].entries)
}

// Share divides the heartbeats among workers. One worker has all heartbeats of a user, in order.
func (l *Load) Share(workers int) [][]int32 {
	parts := make([][]int32, workers)
	for i := range l.Len() {
		w := int(history.BucketOf(l.plan.Event(i).Key.UID)) % workers
		parts[w] = append(parts[w], int32(i)) //nolint:gosec // a load has fewer heartbeats
	}
	return parts
}

// ByUser gives each user's heartbeats to a worker of their own.
func (l *Load) ByUser() [][]int32 {
	var parts [][]int32
	index := make(map[string]int)
	for i := range l.Len() {
		uid := l.user(int32(i)) //nolint:gosec // a load has fewer heartbeats
		w, ok := index[uid]
		if !ok {
			w = len(parts)
			index[uid], parts = w, append(parts, nil)
		}
		parts[w] = append(parts[w], int32(i)) //nolint:gosec // a load has fewer heartbeats
	}
	return parts
}

func (l *Load) user(beat int32) string { return l.plan.Event(int(beat)).Key.UID }

// Records returns the number of resulting records, and their average size in the archive, in bytes without the
// key.
func (l *Load) Records() (n int, bytes float64) {
	last := make(map[history.Key]int)
	for i := range l.Len() {
		last[l.plan.Event(i).Key] = i
	}
	sum := 0
	for _, i := range last {
		e := l.Event(i)
		sum += len(wire.AppendRecord(nil, e.Record()))
	}
	return len(last), float64(sum) / float64(max(len(last), 1))
}

// Long viewings.
const (
	perViewer = 2      // viewings, one after the other
	catalogue = 10_000 // number of objects
	start     = 1_700_000_000_000
)

// LongViewings returns viewings of 13 or 14 heartbeats, 13.6 on average, for about that many heartbeats. All
// viewers are present at once with evenly spread phases: between two heartbeats of one there is one of each
// other.
func LongViewings(heartbeats int) []replay.Viewing { return viewingsOf(heartbeats, perViewer) }

func viewingsOf(heartbeats, perViewer int) []replay.Viewing {
	viewers := max(int(float64(heartbeats)/13.6/float64(perViewer)), 1)
	const cycle = 13 * replay.Period
	vs := make([]replay.Viewing, 0, viewers*perViewer)
	for turn := range perViewer {
		for v := range viewers {
			beats := 13
			if (v+turn)%5 < 3 {
				beats = 14
			}
			vs = append(vs, replay.Viewing{
				UID:    strconv.Itoa(1_000_000 + v),
				Object: history.Object{ID: strconv.Itoa(100_000 + (v*7919+turn)%catalogue), Type: 1},
				At:     start + int64(turn)*cycle + int64(v)*replay.Period/int64(viewers),
				Played: int64(beats-2)*replay.Period + replay.Period/2, Duration: 2 * cycle,
			})
		}
	}
	return vs
}

// Dense moves a trace's viewings together, in order, to reach a number of heartbeats per second. A viewing's
// heartbeats stay 15 s apart, so a batch rarely has two of one viewing.
func Dense(viewings []replay.Viewing, perSecond int) []replay.Viewing {
	vs := slices.Clone(viewings)
	slices.SortStableFunc(vs, func(a, b replay.Viewing) int { return cmp.Compare(a.At, b.At) })
	beats := int64(0)
	for i := range vs {
		vs[i].At = start + beats*1000/int64(perSecond)
		beats += 2 + vs[i].Played/replay.Period
	}
	return vs
}

// newMetadata describes an object in a number of bytes, at most 1,024.
func newMetadata(o history.Object, bytes int) metadata {
	if bytes == 0 {
		return metadata{text: "{}"}
	}
	entries := []struct{ key, value string }{
		{"title", "Episode " + o.ID},
		{"season", "2"},
		{"episode", o.ID[max(len(o.ID)-2, 0):]},
		{"image", "https://img.example.com/" + o.ID + "/"},
	}
	left := bytes - len("synopsis")*min(bytes/500, 1)
	for _, e := range entries {
		left -= len(e.key) + len(e.value)
	}
	if bytes >= 500 {
		entries = append(entries, struct{ key, value string }{"synopsis", filler(o.ID, left)})
	} else {
		entries[3].value += filler(o.ID, left)
	}
	return entriesOf(entries)
}

func entriesOf(entries []struct{ key, value string }) metadata {
	m := metadata{entries: make(map[string]string, len(entries))}
	var text strings.Builder
	for i, e := range entries {
		m.entries[e.key] = e.value
		fmt.Fprintf(&text, "%c%q:%q", "{,"[min(i, 1)], e.key, e.value)
	}
	m.record, m.text = history.NewMeta(m.entries), text.String()+"}"
	return m
}

// filler returns n letters that differ between objects.
func filler(id string, n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	b, state := make([]byte, max(n, 0)), uint64(14695981039346656037)
	for _, c := range []byte(id) {
		state = (state ^ uint64(c)) * 1099511628211
	}
	for i := range b {
		state = state*6364136223846793005 + 1442695040888963407
		b[i] = letters[state>>59]
	}
	return string(b)
}
