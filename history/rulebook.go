package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rulebook holds the rules of all types. The zero value, and nil, has the standard ones:
// begun at 5 %, done at 90 %, short below 300 s, and a grace of 10 s.
type Rulebook struct {
	all    *Rules // those of the types without any of their own, nil for the standard
	byType map[uint32]Rules
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

// ParseRules reads rules such as "grace=5s" for all types, and "3:done=95,short=1m" for
// one of them, which else has those for all. The error says what is wrong with which.
func ParseRules(texts []string) (*Rulebook, error) {
	b := &Rulebook{byType: make(map[uint32]Rules)}
	for _, own := range []bool{false, true} { // those for all first: the others begin with them
		for _, text := range texts {
			typ, values, found := strings.Cut(text, ":")
			if found != own {
				continue
			}
			if !found {
				typ, values = "0", text
			}
			if err := b.add(typ, values); err != nil {
				return nil, fmt.Errorf("rules %q: %w", text, err)
			}
		}
	}
	return b, nil
}

func (b *Rulebook) add(typ, values string) error {
	n, err := strconv.ParseUint(typ, 10, 32)
	if err != nil {
		return fmt.Errorf("want the number of a type before the colon, got %q", typ)
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
