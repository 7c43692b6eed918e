package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// This file computes the expected view from a list of facts, from scratch and without the product's code. It
// catches a wrong merge too.

// fact is a report as a service accepted it, with the accepted time.
type fact struct {
	at       int64
	kind     historyv1.Kind
	position int64
	duration int64
	session  string
	device   string
	meta     named
	started  int64
	watched  int64
	mark     historyv1.Mark // mark, unspecified for a report
}

// factOf returns the fact that a service makes of a report when its clock shows now.
func factOf(hb *historyv1.Heartbeat, now int64) fact {
	f := fact{
		at: hb.EventTimeMs, kind: hb.Kind, position: hb.PositionMs, duration: hb.DurationMs,
		session: hb.Session, device: hb.Device, meta: namedBy(hb.Meta, hb.RemovedMeta), started: hb.StartedAtMs, watched: hb.WatchedMs,
	}
	received := now
	if at := hb.ReceivedAtMs; at <= now && at >= now-120_000 {
		received = at
	}
	if skew := received - hb.SentAtMs; hb.SentAtMs != 0 && (skew > 120_000 || skew < -50) {
		f.at += skew
		if f.started > 0 {
			f.started = max(f.started+skew, 1)
		}
	}
	f.at = min(f.at, now)
	if f.duration > 0 {
		f.position = min(f.position, f.duration)
	}
	if f.started == 0 {
		f.watched = 0
	} else {
		f.started = min(f.started, f.at)
		f.watched = min(f.watched, f.at-f.started)
	}
	return f
}

func (f *fact) version() int64 {
	if f.mark != 0 || f.kind == historyv1.Kind_KIND_STOP || f.kind == historyv1.Kind_KIND_FINISH {
		return f.at<<2 | 1
	}
	return f.at << 2
}

func (f *fact) state() historyv1.State {
	switch f.mark {
	case historyv1.Mark_MARK_WATCHED:
		return historyv1.State_STATE_FINISHED
	case historyv1.Mark_MARK_UNWATCHED, historyv1.Mark_MARK_RESET:
		return historyv1.State_STATE_STOPPED
	}
	switch f.kind {
	case historyv1.Kind_KIND_PAUSE:
		return historyv1.State_STATE_PAUSED
	case historyv1.Kind_KIND_STOP:
		return historyv1.State_STATE_STOPPED
	case historyv1.Kind_KIND_FINISH:
		return historyv1.State_STATE_FINISHED
	}
	return historyv1.State_STATE_PLAYING
}

// early reports whether a fact is from the first ten seconds of its session.
func (f *fact) early() bool {
	if f.mark != 0 {
		return false
	}
	switch f.kind {
	case historyv1.Kind_KIND_SEEK, historyv1.Kind_KIND_FINISH:
		return false
	case historyv1.Kind_KIND_START:
		return true
	}
	if f.started > 0 {
		return f.at-f.started < 10_000
	}
	return f.position < 10_000
}

// completes reports whether a fact has reached 90 % of the duration.
func (f *fact) completes() bool {
	return f.mark == historyv1.Mark_MARK_WATCHED || f.kind == historyv1.Kind_KIND_FINISH || f.duration > 0 && f.position*10 >= f.duration*9
}

func (f *fact) viewing() string {
	if f.mark != 0 {
		return "mark"
	}
	return cmp.Or(f.session, "device "+f.device)
}

