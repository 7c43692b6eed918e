package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lifetimes of records after their event, in milliseconds.
const (
	// DefaultRetention is 90 days.
	DefaultRetention = 90 * day
	// Forever is 68 years, the lifetime that HBase calls forever.
	Forever = (1<<31 - 1) * 1000

	// minRetention leaves a job time to archive a record before it expires.
	minRetention = hour
	day          = 24 * hour
	week         = 7 * day
)

// Life is how long records live.
type Life struct {
	// Keep is the lifetime of a record after its event, in milliseconds.
	Keep int64 `json:"keep_ms"`
	// Since is the time up to which everything has expired, however long Keep is: deletes of that time may be
	// forgotten. Unix milliseconds, 0 unless records lived shorter before.
	Since int64 `json:"since_ms,omitempty"`
}

// ErrRetention means that a process and a store disagree about how long records live, or about the classes of types.
var ErrRetention = errors.New("other settings")

// errMoved is the [ErrRetention] of a type in another class.
var errMoved = fmt.Errorf("%w", ErrRetention)

// Retention is how long a store keeps its records, and in which classes. The store remembers it, and every process must
// agree; see [Rulebook.Agree].
type Retention struct {
	Life
	Classes map[string]Life `json:"classes,omitempty"`
	// Types is the class of each type that has one; nil is unknown.
	Types map[uint32]string `json:"types"`
	// Changed is when records last began to live longer, Unix milliseconds; 0 if never.
	Changed int64 `json:"changed_ms,omitempty"`
}

// ParseRetention parses a lifetime of records, such as 90d, 36h or forever, and returns milliseconds.
func ParseRetention(text string) (int64, error) {
	if text == "forever" {
		return Forever, nil
	}
	ms, err := days(text)
	if err == nil && (ms < minRetention || ms >= Forever || ms%1000 != 0) {
		err = fmt.Errorf("want 1h or more, or forever, got %q", text)
	}
	return ms, err
}

