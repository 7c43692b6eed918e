package history_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// view is the visible part of a record.
type view struct {
	Version                                   history.Version
	State                                     history.State
	Session, Device, Meta                     string
	Position, Duration, Furthest, CompletedAt int64
	Plays                                     uint64
	RemovedAt, Resume, Watched                int64
}

func viewOf(r *history.Record) view {
	return view{
		Version: r.Version, State: r.State, Session: r.Session, Device: r.Device, Meta: fmt.Sprint(r.Meta.Map()),
		Position: r.Position, Duration: r.Duration, Furthest: r.Furthest(), CompletedAt: r.CompletedAt(),
		Plays: r.Plays(), RemovedAt: r.RemovedAt, Resume: r.Resume(), Watched: r.Watched(),
	}
}

// model derives the view from the plain list of events. It never merges: each step reads the whole list.
func model(events []history.Event) view {
	v := view{Meta: fmt.Sprint(map[string]string(nil))}
	for _, e := range events {
		if e.Kind == history.KindDelete {
			v.RemovedAt = max(v.RemovedAt, e.At)
		}
	}
	live := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.At <= v.RemovedAt })
	latest := live
	if len(live) == 0 {
		latest = slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
			return e.At != v.RemovedAt || e.Kind != history.KindDelete
		})
	}
	v.latest(slices.MaxFunc(latest, compareEvents))
	v.rest(live)
	v.resume(live)
	if longest := longest(live, v.Duration); longest > 0 { // the upper bound of positions
		v.Furthest, v.Resume = min(v.Furthest, longest), min(v.Resume, longest)
	}
	v.watched(live)
	return v
}

// resume is the position of the latest event that is not early, or of the latest event if all are early.
func (v *view) resume(live []history.Event) {
	v.Resume = v.Position
	nonEarly := slices.DeleteFunc(slices.Clone(live), early)
	if len(nonEarly) > 0 {
		v.Resume = positionOf(slices.MaxFunc(nonEarly, compareEvents))
	}
}

func early(e history.Event) bool {
	switch {
	case e.Kind == history.KindSeek || marks(e) || e.Kind == history.KindFinish:
		return false
	case e.StartedAt == 0:
		return e.Kind == history.KindStart || e.Position < 10_000
	}
	return e.Kind == history.KindStart || e.At < e.StartedAt+10_000
}

// saysMore reports whether o replaces e: it is of the same viewing, no earlier, and no less was watched. Of equal
// ones the longer and faster session stays.
func saysMore(o, e history.Event) bool {
	switch {
	case viewingOf(o) != viewingOf(e) || o.At < e.At || o.Watched < e.Watched:
		return false
	case o.At > e.At || o.Watched > e.Watched:
		return true
	}
	return cmp.Or(cmp.Compare(e.StartedAt, o.StartedAt), cmp.Compare(speedOf(o), speedOf(e))) > 0
}

// watched adds up the sessions, each by its largest report.
func (v *view) watched(live []history.Event) {
	sessions := make(map[[2]string]int64)
	for _, e := range live {
		if e.Watched == 0 || slices.ContainsFunc(live, func(o history.Event) bool { return saysMore(o, e) }) {
			continue
		}
		sessions[viewingOf(e)] = max(sessions[viewingOf(e)], since(e, v.RemovedAt).Watched)
	}
	for _, n := range sessions {
		v.Watched += n
	}
}

// since is e without the time its session had played before the delete.
func since(e history.Event, deleted int64) history.Event {
	e.StartedAt = max(e.StartedAt, deleted)
	e.Watched = min(e.Watched, (e.At-e.StartedAt)*speedOf(e)/100)
	return e
}

func speedOf(e history.Event) int64 { return cmp.Or(e.Speed, 100) }

// latest sets the fields that the newest event alone decides.
func (v *view) latest(e history.Event) {
	v.Version = history.Version(e.At*4) + rankOf(e.Kind)
	v.State, v.Session, v.Device, v.Position = stateOf(e.Kind), e.Session, e.Device, positionOf(e)
}

// marks reports whether the event is a user's mark rather than playback.
func marks(e history.Event) bool {
	return e.Kind == history.KindWatched || e.Kind == history.KindUnwatched || e.Kind == history.KindReset
}

