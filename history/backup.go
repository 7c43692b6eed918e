package history

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Restore returns r with the content that a removal at cut hid, as reports of cut+1. For a record with nothing
// left, cut is the result of [RestoredAt]. Plays, peaks and other details keep their times. Of two records
// restored with one cut, the one played later stays the later one. A record that lost nothing is returned
// unchanged.
func (r *Record) Restore(cut int64) *Record {
	goesOn := func(w WatchedTime) bool { return w.Began < cut } // began before the removal
	if cut <= r.RemovedAt || r.Version.Time() > cut && r.Oldest() > cut && !slices.ContainsFunc(r.Watches, goesOn) {
		return r
	}
	m := *r
	m.Watches = r.counted() // content lost in an earlier removal stays lost
	m.uncut()
	lows := m.lows()
	m.RemovedAt, m.Restored = cut, true
	if r.Version.Time() <= cut {
		m.Version, m.Original = VersionOf(cut+1, RankProgress), r.own()
	}
	m.Completions = staysBeside(m.Completions, max(cut, r.PlaysBeforeAt), endGap)
	m.setLows(staysBeside(lows, cut, lowGap))
	return &m
}

// uncut shortens the stays that [staysAfter] began at the removal to their latest report. Where the removal is not
// known, their begin would be taken for a report, and a viewing that began in between for a second play.
func (r *Record) uncut() {
	if r.RemovedAt == 0 {
		return
	}
	single := func(stays []Stay) []Stay {
		for i := range stays {
			if stays[i].from() == r.RemovedAt+1 {
				stays[i].Length = 0
			}
		}
		return stays
	}
	var listed []Stay
	for _, l := range r.Lows {
		listed = append(listed, l.stay())
	}
	r.Completions, r.Lows = single(slices.Clone(r.Completions)), nil
	r.setLows(uniteStays(single(listed), r.lows(), lowGap))
}

// staysBeside moves the begin of stays to match stays cut by [staysAfter].
func staysBeside(stays []Stay, at, gap int64) []Stay {
	stays = slices.Clone(stays)
	for i := range stays {
		if s := &stays[i]; s.from() > at && s.from() <= at+gap && s.Viewing != markViewing {
			s.Length = s.At - at - 1
		}
	}
	return orNil(joinStays(stays, gap))
}

// counted returns the watches of r as they count, without those that another one includes.
func (r *Record) counted() []WatchedTime {
	ws := r.watches()
	return orNil(slices.DeleteFunc(slices.Clone(ws), func(w WatchedTime) bool {
		return w.Watched == 0 || slices.ContainsFunc(ws, func(o WatchedTime) bool { return o != w && w.within(o) })
	}))
}

// WithoutRemoval returns r for a history without the latest removal and without a restore after it. Restored
// content is dated at its own time; removed content stays lost.
func (r *Record) WithoutRemoval() *Record {
	m := *r
	m.Watches = r.counted()
	m.uncut()
	m.RemovedAt, m.Restored = 0, false
	if m.Original != 0 {
		m.Version, m.Original = m.Original, 0
	}
	return &m
}

// steps are the resolutions of [RestoredAt] by minimum age, in milliseconds.
var steps = []struct{ age, step int64 }{
	{0, 2 * minute}, {day, 15 * minute}, {week, 2 * hour}, {90 * day, 8 * week},
}

const (
	minute = 60_000
	hour   = 60 * minute
)

// RestoredAt returns the restore cut for a record last played at the given time, of which the removal at cut
// left nothing. It is up to [MaxLift] after cut and preserves the order of play across a history. Within
// a day before the cut the resolution is 2 minutes, within a week 15 minutes, within 90 days 2 hours. Beyond it is 8
// weeks, up to 20 years.
func RestoredAt(played, cut int64) int64 {
	age, passed := min(max(cut-played, 0), mostLifted), int64(0)
	for i, s := range steps {
		until := int64(mostLifted)
		if i+1 < len(steps) {
			until = steps[i+1].age
		}
		passed += max(min(age, until)-s.age, 0) / s.step
	}
	return cut + MaxLift - passed
}

// MaxLift is the longest delay of [RestoredAt] after the cut, in milliseconds.
const MaxLift = 24*30 + 6*24*4 + 83*12 + (20*365-90)*day/(8*week)

// mostLifted is the age up to which restored records keep their order.
const mostLifted = 20 * 365 * day