// FormatRetention is the inverse of [ParseRetention].
func FormatRetention(ms int64) string {
	switch {
	case ms >= Forever:
		return "forever"
	case ms%day == 0:
		return strconv.FormatInt(ms/day, 10) + "d"
	case ms%hour == 0:
		return strconv.FormatInt(ms/hour, 10) + "h"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// String names the lifetimes, such as "90d, previews 14d".
func (r Retention) String() string {
	all := []string{FormatRetention(r.Keep)}
	for _, name := range slices.Sorted(maps.Keys(r.Classes)) {
		all = append(all, name+" "+FormatRetention(r.Classes[name].Keep))
	}
	return strings.Join(all, ", ")
}

// Retention returns the lifetimes under these rules.
func (b *Rulebook) Retention() Retention {
	r := Retention{Life: b.life(""), Types: b.types()}
	for _, c := range b.Classes() {
		if r.Classes == nil {
			r.Classes = make(map[string]Life)
		}
		r.Classes[c.Name] = b.life(c.Name)
	}
	return r
}

// life returns the lifetime of a class's records, "" for those without a class.
func (b *Rulebook) life(class string) Life {
	if b == nil {
		return Life{Keep: DefaultRetention}
	}
	stored := b.stored.Load()
	if stored == nil {
		stored = new(Retention)
	}
	keep := cmp.Or(b.keep, stored.Keep, DefaultRetention)
	if i := slices.IndexFunc(b.classes, func(c Class) bool { return c.Name == class }); i >= 0 {
		return Life{Keep: cmp.Or(b.classes[i].Keep, keep), Since: stored.Classes[class].Since}
	}
	return Life{Keep: keep, Since: stored.Since}
}

// Agree compares the retention of a store with the rules, which take over its [Life.Since]. Rules without a
// retention take over the whole, and those of a tool the classes; see [Rulebook.Adopt]. It returns the retention to
// store, with classes that the store did not know. It fails if any lifetime differs, or the class of any type: readers
// would not find the records of that type.
func (b *Rulebook) Agree(stored Retention) (Retention, error) {
	if b.keep != 0 && b.keep != stored.Keep {
		return stored, fmt.Errorf("%w: its records live %s, not %s", ErrRetention, FormatRetention(stored.Keep), FormatRetention(b.keep))
	}
	switch {
	case b.strict && stored.Types != nil:
		if err := b.agreeTypes(stored.Types); err != nil {
			return stored, err
		}
	case !b.strict && len(stored.Classes) > 0:
		b.adopt(stored)
	}
	all := stored
	all.Classes, all.Types = maps.Clone(stored.Classes), b.types()
	for _, c := range b.classes {
		was, known := stored.Classes[c.Name]
		keep := cmp.Or(c.Keep, stored.Keep)
		if known && was.Keep != keep {
			return stored, fmt.Errorf("%w: its records of the class %s live %s, not %s", ErrRetention, c.Name, FormatRetention(was.Keep), FormatRetention(keep))
		}
		if all.Classes == nil {
			all.Classes = make(map[string]Life)
		}
		was.Keep = keep
		all.Classes[c.Name] = was
	}
	b.stored.Store(&all)
	return all, nil
}

// Command is the operator's command that gives a store these lifetimes, and these classes if it has no data of types that
// change theirs. where names the store, such as --data DIR.
func (b *Rulebook) Command(where string) string {
	return "playhead retention set " + FormatRetention(b.life("").Keep) + " " + where
}

// Remedy adds what an operator can do to an error of [Rulebook.Agree]. where is as for Command; archive names the store
// as a source of copies.
func (b *Rulebook) Remedy(err error, where, archive string) error {
	if errors.Is(err, errMoved) {
		return fmt.Errorf("%w: give --rules as before, or copy it with these rules: %s; without data of the type: %s --rules RULES",
			err, CopyCommand(archive), b.Command(where))
	}
	return fmt.Errorf("%w: give --retention and --rules as before, or change it: %s", err, b.Command(where))
}

// CopyCommand is the operator's command that moves types between classes.
func CopyCommand(archive string) string {
	return "playhead replay copy --from archive:" + archive + " --to archive:NEW --rules RULES"
}

// Change returns the retention that replaces a stored one under these rules, at a time in Unix milliseconds. What has
// expired by then stays expired.
func (b *Rulebook) Change(stored Retention, now int64) Retention {
	next := Retention{Life: stored.become(b.life("").Keep, now), Classes: maps.Clone(stored.Classes), Types: stored.Types, Changed: stored.Changed}
	if b.strict {
		next.Types = b.types()
	}
	for _, c := range b.Classes() {
		was, known := stored.Classes[c.Name]
		keep := cmp.Or(c.Keep, next.Keep)
		if !known {
			was = Life{Keep: keep}
		}
		if next.Classes == nil {
			next.Classes = make(map[string]Life)
		}
		next.Classes[c.Name] = was.become(keep, now)
	}
	if stored.Shortens(next) {
		next.Changed = now
	}
	return next
}

func (l Life) become(keep, now int64) Life {
	return Life{Keep: keep, Since: l.expired(now)}
}

// expired returns the time up to which records have expired at now; 0 if none.
func (l Life) expired(now int64) int64 { return max(now-l.Keep, l.Since, 0) }

// Under returns the rules with the lifetimes of another retention.
func (b *Rulebook) Under(r Retention) *Rulebook {
	u := &Rulebook{all: b.all, byType: b.byType, classes: slices.Clone(b.classes), classOf: b.classOf, strict: b.strict, keep: r.Keep}
	for i := range u.classes {
		if l, known := r.Classes[u.classes[i].Name]; known {
			u.classes[i].Keep = l.Keep
		}
	}
	u.stored.Store(&r)
	return u
}

// Changed returns when records last began to live longer, in Unix milliseconds; 0 if never.
func (b *Rulebook) Changed() int64 {
	if r := b.stored.Load(); r != nil {
		return r.Changed
	}
	return 0
}

// Shortens reports whether records of any class live shorter than in another retention.
func (r Retention) Shortens(was Retention) bool {
	shorter := r.Keep < was.Keep
	for name, l := range r.Classes {
		w, known := was.Classes[name]
		shorter = shorter || known && l.Keep < w.Keep
	}
	return shorter
}

// TTL returns the lifetime of a type's record after its event, in milliseconds.
func (b *Rulebook) TTL(typ uint32) int64 {
	return b.lifeOf(b.ClassOf(typ)).Keep
}

// NamespaceTTL returns the lifetime of a namespace's record after its event, in milliseconds.
func (b *Rulebook) NamespaceTTL(namespace string) int64 {
	return b.Life(namespace).Keep
}

// Expired returns the time up to which records of a type have expired at now, both in Unix milliseconds; 0 if none.
func (b *Rulebook) Expired(typ uint32, now int64) int64 { return b.lifeOf(b.ClassOf(typ)).expired(now) }

// NamespaceExpired is Expired for a namespace.
func (b *Rulebook) NamespaceExpired(namespace string, now int64) int64 {
	return b.Life(namespace).expired(now)
}

// Life returns the lifetime of a namespace's records.
func (b *Rulebook) Life(namespace string) Life { return b.lifeOf(b.ofNamespace(namespace)) }

func (b *Rulebook) lifeOf(c *Class) Life {
	if c == nil {
		return b.life("")
	}
	return b.life(c.Name)
}

// Summarized reports whether the namespace has summaries. A class with a TTL below the archive's has none:
// nothing outlives its TTL.
func (b *Rulebook) Summarized(namespace string) bool {
	return b.NamespaceTTL(namespace) == b.life("").Keep
}

// SummaryAge is the age of records at their first summary, in milliseconds: a week before expiry, or half their life
// if that is shorter. A record that changes in that time is summarized again.
func (b *Rulebook) SummaryAge() int64 {
	keep := b.life("").Keep
	return keep - min(week, keep/2)
}

// SummaryBefore is the time before which records are summarized at now, both in Unix milliseconds. It is never 0.
func (b *Rulebook) SummaryBefore(now int64) int64 {
	return max(now-b.SummaryAge(), b.life("").Since, 2)
}

// ValidateSummaryTTL fails unless d is a valid lifetime of summaries; 0 is the store's default.
func (b *Rulebook) ValidateSummaryTTL(d time.Duration) error {
	switch keep := b.life("").Keep; {
	case d == 0:
	case keep >= Forever:
		return Invalid("summary", "want none: records live forever")
	case keep < 4*day: // archives look for old records once a day
		return Invalid("summary", "want records that live 4d or longer")
	case d.Milliseconds() < keep:
		return Invalid("summary", fmt.Sprintf("want at least %dh, for as long as there are records", (keep+hour-1)/hour))
	}
	return nil
}