// rest sets the fields that depend on all events after the last delete.
func (v *view) rest(live []history.Event) {
	unwatched := unwatchedAt(live)
	for _, e := range live {
		if !ends(e) || e.Kind == history.KindStop || e.Kind == history.KindFinish || e.At > unwatched && listed(live, e, max(v.RemovedAt, unwatched)) && !scrub(live, e, v.RemovedAt, unwatched) {
			v.Furthest = max(v.Furthest, positionOf(e))
		}
	}
	plays := playsOf(live, v.RemovedAt)
	v.Plays = uint64(len(plays))
	for _, at := range plays {
		v.CompletedAt = max(v.CompletedAt, at)
	}
	known := slices.DeleteFunc(slices.Clone(live), func(e history.Event) bool { return e.Duration == 0 })
	if len(known) > 0 {
		v.Duration = slices.MaxFunc(known, func(a, b history.Event) int {
			return cmp.Or(compareVersions(a, b), cmp.Compare(a.Duration, b.Duration))
		}).Duration
	}
	v.Meta = fmt.Sprint(metaOf(live))
}

// named is one metadata entry and its event.
type named struct {
	event history.Event
	entry history.MetaEntry[string]
}

// metaOf keeps the newest entry of each key, and the newest 16 keys.
func metaOf(live []history.Event) map[string]string {
	var all []named
	for _, e := range live {
		for entry := range e.Meta.Entries() {
			all = append(all, named{e, entry})
		}
	}
	slices.SortFunc(all, func(a, b named) int { // newest first
		return cmp.Or(compareVersions(b.event, a.event), cmp.Compare(b.entry.Key, a.entry.Key), cmp.Compare(fmt.Sprint(a.entry.Removed), fmt.Sprint(b.entry.Removed)), cmp.Compare(b.entry.Value, a.entry.Value))
	})
	seen, values := make(map[string]bool), map[string]string(nil)
	for _, n := range all {
		if seen[n.entry.Key] || len(seen) == history.MaxMetaKeys {
			continue
		}
		seen[n.entry.Key] = true
		if !n.entry.Removed {
			if values == nil {
				values = make(map[string]string)
			}
			values[n.entry.Key] = n.entry.Value
		}
	}
	return values
}

// longest is the longest duration that a viewing reported.
func longest(live []history.Event, duration int64) int64 {
	unwatched := unwatchedAt(live)
	for _, e := range live {
		if counted(e) && !marks(e) && (!ends(e) || e.At > unwatched) {
			duration = max(duration, e.Duration)
		}
	}
	return duration
}

func unwatchedAt(live []history.Event) (at int64) {
	for _, e := range live {
		if e.Kind == history.KindUnwatched {
			at = max(at, e.At)
		}
	}
	return at
}

// ends reports whether the event by itself is at the end of its viewing.
func ends(e history.Event) bool {
	return e.Kind == history.KindFinish || e.Kind == history.KindWatched || !marks(e) && e.Duration > 0 && float64(e.Position) >= 0.9*float64(e.Duration)
}

func lastsTo(e history.Event) int64 { // the longest duration for which e is at the end
	switch reach := e.Position * 10 / 9; {
	case e.Duration == 0 || marks(e):
		return 1 << 62
	case e.Kind == history.KindFinish:
		return max(reach, e.Duration)
	default:
		return reach
	}
}

func sure(e history.Event) bool {
	return e.Kind == history.KindStop || e.Kind == history.KindFinish || marks(e)
}

// stay returns the begin of the stay, at the end or below it, that contains report e. Reports of one stay are
// at most a gap apart. A stay never begins before lowWatermark, and one that begins just after it begins at it.
func stay(live []history.Event, e history.Event, lowWatermark int64) (from int64) {
	gap := int64(15 * 60_000)
	if ends(e) {
		gap = 20_000
	}
	from = e.At
	for again := true; again; {
		again = false
		for _, o := range live {
			if viewingOf(o) == viewingOf(e) && ends(o) == ends(e) && counted(o) && o.At > lowWatermark && o.At < from && o.At >= from-gap {
				from, again = o.At, true
			}
		}
	}
	if lowWatermark > 0 && from <= lowWatermark+gap {
		return lowWatermark + 1
	}
	return from
}

// counted excludes reports that say no more than a mark.
func counted(e history.Event) bool {
	return e.Kind == history.KindWatched || ends(e) || e.Kind < history.KindStop || e.Session != "" || e.Device != "" || e.Position != 0
}