// Oldest returns the earliest time in the record, in Unix milliseconds: of a report, viewing, sum or decision.
func (r *Record) Oldest() int64 {
	oldest := r.PlayedAt()
	for _, at := range []int64{r.ResumePoint.Version.Time(), r.DurationVersion.Time(), r.oldestMeta().Time(), r.UnknownVersion.Time(), r.Dismissed.Time(), r.PlaysBeforeAt, r.WatchedBeforeAt, r.oldestViewing()} {
		if at > 0 {
			oldest = min(oldest, at)
		}
	}
	for _, p := range r.Peaks[:min(len(r.Peaks), 1)] { // oldest first, like the other lists
		oldest = min(oldest, p.At)
	}
	reported := func(s Stay) int64 {
		if s.from() == r.RemovedAt+1 { // moved by staysAfter: not a report's time
			return s.At
		}
		return s.from()
	}
	for _, s := range r.Completions {
		oldest = min(oldest, reported(s))
	}
	for _, l := range r.Lows {
		oldest = min(oldest, reported(l.stay()))
	}
	for _, s := range r.Starts[:min(len(r.Starts), 1)] {
		oldest = min(oldest, s.At)
	}
	for _, w := range r.Watches[:min(len(r.Watches), 1)] {
		oldest = min(oldest, w.At)
	}
	return oldest
}

// Bounds of an imported record, in addition to those of an event.
const (
	// MaxUnknown limits the fields of a newer version, in bytes.
	MaxUnknown = 4096
	// maxBefore limits the plays and the milliseconds of unlisted viewings.
	maxBefore = 1 << 50
	// MaxAhead is the clock skew allowed for future times, in milliseconds.
	MaxAhead = 5000
)

// Validate checks a record from outside, such as a backup. It returns a [FieldError] with the export's field
// name for the first value that no fold of legal events produces. now is in Unix milliseconds; a record last
// played after it is invalid.
func (r *Record) Validate(now int64) error {
	switch {
	case r.State < StatePlaying || r.State > StateFinished:
		return Invalid("state", "want playing, paused, stopped or finished")
	case int(r.own()&3) != r.State.rank() || r.Original != 0 && r.Version&3 != RankProgress:
		return Invalid("state", "want the one that its report leaves behind")
	case r.Version.Time() > now+MaxAhead:
		return Invalid("event_time", "in the future")
	case r.RemovedAt < 0 || r.RemovedAt >= r.Version.Time():
		return Invalid("details.removed", "want a time before event_time")
	case r.Original != 0 && (!r.Restored || r.Original.Time() > r.RemovedAt):
		return Invalid("played_at", "want a time up to the removal, of a record that was restored")
	case r.Restored && r.RemovedAt == 0:
		return Invalid("details.restored", "want the removal that it was restored after")
	case r.Dismissed < 0 || r.Dismissed.Time() > now+MaxAhead || r.Dismissed&3 > RankOffered:
		return Invalid("details.dismissed", "want a time of the past")
	case r.Dismissed != 0 && r.Dismissed.Time() <= r.RemovedAt && !r.Restored:
		return Invalid("details.dismissed", "want no time up to the removal")
	case len(r.Told) > maxTold:
		return Invalid("details.told", fmt.Sprintf("want at most %d bytes", maxTold))
	case len(r.Unknown) > MaxUnknown:
		return Invalid("details.unknown", fmt.Sprintf("want at most %d bytes", MaxUnknown))
	}
	return cmp.Or(validateTime("event_time", r.Version.Time()), validateTime("details.dismissed", r.Dismissed.Time()), r.event().Validate(), r.validateMeta(), r.validateVersions(), r.validatePeaks(), r.validatePlays(), r.validateWatches(), r.validateViewings())
}

// rank returns the rank of the reports that lead to this state.
func (s State) rank() int {
	if s == StateStopped || s == StateFinished {
		return RankStop
	}
	return RankProgress
}

// validateVersions checks the fields with versions of their own.
func (r *Record) validateVersions() error {
	for _, v := range []struct {
		field   string
		version Version
		present bool
	}{
		{"details.duration", r.DurationVersion, r.Duration != 0},
		{"details.unknown", r.UnknownVersion, r.Unknown != ""},
		{"details.resume_point", r.ResumePoint.Version, r.ResumePoint.Version != 0 || r.ResumePoint.Position != 0},
	} {
		if v.present != (v.version != 0) {
			return Invalid(v.field, "want a time, and what is of it")
		}
		if err := r.validateAt(v.field, v.version.Time(), v.present); err != nil {
			return err
		}
	}
	if r.ResumePoint.Version != 0 && !r.Early {
		return Invalid("details.resume_point", "want it beside an early report only")
	}
	return validatePosition("details.resume_point.position_ms", r.ResumePoint.Position)
}

