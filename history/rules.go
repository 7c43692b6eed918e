package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Class is a set of object types with their own list, low watermark and TTL. Any number of its records evicts
// no records of other types from the cache.
type Class struct {
	Name  string
	Types []uint32
	// Keep is the lifetime of a record after its event, in milliseconds; 0 is the retention, and the most.
	Keep int64
	// List is the number of cached records per user; 0 is the limit without a class.
	List int
	// Least is the shortest viewing to record, in milliseconds.
	Least int64
	// ChangesOnly stores a report only if it changes the record; see [Rulebook.Known].
	ChangesOnly bool
}

// MaxClasses limits the classes: a change log token has a section for each and must fit into a URL.
const MaxClasses = 32

// Classes returns all classes.
func (b *Rulebook) Classes() []Class {
	if b == nil {
		return nil
	}
	return b.classes
}

// ClassOf returns the class of a type, nil if none.
func (b *Rulebook) ClassOf(typ uint32) *Class {
	if b == nil || len(b.classOf) == 0 {
		return nil
	}
	if i, ok := b.classOf[typ]; ok {
		return &b.classes[i]
	}
	return nil
}

// ofNamespace returns the class of a namespace, nil for the default namespace and for an unknown class.
func (b *Rulebook) ofNamespace(namespace string) *Class {
	if b == nil || len(b.classes) == 0 {
		return nil
	}
	_, name := UserOf(namespace)
	if i := slices.IndexFunc(b.classes, func(c Class) bool { return c.Name == name }); i >= 0 {
		return &b.classes[i]
	}
	return nil
}

// NamespaceOf returns the uid of the namespace for a user's reports of a type.
func (b *Rulebook) NamespaceOf(uid string, typ uint32) string {
	if c := b.ClassOf(typ); c != nil {
		return NamespaceUID(uid, c.Name)
	}
	return uid
}

// Namespaces returns the uids of all namespaces of a user, the default one first.
func (b *Rulebook) Namespaces(uid string) []string {
	all := []string{uid}
	for _, c := range b.Classes() {
		all = append(all, NamespaceUID(uid, c.Name))
	}
	return all
}

// Home returns the key under which an object is stored, given its key in any of the user's namespaces. Nil rules know no
// other.
func (b *Rulebook) Home(k Key) Key {
	if user, _ := UserOf(k.UID); b != nil && !k.IsUser() {
		k.UID = b.NamespaceOf(user, k.Object.Type)
	}
	return k
}

// types returns the class of each type that has one.
func (b *Rulebook) types() map[uint32]string {
	all := make(map[uint32]string)
	for _, c := range b.Classes() {
		for _, typ := range c.Types {
			all[typ] = c.Name
		}
	}
	return all
}

// agreeTypes fails if the rules put a type into another class than the store.
func (b *Rulebook) agreeTypes(stored map[uint32]string) error {
	wanted := b.types()
	all := maps.Clone(stored)
	maps.Copy(all, wanted)
	for _, typ := range slices.Sorted(maps.Keys(all)) {
		if was, now := stored[typ], wanted[typ]; was != now {
			return fmt.Errorf("%w: its type %d is in %s, in the rules in %s", errMoved, typ, className(was), className(now))
		}
	}
	return nil
}

// Moves reports whether the rules put any type into another class than a store.
func (b *Rulebook) Moves(stored Retention) bool { return b.agreeTypes(stored.Types) != nil }

func className(name string) string {
	if name == "" {
		return "no class"
	}
	return "the class " + name
}

// Adopt makes rules without classes take over those of the store, as the zero value does. It is for tools: the classes
// change when a store is opened.
func (b *Rulebook) Adopt() *Rulebook {
	b.strict = false
	return b
}

// adopt takes over the classes of a store.
func (b *Rulebook) adopt(stored Retention) {
	b.classes, b.classOf = nil, make(map[uint32]int)
	for _, name := range slices.Sorted(maps.Keys(stored.Classes)) {
		b.classes = append(b.classes, Class{Name: name, Keep: stored.Classes[name].Keep})
	}
	for _, typ := range slices.Sorted(maps.Keys(stored.Types)) {
		i := slices.IndexFunc(b.classes, func(c Class) bool { return c.Name == stored.Types[typ] })
		b.classes[i].Types, b.classOf[typ] = append(b.classes[i].Types, typ), i
	}
}

// NamespaceList returns the number of cached records of a namespace: usual, unless the class sets another.
func (b *Rulebook) NamespaceList(namespace string, usual int) int {
	if c := b.ofNamespace(namespace); c != nil {
		return cmp.Or(c.List, usual)
	}
	return usual
}

// NamespaceLog returns the change log size of a namespace: its number of cached records, at least usual. A
// shorter log forces apps to reread all namespaces more often.
func (b *Rulebook) NamespaceLog(namespace string, usual int) int {
	return max(b.NamespaceList(namespace, usual), usual)
}