// listed reports whether e is the last report of its stay with its duration and certainty.
func listed(live []history.Event, e history.Event, lowWatermark int64) bool {
	return !slices.ContainsFunc(live, func(o history.Event) bool {
		switch {
		case marks(e):
			return o.Kind == e.Kind && o.At > e.At
		case viewingOf(o) != viewingOf(e) || ends(o) != ends(e) || !counted(o):
			return false
		}
		order := cmp.Compare(o.At, e.At)
		if ends(e) {
			order = cmp.Or(order, compareBools(sure(o), sure(e)))
		}
		order = cmp.Or(order, cmp.Compare(o.Duration, e.Duration))
		if ends(e) {
			order = cmp.Or(order, cmp.Compare(o.Position, e.Position), cmp.Compare(lastsTo(o), lastsTo(e)), cmp.Compare(began(o), began(e)))
		}
		return order > 0 && o.Duration >= e.Duration && (!ends(e) || sure(o) || !sure(e)) && stay(live, o, lowWatermark) <= e.At
	})
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// began is the begin of the viewing, if the end reports it and the viewing did not begin at the end.
func began(e history.Event) int64 {
	if marks(e) || e.StartedAt == 0 || e.Duration > 0 && float64(e.Position-(e.At-e.StartedAt)) >= 0.9*float64(e.Duration) {
		return 0
	}
	return e.StartedAt
}

// startOf returns when a viewing starts with this report, or 0, and whether it starts at position 0.
func startOf(e history.Event) (at int64, fresh bool) {
	switch {
	case ends(e):
	case e.Kind == history.KindStart:
		return e.At, e.Position == 0
	case e.Kind == history.KindProgress && e.Session == "" && e.StartedAt == 0 && e.Position < 10_000 && e.Position*20 < e.Duration:
		return e.At - e.Position, false
	}
	return 0, false
}

// between returns the viewing's last start before at and its first start after, and whether the latter is at
// position 0.
func between(live []history.Event, viewing [2]string, at, deleted, unwatched int64) (from, until int64, fresh bool) { //nolint:revive // three times of one kind
	until = 1 << 62
	add := func(t int64, isFresh bool) {
		switch {
		case t < at:
			from = max(from, t)
		case t < until:
			until, fresh = t, isFresh
		case t == until:
			fresh = fresh || isFresh
		}
	}
	for _, e := range live {
		if viewingOf(e) != viewing {
			continue
		}
		t, isFresh := startOf(e)
		seen := e.Kind == history.KindStart || slices.ContainsFunc(live, func(o history.Event) bool {
			return ends(o) && viewingOf(o) == viewing && o.At > unwatched && o.At <= t && lastsTo(o) >= e.Duration && listed(live, o, max(deleted, unwatched))
		})
		if t > deleted && seen {
			add(t, isFresh)
		}
		if ends(e) && e.At > unwatched && began(e) > 0 && listed(live, e, max(deleted, unwatched)) {
			add(began(e), false)
		}
	}
	return from, until, fresh
}

// scrub reports whether a viewing touched its end only briefly, then went below it before its next start.
func scrub(live []history.Event, e history.Event, deleted, unwatched int64) bool {
	if sure(e) || e.At-stay(live, e, max(deleted, unwatched)) >= 10_000 {
		return false
	}
	_, until, fresh := between(live, viewingOf(e), e.At, deleted, unwatched)
	return slices.ContainsFunc(live, func(o history.Event) bool {
		if viewingOf(o) != viewingOf(e) || marks(o) || ends(o) || !counted(o) || o.At <= e.At || !listed(live, o, deleted) || stay(live, o, deleted) >= until {
			return false
		}
		return o.At < until || (!fresh || until > e.At+15*60_000) && (stay(live, o, deleted) != deleted+1 || until > deleted+15*60_000)
	})
}

type playKey struct {
	viewing [2]string
	from    int64
}

// playsOf returns the last end report of each play, by viewing and start.
func playsOf(live []history.Event, deleted int64) map[playKey]int64 {
	plays, unwatched := make(map[playKey]int64), unwatchedAt(live)
	lowWatermark := max(deleted, unwatched)
	for _, e := range live {
		if !ends(e) || e.At <= unwatched || !listed(live, e, lowWatermark) || scrub(live, e, deleted, unwatched) {
			continue
		}
		longest, stayed := int64(0), e.At
		if !marks(e) {
			stayed = stay(live, e, lowWatermark)
		}
		from, until, _ := between(live, viewingOf(e), e.At, deleted, unwatched)
		for _, o := range live {
			if viewingOf(o) != viewingOf(e) || marks(o) || !counted(o) {
				continue
			}
			if ends(o) && o.At > unwatched && listed(live, o, lowWatermark) && o.At > from && o.At <= until || !ends(o) && listed(live, o, deleted) && o.At >= from && o.At < until {
				longest = max(longest, o.Duration)
			}
		}
		if longest > lastsTo(e) {
			continue
		}
		at := e.At
		for {
			key := playKey{viewingOf(e), from}
			plays[key] = max(plays[key], at)
			if from <= stayed || stayed == lowWatermark+1 { // the length of a cut stay is unknown
				break
			}
			at = from
			from, _, _ = between(live, viewingOf(e), at, deleted, unwatched)
		}
	}
	return plays
}

// viewingOf identifies a viewing by session, or by device without one.
func viewingOf(e history.Event) [2]string {
	if marks(e) {
		return [2]string{"mark", "mark"}
	}
	if e.Session != "" {
		return [2]string{e.Session, ""}
	}
	return [2]string{"", e.Device}
}

func compareVersions(a, b history.Event) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(rankOf(a.Kind), rankOf(b.Kind)))
}

