package history

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Record returns the record of a single event under the standard [Rules]. It is partial: it lacks all earlier
// events.
func (e *Event) Record() *Record { return standard.Record(e) }

// Rules are the thresholds for one object type: songs differ from films.
type Rules struct {
	// Begun and Done are percentages of the duration: the least progress to offer for resuming, and the end.
	Begun, Done int64
	// Short is the minimum duration to offer for resuming, in milliseconds.
	Short int64
	// Grace is the age below which a session does not move the resume point, in milliseconds.
	Grace int64
}

var standard = Rules{Begun: 5, Done: 90, Short: 300_000, Grace: 10_000}

// Completes reports whether the event completes the viewing: by a finish, a position in the last part of a
// known duration, or the user's mark.
func (r Rules) Completes(e *Event) bool {
	return e.Kind == KindFinish || e.Kind == KindWatched ||
		e.Kind < KindDelete && e.Duration > 0 && e.Position*100 >= e.Duration*r.Done
}

// Completed reports whether the user left a visible record at its end, with nothing to resume. That is a
// finish, a position in the last part, or a completed viewing that went no further. An early start changes
// nothing. A second viewing stopped in the middle is not completed.
func (r Rules) Completed(rec *Record) bool {
	at, when := rec.resume()
	left, named, known := rec.leftBy()
	duration, after := rec.length()
	switch {
	case duration > 0 && at*100 >= duration*r.Done, after:
		return true
	case rec.Plays() == 0 || rec.completedAt(when):
		return rec.Plays() > 0
	case at < rec.Furthest(), known && !rec.completedBy(left):
		return false // watched again
	case named:
		return true
	}
	// The viewing cannot be distinguished from the completed one: it is unlisted, or one device reported both.
	// It counts as watched again if the time since the end suffices to play this far.
	return (when-rec.CompletedAt())*MaxSpeed < at*100
}

// Resume returns the player's start position in milliseconds: where the user left off, 0 if completed.
func (r Rules) Resume(rec *Record) int64 {
	if r.Completed(rec) {
		return 0
	}
	return rec.Resume()
}

// Unfinished reports whether a visible record qualifies for "continue watching": its resume point is in the
// middle of a long enough object. An unknown duration qualifies too. Dismissals are separate, see
// [Record.DismissedAt].
func (r Rules) Unfinished(rec *Record) bool {
	at, duration := r.Resume(rec), rec.Duration
	if rec.ResumesEarlier() { // an advertisement that has just begun says nothing about the film
		duration, _ = rec.length()
	}
	return at > 0 && (duration == 0 || duration >= r.Short && at*100 >= duration*r.Begun && at*100 < duration*r.Done)
}

// length returns the duration in milliseconds of the viewing that sets the resume point, by default the latest
// duration. It also returns whether that viewing ended there.
func (r *Record) length() (duration int64, ended bool) {
	_, when := r.resume()
	if viewing, _, known := r.leftBy(); known {
		duration, ended = r.left(viewing, when)
	}
	return cmp.Or(duration, r.Duration), ended
}

// early reports whether an event is from the first seconds of its session, as far as it says. Such a start may
// be a mistake. Seeks and finishes never are.
func (r Rules) early(e *Event) bool {
	switch {
	case e.Kind == KindSeek || e.Kind >= KindFinish:
		return false
	case e.Kind == KindStart:
		return true
	case e.StartedAt > 0:
		return e.At-e.StartedAt < r.Grace
	}
	return e.Position < r.Grace
}

// Rulebook holds the rules of all types, and how long records live. Nil and the zero value have the standard rules:
// begun at 5 %, done at 90 %, short below 300 s, a grace of 10 s. The zero value takes over the classes of a store.
type Rulebook struct {
	all     *Rules // For types without their own rules, nil for the standard.
	byType  map[uint32]Rules
	classes []Class
	classOf map[uint32]int // By type, index in classes.
	strict  bool           // Refuses a store with other classes, instead of taking over its classes.
	keep    int64          // Lifetime of records without a class, ms; 0 is that of the store, or 90 days.
	stored  atomic.Pointer[Retention]
}

// Of returns the rules of a type.
func (b *Rulebook) Of(typ uint32) Rules {
	if b == nil {
		return standard
	}
	if r, ok := b.byType[typ]; ok {
		return r
	}
	if b.all != nil {
		return *b.all
	}
	return standard
}

// ParseRules parses rules: "grace=5s" for all types, "3:done=95,short=1m" for one type on top of those,
// "previews: types=7,8 keep=14d" for a class. The error quotes the faulty rule. The retention is that of
// [ParseRetention]; empty is that of the store.
func ParseRules(retention string, texts []string) (_ *Rulebook, err error) {
	b := &Rulebook{byType: make(map[uint32]Rules), classOf: make(map[uint32]int), strict: true}
	if retention != "" {
		if b.keep, err = ParseRetention(retention); err != nil {
			return nil, fmt.Errorf("retention: %w", err)
		}
	}
	for _, own := range []bool{false, true} { // rules for all types first: the others build on them
		for _, text := range texts {
			typ, values, found := strings.Cut(strings.TrimSpace(text), ":")
			if found != own {
				continue
			}
			if !found {
				typ, values = "0", typ
			}
			if err := b.add(typ, values); err != nil {
				return nil, fmt.Errorf("rules: %q: %w", text, err)
			}
		}
	}
	return b, nil
}

func (b *Rulebook) add(typ, values string) error {
	n, err := strconv.ParseUint(typ, 10, 32)
	if err != nil {
		return b.addClass(typ, values)
	}
	r := b.Of(uint32(n))
	for value := range strings.SplitSeq(values, ",") {
		if err := r.set(value); err != nil {
			return err
		}
	}
	switch {
	case r.Begun >= r.Done:
		return fmt.Errorf("begun at %d %% is not before done at %d %%", r.Begun, r.Done)
	case n == 0:
		b.all = &r
	default:
		b.byType[uint32(n)] = r
	}
	return nil
}

func (r *Rules) set(value string) (err error) {
	name, text, _ := strings.Cut(value, "=")
	switch name {
	case "begun":
		r.Begun, err = percent(text)
	case "done":
		r.Done, err = percent(text)
	case "short":
		r.Short, err = milliseconds(text)
	case "grace":
		r.Grace, err = milliseconds(text)
	default:
		return fmt.Errorf("want begun, done, short or grace, got %q", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func percent(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("want a percentage, 0 to 100, got %q", text)
	}
	return n, nil
}

func milliseconds(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("want a time such as 10s, got %q", text)
	}
	return d.Milliseconds(), nil
}