// validateMeta checks each entry as part of an earlier event.
func (r *Record) validateMeta() error {
	if (r.Meta == "") != (r.MetaVersion == 0) {
		return Invalid("details.meta", "want a time, and what is of it")
	}
	if err := r.Meta.validate(MaxMetaKeys * MaxMetaBytes); err != nil {
		return err
	}
	for _, e := range r.MetaEntries() {
		if err := r.validateAt("details.meta", e.Version.Time(), true); err != nil {
			return err
		}
	}
	return nil
}

// validateAt checks a past time of the record.
func (r *Record) validateAt(field string, at int64, present bool) error {
	switch {
	case !present:
		return nil
	case at > r.Version.Time():
		return Invalid(field, "want no time after event_time")
	case at <= r.RemovedAt && !r.Restored:
		return Invalid(field, "want no time up to the removal")
	case at == 0:
		return Invalid(field, wantTime)
	}
	return validateTime(field, at)
}

// validatePosition allows positions beyond the duration: a report may not know the duration, and reads bound
// the position.
func validatePosition(field string, position int64) error {
	if position < 0 || position > MaxPosition {
		return Invalid(field, "want 0 to 2592000000 milliseconds (30 days)")
	}
	return nil
}

func (r *Record) validatePeaks() error {
	if len(r.Peaks) > MaxPeaks {
		return Invalid("details.peaks", fmt.Sprintf("want at most %d", MaxPeaks))
	}
	top := r.solid()
	for i, p := range slices.Backward(r.Peaks) {
		field := fmt.Sprintf("details.peaks[%d]", i)
		if err := cmp.Or(r.validateAt(field, p.At, true), validatePosition(field, p.Position)); err != nil {
			return err
		}
		if p.Position <= top || i+1 < len(r.Peaks) && p.At >= r.Peaks[i+1].At {
			return Invalid(field, "want positions beyond every later one, furthest first")
		}
		top = p.Position
	}
	return validatePosition("details.position_ms", r.Position)
}

func (r *Record) validatePlays() error {
	if r.PlaysBefore > maxBefore || r.PlaysBefore > 0 && r.PlaysBeforeAt == 0 {
		return Invalid("details.plays_before", "want a number, and the time of the last of them")
	}
	return cmp.Or(r.validateAt("details.plays_before", r.PlaysBeforeAt, r.PlaysBeforeAt != 0),
		r.validateStays("details.completions", r.Completions, bounds{MaxCompletions, endGap}), r.validateLows(), r.validateStarts())
}

// bounds are the maximum number of stays and the minimum gap between stays of one viewing.
type bounds struct {
	most int
	gap  int64
}