func compareEvents(a, b history.Event) int {
	return cmp.Or(compareVersions(a, b), cmp.Compare(positionOf(a), positionOf(b)), cmp.Compare(stateOf(a.Kind), stateOf(b.Kind)),
		cmp.Compare(a.Session, b.Session), cmp.Compare(a.Device, b.Device), cmp.Compare(nonEarlyFirst(a), nonEarlyFirst(b)))
}

func nonEarlyFirst(e history.Event) int {
	if early(e) {
		return 0
	}
	return 1
}

// positionOf is the position after an event: 0 for a delete or a mark.
func positionOf(e history.Event) int64 {
	if e.Kind == history.KindDelete || marks(e) {
		return 0
	}
	return e.Position
}

func rankOf(k history.Kind) history.Version {
	return map[history.Kind]history.Version{history.KindStop: 1, history.KindFinish: 1, history.KindDelete: 2, history.KindWatched: 1, history.KindUnwatched: 1, history.KindReset: 1}[k]
}

func stateOf(k history.Kind) history.State {
	return map[history.Kind]history.State{
		history.KindStart: history.StatePlaying, history.KindProgress: history.StatePlaying, history.KindSeek: history.StatePlaying,
		history.KindPause: history.StatePaused, history.KindStop: history.StateStopped, history.KindFinish: history.StateFinished,
		history.KindDelete: history.StateDeleted, history.KindWatched: history.StateFinished, history.KindUnwatched: history.StateStopped, history.KindReset: history.StateStopped,
	}[k]
}

// epoch is the first time of the tests, in Unix milliseconds.
const epoch = int64(1_790_000_000_000)

// crowded draws events of one key within a few milliseconds. Nine positions leave at most eight peaks, the
// bound of a record.
func crowded() *rapid.Generator[history.Event] { return events(9) }

// wide draws events whose peaks may exceed the bound of a record.
func wide() *rapid.Generator[history.Event] { return events(1000) }

// undeleted draws wide events without deletes.
func undeleted() *rapid.Generator[history.Event] {
	return wide().Filter(func(e history.Event) bool { return e.Kind != history.KindDelete })
}