// compareFacts orders facts; the greatest is the latest report.
func compareFacts(a, b *fact) int {
	early := func(f *fact) int {
		if f.early() {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(a.version(), b.version()), cmp.Compare(a.position, b.position), cmp.Compare(a.state(), b.state()),
		strings.Compare(a.session, b.session), strings.Compare(a.device, b.device), cmp.Compare(early(a), early(b)),
	)
}

func (f *fact) String() string {
	if f.mark != 0 {
		return fmt.Sprintf("%s at %s", strings.ToLower(f.mark.String()), moment(f.at))
	}
	return fmt.Sprintf("%s at %s position %d session %q of %s, watched %d, meta %q",
		strings.ToLower(strings.TrimPrefix(f.kind.String(), "KIND_")), moment(f.at), f.position, f.session, f.device, f.watched, f.meta)
}

// moment formats a time for traces: seconds and milliseconds since simulated time began.
func moment(ms int64) string { return fmt.Sprintf("%.3f", float64(ms-dayZero)/1000) }

const dayZero = 946684800000 // start of simulated time

// view is what a reader sees of a key.
type view struct {
	found                        bool
	at, position, duration       int64
	furthest, completed, watched int64
	plays                        uint64
	state                        historyv1.State
	session, device              string
	meta                         named // without removed keys
	dismissed                    int64
}

func viewOf(it *historyv1.Item) view {
	if it.GetObject() == nil {
		return view{}
	}
	return view{
		found: true, at: it.EventTimeMs, position: it.PositionMs, duration: it.DurationMs, furthest: it.FurthestMs,
		completed: it.CompletedAtMs, watched: it.WatchedMs, plays: it.Plays, state: it.State,
		session: it.Session, device: it.Device, meta: namedBy(it.Meta, nil), dismissed: it.DismissedMs,
	}
}

func recordView(r *history.Record) view {
	if r == nil {
		return view{}
	}
	return view{
		found: true, at: r.Version.Time(), position: r.Resume(), duration: r.Duration, furthest: r.Furthest(),
		completed: r.CompletedAt(), watched: r.Watched(), plays: r.Plays(), state: historyv1.State(r.State),
		session: r.Session, device: r.Device, meta: namedBy(r.Meta.Map(), nil), dismissed: r.DismissedAt(),
	}
}

func (v view) String() string {
	if !v.found {
		return "nothing"
	}
	text := fmt.Sprintf("%s at %s position %d (furthest %d, %d plays, completed %s, watched %d, duration %d) session %q of %s, meta %q",
		strings.ToLower(strings.TrimPrefix(v.state.String(), "STATE_")), moment(v.at), v.position, v.furthest, v.plays,
		moment(v.completed), v.watched, v.duration, v.session, v.device, v.meta)
	if v.dismissed != 0 {
		text += ", dismissed at " + moment(v.dismissed)
	}
	return text
}

// bounds are the facts that a view must show, and those that it may show.
type bounds struct {
	must, may []*known
	removed   bool  // The cut removed a report.
	cut       int64 // Every report up to it was deleted, uncertain ones too; 0 for no cut.
	off       int64 // Recording may have been off since, which excludes watched time; 0 if it never was.
}

// judge returns what is wrong with a view, empty if nothing is.
func (b *bounds) judge(v view) string {
	if !v.found {
		if len(b.must) > 0 {
			return "nothing is shown of what was acknowledged"
		}
		return ""
	}
	if len(b.may) == 0 {
		return "something is shown that does not exist"
	}
	for _, rule := range [...]func(view) string{b.judgeLatest, b.judgeFurthest, b.judgePlays, b.judgeWatched, b.judgeDetails} {
		if wrong := rule(v); wrong != "" {
			return wrong
		}
	}
	return ""
}

func latest(fs []*known, which func(*fact) bool) *fact {
	var l *fact
	for _, f := range fs {
		if which(&f.fact) && (l == nil || compareFacts(&f.fact, l) > 0) {
			l = &f.fact
		}
	}
	return l
}

func any1(*fact) bool { return true }

func nonEarly(f *fact) bool { return !f.early() }

// judgeLatest checks the latest report and the resume point.
func (b *bounds) judgeLatest(v view) string {
	least := latest(b.must, any1)
	found := false
	for _, f := range b.may {
		if f.at != v.at || f.state() != v.state || f.session != v.session || f.device != v.device {
			continue
		}
		if least != nil && compareFacts(&f.fact, least) < 0 {
			continue
		}
		found = true
		if b.resumes(&f.fact, v.position) {
			return ""
		}
	}
	if !found {
		return "it is not the latest report"
	}
	return "the position to go on from is wrong"
}

// resumes reports whether position is a possible resume point when f is the latest report.
func (b *bounds) resumes(f *fact, position int64) bool {
	if !f.early() {
		return position == f.position
	}
	least := latest(b.must, nonEarly)
	if least == nil && position == f.position {
		return true
	}
	for _, o := range b.may {
		if !o.early() && o.position == position && o.version() <= f.version() &&
			(least == nil || o.version() > least.version() || o.version() == least.version() && o.position >= least.position) {
			return true
		}
	}
	return false
}

func (b *bounds) judgeFurthest(v view) string {
	for _, f := range b.must {
		if f.position > v.furthest && (f.sure() || !f.completes()) { // otherwise possibly a scrub
			return fmt.Sprintf("the furthest position is %d and must be %d", v.furthest, f.position)
		}
	}
	for _, f := range b.may {
		if f.position == v.furthest {
			return ""
		}
	}
	return "nobody reported the furthest position"
}

// endGap and lowGap bound the gaps within one stay at the end, or below it. A stay of minStay at the end is no
// scrub.
const (
	endGap  = 20_000
	lowGap  = 15 * 60_000
	minStay = 10_000
)

// sure reports whether a report at the end cannot be a scrub.
func (f *fact) sure() bool {
	return f.mark != 0 || f.kind == historyv1.Kind_KIND_STOP || f.kind == historyv1.Kind_KIND_FINISH
}

// plays counts the plays after a time and returns the time of the latest. If a viewing's reports are uncertain,
// least counts one for a sure report, and most each report at the end.
type plays struct {
	least, most uint64
	first, last int64 // latest play of least, and of most
}

func (b *bounds) plays() (p plays) {
	viewings, sure := make(map[string][]*known), make(map[string]int)
	after, perhaps := unwatched(b.must), unwatched(b.may)
	for _, f := range b.may {
		viewings[f.viewing()] = append(viewings[f.viewing()], f)
	}
	for _, f := range b.must {
		sure[f.viewing()]++
	}
	for name, fs := range viewings {
		slices.SortFunc(fs, func(a, b *known) int { return cmp.Compare(a.at, b.at) })
		if len(viewings) <= history.MaxViewings && sure[name] == len(fs) && after == perhaps && !b.blurred(fs, after) {
			n, last := playsOf(fs, after)
			p.least, p.most = p.least+n, p.most+n
			p.first, p.last = max(p.first, last), max(p.last, last)
			continue
		}
		for _, f := range fs {
			if f.completes() && f.at > after {
				p.most, p.last = p.most+1, max(p.last, f.at)
			}
		}
		if at := surely(b.must, name, perhaps); at > 0 {
			p.least, p.first = p.least+1, max(p.first, at)
		}
	}
	return p
}

// surely returns the last time a viewing surely reached its end, or 0.
func surely(must []*known, viewing string, after int64) (at int64) {
	for _, f := range must {
		if f.viewing() == viewing && f.completes() && f.sure() && f.at > after {
			at = max(at, f.at)
		}
	}
	return at
}

// blurred reports whether a viewing may have stayed at its end, or below it, across a cut. The length of the stay
// is then unknown.
func (b *bounds) blurred(fs []*known, unwatched int64) bool {
	return slices.ContainsFunc(fs, func(f *known) bool {
		return b.cut > 0 && f.at <= b.cut+lowGap || b.removed || unwatched > 0 && f.at <= unwatched+endGap
	})
}

// playsOf counts the plays of one viewing from all of its reports, in order.
func playsOf(fs []*known, after int64) (n uint64, last int64) {
	var ends, lows []*known
	for _, f := range fs {
		switch {
		case f.mark == historyv1.Mark_MARK_WATCHED && f.at > after:
			n, last = 1, f.at // all marks count as one play
		case f.mark != 0:
		case !f.completes():
			lows = append(lows, f)
		case f.at > after:
			ends = append(ends, f)
		}
	}
	starts := startsOf(ends, lows)
	seen := make(map[int]int64)
	for i, f := range ends {
		if !isLast(ends, i) || isScrub(ends, lows, starts, i) {
			continue
		}
		_, from := stayOf(ends, i, endGap)
		segment := before(starts, f.at)
		seen[segment] = max(seen[segment], f.at)
		for segment > 0 && starts[segment-1].at > from { // the stay spans a start
			at := starts[segment-1].at
			segment = before(starts, at)
			seen[segment] = max(seen[segment], at)
		}
	}
	for _, at := range seen {
		n, last = n+1, max(last, at)
	}
	return n, last
}

// began is a start of a viewing. fresh means at the beginning of the object.
type began struct {
	at    int64
	fresh bool
}

// startsOf returns the reported starts and the starts implied by reports at the end.
func startsOf(ends, lows []*known) (starts []began) {
	for _, f := range lows {
		if f.kind == historyv1.Kind_KIND_START {
			starts = append(starts, began{f.at, f.position == 0})
		}
	}
	for i, f := range ends {
		atEnd := f.duration > 0 && (f.position-(f.at-f.started))*10 >= f.duration*9
		if f.started > 0 && !atEnd && isLast(ends, i) {
			starts = append(starts, began{f.started, false})
		}
	}
	slices.SortFunc(starts, func(a, b began) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.fresh == b.fresh {
			return c
		}
		if a.fresh {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(starts, func(a, b began) bool { return a.at == b.at })
}

func before(starts []began, at int64) (n int) {
	for n < len(starts) && starts[n].at < at {
		n++
	}
	return n
}

// stayOf returns the end and the beginning of the stay of report i.
func stayOf(fs []*known, i int, gap int64) (until, from int64) {
	until, from = fs[i].at, fs[i].at
	for j := i; j < len(fs) && fs[j].at <= until+gap; j++ {
		until = fs[j].at
	}
	for j := i; j >= 0 && fs[j].at >= from-gap; j-- {
		from = fs[j].at
	}
	return until, from
}

// isLast reports whether report i is the last of its stay at the end with as much information.
func isLast(ends []*known, i int) bool {
	f := ends[i]
	until, _ := stayOf(ends, i, endGap)
	order := func(o *known) int {
		began := func(f *known) int64 {
			if f.started > 0 && (f.duration == 0 || (f.position-(f.at-f.started))*10 < f.duration*9) {
				return f.started
			}
			return 0
		}
		one := func(f *known) int64 {
			if f.sure() {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(o.at, f.at), cmp.Compare(one(o), one(f)), cmp.Compare(o.duration, f.duration), cmp.Compare(o.position, f.position), cmp.Compare(began(o), began(f)))
	}
	return !slices.ContainsFunc(ends, func(o *known) bool {
		return o.at <= until && o.duration >= f.duration && (o.sure() || !f.sure()) && order(o) > 0
	})
}

// isScrub reports whether report i is a scrub: a moment at the end, then below it before the next start.
func isScrub(ends, lows []*known, starts []began, i int) bool {
	f := ends[i]
	if _, from := stayOf(ends, i, endGap); f.sure() || f.at-from >= minStay {
		return false
	}
	until, fresh := int64(math.MaxInt64), false
	for _, s := range starts {
		if s.at >= f.at {
			until, fresh = s.at, s.fresh
			break
		}
	}
	for j, l := range lows {
		last, from := stayOf(lows, j, lowGap)
		covered := slices.ContainsFunc(lows[j+1:], func(o *known) bool { return o.at <= last && o.duration >= l.duration })
		if covered || l.at <= f.at || from >= until {
			continue
		}
		if l.at < until || !fresh || until > f.at+lowGap {
			return true
		}
	}
	return false
}

func (b *bounds) judgePlays(v view) string {
	p := b.plays()
	least, first, most, last := p.least, p.first, p.most, p.last
	switch {
	case most > history.MaxCompletions: // a record counts older plays together, and drops late ones among them
		return ""
	case v.plays < least || v.plays > most:
		return fmt.Sprintf("there are %d plays and must be %d to %d", v.plays, least, most)
	case v.completed < first || v.completed > last || (v.completed == 0) != (v.plays == 0):
		return fmt.Sprintf("it was completed at %d and must be from %d to %d", v.completed, first, last)
	}
	return ""
}

// unwatched returns the time up to which no play counts.
func unwatched(fs []*known) (at int64) {
	for _, f := range fs {
		if f.mark == historyv1.Mark_MARK_UNWATCHED {
			at = max(at, f.at)
		}
	}
	return at
}

// counts returns the watched time that a report adds to its session after a cut.
func (k *known) counts(cut int64) int64 { return max(min(k.watched, k.at-max(k.started, cut)), 0) }

// met reports whether recording was, or may have been, off during the report's session.
func (k *known) met() bool {
	return recorded(k.pauses, k.started, k.at) < k.at-k.started || len(k.pauses) > history.MaxPauses && k.started < k.pauses[0].since
}

// watchedBy sums the sessions' watched time, each by its largest report. It returns the number of sessions.
func watchedBy(fs []*known, counts func(*known) int64) (total int64, sessions int) {
	most := make(map[string]int64)
	for _, f := range fs {
		if f.watched > 0 {
			most[f.viewing()] = max(most[f.viewing()], counts(f))
		}
	}
	for _, n := range most {
		total += n
	}
	return total, len(most)
}

// leastWatched returns the least watched time, without reports that may have met a pause.
func (b *bounds) leastWatched() int64 {
	last := b.cut
	if last > 0 && len(b.may) > 0 { // the latest possible time of the cut
		last = slices.MinFunc(b.may, func(a, b *known) int { return cmp.Compare(a.at, b.at) }).at - 1
	}
	least, _ := watchedBy(b.must, func(f *known) int64 {
		if f.exact && f.met() || !f.exact && b.off > 0 && f.at > b.off {
			return 0
		}
		return f.counts(last)
	})
	return least
}

// judgeWatched checks the watched time. A report that surely met a pause counts nothing.
func (b *bounds) judgeWatched(v view) string {
	most, sessions := watchedBy(b.may, func(f *known) int64 {
		if f.exact && f.met() {
			return 0
		}
		return f.counts(b.cut)
	})
	if least := b.leastWatched(); (v.watched < least || v.watched > most) && sessions <= history.MaxWatches {
		return fmt.Sprintf("%d ms were watched and must be %d to %d", v.watched, least, most)
	}
	return ""
}

// judgeDetails checks the duration and the metadata.
func (b *bounds) judgeDetails(v view) string {
	if !b.said(v.duration == 0, func(f *known) bool { return f.duration > 0 }, func(f *known) bool { return f.duration == v.duration }) {
		return "the duration is not the one that was last reported"
	}
	for i, key := range metaKeys {
		shown, none := cmp.Or(v.meta[i], removed), v.meta[i] == ""
		says := func(f *known) bool { return f.meta[i] != "" }
		if !b.said(false, says, func(f *known) bool { return f.meta[i] == shown }) && (!none || !b.said(true, says, nil)) {
			return fmt.Sprintf("the %s of the metadata is not what was last reported", key)
		}
	}
	return ""
}

// metaKeys are the metadata keys of players: too few for a record to drop any.
var metaKeys = [...]string{"title", "series", "season"}

// named has a value per metadata key: "" for none.
type named [len(metaKeys)]string

const removed = "-"

func namedBy(values map[string]string, gone []string) (n named) {
	for i, key := range metaKeys {
		if n[i] = values[key]; slices.Contains(gone, key) {
			n[i] = removed
		}
	}
	return n
}

// said reports whether the shown value is the latest reported one. none means that no value is shown.
func (b *bounds) said(none bool, says, this func(*known) bool) bool {
	least := int64(0)
	for _, f := range b.must {
		if says(f) {
			least = max(least, f.version())
		}
	}
	if none {
		return least == 0
	}
	for _, f := range b.may {
		if says(f) && this(f) && f.version() >= least {
			return true
		}
	}
	return false
}

// positions are few enough that a record never drops one.
var positions = [...]int64{1_000, 30_000, 120_000, 300_000, 450_000, 541_000, 600_000}

const duration = 600_000

func incomplete(it any) bool {
	i, ok := it.(interface{ GetIncomplete() bool })
	return ok && i.GetIncomplete()
}
