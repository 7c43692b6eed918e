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