func events(positions int64) *rapid.Generator[history.Event] {
	kinds := []history.Kind{
		history.KindStart, history.KindProgress, history.KindProgress, history.KindProgress, history.KindPause,
		history.KindSeek, history.KindStop, history.KindFinish, history.KindDelete, history.KindWatched, history.KindUnwatched, history.KindReset,
	}
	metas := []history.Meta{
		"", history.NewMeta(nil), history.NewMeta(map[string]string{"a": "1"}), history.NewMeta(map[string]string{"a": "2"}),
		history.NewMeta(map[string]string{"b": ""}), history.NewMeta(map[string]string{"a": "1", "b": "1"}),
		history.NewMeta(nil, "a"), history.NewMeta(map[string]string{"b": "1"}, "a"), numbered(0, 10), numbered(5, 15), numbered(12, 20),
	}
	return rapid.Custom(func(t *rapid.T) history.Event {
		at := epoch + rapid.Int64Range(0, 20).Draw(t, "at")
		e := history.Event{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), At: at,
			StartedAt: rapid.SampledFrom([]int64{0, at - 1, at - 5, at - 9_999, at - 10_000, at - 20_000}).Draw(t, "started at"),
			Watched:   rapid.Int64Range(0, 8).Draw(t, "watched"), Speed: rapid.SampledFrom([]int64{0, 50, 200}).Draw(t, "speed"),
			Position: rapid.Int64Range(0, positions-1).Draw(t, "position"), Duration: rapid.SampledFrom([]int64{0, 5, 10}).Draw(t, "duration"),
			Session: rapid.SampledFrom([]string{"", "s", "t", "u"}).Draw(t, "session"),
			Device:  rapid.SampledFrom([]string{"", "tv", "phone"}).Draw(t, "device"),
			Meta:    rapid.SampledFrom(metas).Draw(t, "meta"),
		}
		if marks(e) {
			e.Session, e.Device = "", ""
		}
		e.Watched = min(e.Watched, (at-e.StartedAt)*speedOf(e)/100) // as Clamp does
		if e.StartedAt == 0 {
			e.Watched = 0
		}
		return e
	})
}

// numbered has the keys from..to-1, every third removed. A few of them exceed the keys of a record.
func numbered(from, to int) history.Meta {
	values, removed := make(map[string]string), []string(nil)
	for i := from; i < to; i++ {
		if key := fmt.Sprint("k", i); i%3 == 0 {
			removed = append(removed, key)
		} else {
			values[key] = fmt.Sprint(from)
		}
	}
	return history.NewMeta(values, removed...)
}

// many draws lists of least to most events.
func many(e *rapid.Generator[history.Event], least, most int) *rapid.Generator[[]history.Event] {
	return rapid.SliceOfN(e, least, most)
}

// fold merges the events in the given order; the fold of no events is nil.
func fold(events []history.Event) *history.Record {
	var r *history.Record
	for i := range events {
		r = history.Merge(r, events[i].Record())
	}
	return r
}

func inOrder(events []history.Event) []history.Event {
	return slices.SortedStableFunc(slices.Values(events), compareEvents)
}

// folded draws the fold of up to twelve events.
func folded(e *rapid.Generator[history.Event]) *rapid.Generator[*history.Record] {
	return rapid.Map(many(e, 0, 12), fold)
}

func wantSame(t *rapid.T, what string, got, want *history.Record) {
	t.Helper()
	if !history.Same(got, want) {
		t.Fatalf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// TestModel checks the model itself against a story written by hand.
func TestModel(t *testing.T) {
	at := func(ms int64, k history.Kind, position int64, session string) history.Event {
		return history.Event{Kind: k, At: epoch + ms, Position: position, Duration: 10, Session: session, StartedAt: epoch - 10_000, Watched: position}
	}
	mistake := at(6, history.KindStart, 0, "v")
	story := []history.Event{
		at(1, history.KindProgress, 10, "old"), at(2, history.KindDelete, 0, ""), at(3, history.KindProgress, 9, "s"),
		at(4, history.KindStop, 10, "s"), at(5, history.KindFinish, 2, "t"), at(5, history.KindProgress, 7, "u"),
	}
	want := view{
		Version: history.VersionOf(epoch+5, history.RankStop), State: history.StateFinished, Session: "t", Meta: "map[]",
		Position: 2, Duration: 10, Furthest: 10, CompletedAt: epoch + 5, Plays: 2, RemovedAt: epoch + 2, Resume: 2, Watched: 7,
	}
	if got := model(story); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := viewOf(fold(story)); got != want {
		t.Errorf("folded:\ngot  %+v\nwant %+v", got, want)
	}
	story = append(story, mistake)
	want.Version, want.State, want.Session, want.Position = history.VersionOf(epoch+6, history.RankProgress), history.StatePlaying, "v", 0
	if got := model(story); got != want {
		t.Errorf("after a start:\ngot  %+v\nwant %+v", got, want)
	}
	if got := viewOf(fold(story)); got != want {
		t.Errorf("folded after a start:\ngot  %+v\nwant %+v", got, want)
	}
}