func (r *Record) validateStays(field string, stays []Stay, b bounds) error {
	if len(stays) > b.most {
		return Invalid(field, fmt.Sprintf("want at most %d", b.most))
	}
	for i, s := range stays {
		name := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case i > 0 && compareStays(stays[i-1], s) >= 0:
			return Invalid(name, "want the oldest first, those of one time by their viewings")
		case s.Length < 0 || s.Length > s.At:
			return Invalid(name+".length_ms", "want a number, at least 0")
		case s.Duration < 0 || s.Duration > MaxPosition:
			return Invalid(name+".duration_ms", "want 0 to 2592000000 milliseconds (30 days)")
		case s.Reach < 0 || s.Reach > MaxPosition:
			return Invalid(name+".reach_ms", "want 0 to 2592000000 milliseconds (30 days)")
		case s.Began < 0 || s.Began > s.At:
			return Invalid(name+".began", "want a time up to that of the report")
		case field == "details.completions" && s.At <= r.PlaysBeforeAt:
			return Invalid(name, "want it after those that are not listed")
		case slices.ContainsFunc(stays[:i], func(o Stay) bool {
			return o.Viewing == s.Viewing && o.At >= s.from()-b.gap && o.Duration <= s.Duration && (s.Sure || !o.Sure)
		}):
			return Invalid(name, "the viewing is listed already")
		}
		if err := cmp.Or(r.validateAt(name, s.At, true), r.validateAt(name+".length_ms", s.from(), true), validatePosition(name+".position_ms", s.Position)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) validateLows() error {
	stays := make([]Stay, 0, len(r.Lows))
	for _, l := range r.Lows {
		stays = append(stays, l.stay())
	}
	return r.validateStays("details.lows", stays, bounds{MaxLows, lowGap})
}

func (r *Record) validateStarts() error {
	if len(r.Starts) > MaxStarts {
		return Invalid("details.starts", fmt.Sprintf("want at most %d", MaxStarts))
	}
	for i, s := range r.Starts {
		name := fmt.Sprintf("details.starts[%d]", i)
		if i > 0 && r.Starts[i-1].At > s.At {
			return Invalid(name, "want the oldest first")
		}
		if s.Duration < 0 || s.Duration > MaxPosition {
			return Invalid(name+".duration_ms", "want 0 to 2592000000 milliseconds (30 days)")
		}
		if err := cmp.Or(r.validateAt(name, s.At, true), validatePosition(name+".position_ms", s.Position)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) validateWatches() error {
	if r.WatchedBefore < 0 || r.WatchedBefore > maxBefore || (r.WatchedBefore == 0) != (r.WatchedBeforeAt == 0) {
		return Invalid("details.watched_before", "want milliseconds, and the time of the last of them")
	}
	for i, w := range r.Watches {
		field := fmt.Sprintf("details.watches[%d].", i)
		switch {
		case w.Speed != 0 && (w.Speed < MinSpeed || w.Speed > MaxSpeed):
			return Invalid(field+"speed", "want 0.25 to 4")
		case w.Began < MinTime || w.Began >= w.At:
			return Invalid(field+"started_at", "want a time before the report")
		case w.Watched < 1 || w.Watched > min(playable(w.At-w.Began, w.Speed), MaxPosition):
			return Invalid(field+"watched_ms", "want 1 to 2592000000 milliseconds (30 days), and no more than the time since the start times the speed")
		}
	}
	return cmp.Or(r.validateAt("details.watched_before", r.WatchedBeforeAt, r.WatchedBefore > 0),
		r.validateReports())
}

func (r *Record) validateViewings() error {
	if most := r.mostViewings(); len(r.Viewings) > most {
		return Invalid("details.viewings", fmt.Sprintf("want at most %d", most))
	}
	if r.Start != (Peak{}) && (!r.listed() || r.Start.At > r.PlayedAt()) {
		return Invalid("details.start", "want a time up to the latest report, of the same viewing")
	}
	if err := r.validateStart("details.start", r.Start); err != nil {
		return err
	}
	for i := range r.Viewings {
		if err := r.validateViewing(i); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) validateStart(field string, start Peak) error {
	return cmp.Or(r.validateAt(field+".time", start.At, start != Peak{}), validatePosition(field+".position_ms", start.Position))
}

func (r *Record) validateViewing(i int) error {
	v, field := r.Viewings[i], fmt.Sprintf("details.viewings[%d]", i)
	if i > 0 && cmp.Or(cmp.Compare(r.Viewings[i-1].Version, v.Version), cmp.Compare(r.Viewings[i-1].Viewing, v.Viewing)) >= 0 {
		return Invalid(field, "want the oldest first, those of one time by their viewings")
	}
	switch own := r.listed() && viewing(r.Session, r.Device) == v.Viewing; {
	case own || slices.ContainsFunc(r.Viewings[:i], func(o Viewing) bool { return o.Viewing == v.Viewing }):
		return Invalid(field, "the viewing is listed already, or that of the latest report")
	case v.State < StatePlaying || v.State > StateFinished || int(v.Version&3) != v.State.rank():
		return Invalid(field+".state", "want playing, paused, stopped or finished")
	case len(v.Device) > MaxLabel || !utf8.ValidString(v.Device):
		return Invalid(field+".device", "want at most 128 bytes of UTF-8")
	case v.Start.At > v.Version.Time():
		return Invalid(field+".start", "want no time after that of the latest report")
	}
	return cmp.Or(r.validateAt(field, v.Version.Time(), true), validatePosition(field+".position_ms", v.Position), r.validateStart(field+".start", v.Start))
}

func (w WatchedTime) before(o WatchedTime) bool {
	return w.At < o.At || w.At == o.At && w.Viewing < o.Viewing
}

// validateReports checks that the watched times are a possible result of a fold.
func (r *Record) validateReports() error {
	if len(r.Watches) > MaxWatches {
		return Invalid("details.watches", fmt.Sprintf("want at most %d", MaxWatches))
	}
	for i, w := range r.Watches {
		name := fmt.Sprintf("details.watches[%d]", i)
		if err := r.validateAt(name, w.At, true); err != nil {
			return err
		}
		if w.At <= r.WatchedBeforeAt {
			return Invalid(name, "want it after those that are not listed")
		}
		if i > 0 && !r.Watches[i-1].before(w) {
			return Invalid(name, "want the oldest first, those of one time by their viewings")
		}
		if slices.ContainsFunc(r.Watches[:i], func(o WatchedTime) bool { return w.Viewing == o.Viewing && w.Watched >= o.Watched }) {
			return Invalid(name, "the viewing is listed already")
		}
	}
	return nil
}