// Brief reports whether an event's viewing is too short to record so far. Its length is the watched time, else
// the age of the session, else the position. Deletes and marks are never too short.
func (b *Rulebook) Brief(e *Event) bool {
	c := b.ClassOf(e.Key.Object.Type)
	switch {
	case c == nil || c.Least == 0 || e.Kind == KindDelete || e.Kind.Marks():
		return false
	case e.StartedAt > 0 && e.Watched > 0:
		return e.Watched < c.Least
	case e.StartedAt > 0:
		return e.At-e.StartedAt < c.Least
	}
	return e.Kind == KindStart || e.Position < c.Least
}

// Known reports whether an event of a class with ChangesOnly repeats a record: same state and position, and the
// same duration and metadata if given. Session and device do not count. An event after half of the TTL is a
// change, so a record in use does not expire.
func (b *Rulebook) Known(r *Record, e *Event) bool {
	c := b.ClassOf(e.Key.Object.Type)
	return c != nil && c.ChangesOnly && r != nil && e.Kind != KindDelete && !e.Kind.Marks() &&
		r.State == e.Kind.state() && r.Position == e.Position &&
		(e.Duration == 0 || r.Duration == e.Duration) && r.Meta.says(e.Meta) &&
		e.At >= r.Version.Time() && e.At < r.Version.Time()+b.lifeOf(c).Keep/2
}

// addClass parses a class such as "types=7,8 keep=14d list=200 least=2s".
func (b *Rulebook) addClass(name, values string) error {
	if !legalClass(name) {
		return fmt.Errorf("want the number of a type before the colon, or the name of a class (at most 32 of a-z, 0-9 and -, a letter first), got %q", name)
	}
	if slices.ContainsFunc(b.classes, func(c Class) bool { return c.Name == name }) {
		return fmt.Errorf("the class %q is there twice", name)
	}
	if len(b.classes) == MaxClasses {
		return fmt.Errorf("want at most %d classes", MaxClasses)
	}
	c, given := Class{Name: name, Keep: b.keep}, make(map[string]bool)
	for value := range strings.FieldsSeq(values) {
		key, text, _ := strings.Cut(value, "=")
		if given[key] {
			return fmt.Errorf("%s is there twice", key)
		}
		given[key] = true
		if err := c.set(key, text); err != nil {
			return err
		}
	}
	most := b.keep
	if most == 0 {
		most = Forever
	}
	if given["keep"] && (c.Keep < 1000 || c.Keep > most) {
		return fmt.Errorf("keep: want 1s to %s, for which the archive keeps anything, got %s", FormatRetention(most), FormatRetention(c.Keep))
	}
	if !given["types"] {
		return errors.New("want the types of the class, such as types=7,8")
	}
	for _, typ := range c.Types {
		if other := b.ClassOf(typ); other != nil {
			return fmt.Errorf("the type %d is in the class %q already", typ, other.Name)
		}
	}
	b.classes = append(b.classes, c)
	for _, typ := range c.Types {
		b.classOf[typ] = len(b.classes) - 1
	}
	return nil
}

const (
	maxList  = 1_000_000
	maxLeast = time.Hour
)

func (c *Class) set(key, text string) (err error) {
	switch key {
	case "types":
		c.Types, err = types(text)
	case "keep":
		if c.Keep = Forever; text != "forever" {
			c.Keep, err = days(text)
		}
	case "list":
		if c.List, err = strconv.Atoi(text); err != nil || c.List < 1 || c.List > maxList {
			err = fmt.Errorf("want a number of records, 1 to %d, got %q", maxList, text)
		}
	case "least":
		if c.Least, err = milliseconds(text); err == nil && c.Least > maxLeast.Milliseconds() {
			err = fmt.Errorf("want at most 1h, got %q", text)
		}
	case "changes":
		if c.ChangesOnly = text == "only"; !c.ChangesOnly {
			err = fmt.Errorf("want only, got %q", text)
		}
	default:
		return fmt.Errorf("want types, keep, list, least or changes, got %q", key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func types(text string) (all []uint32, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(one, 10, 32)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("want numbers of types with commas between, got %q", text)
		}
		if slices.Contains(all, uint32(n)) {
			return nil, fmt.Errorf("the type %d is there twice", n)
		}
		all = append(all, uint32(n))
	}
	return all, nil
}

// days parses a duration with optional days, such as 14d, and returns milliseconds.
func days(text string) (int64, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("want a time such as 14d or 36h, got %q", text)
		}
		return int64(n) * 24 * 3600 * 1000, nil //nolint:gosec // of 16 bits
	}
	n, err := milliseconds(text)
	if err != nil {
		return 0, fmt.Errorf("want a time such as 14d or 36h, got %q", text)
	}
	return n, nil
}
