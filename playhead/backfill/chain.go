package backfill

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
)

// Chain is a source of several others, one after the other.
type Chain []Source

// Items implements [Source]. A mark is the number of a source and its mark.
func (c Chain) Items(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		number, mark, _ := strings.Cut(after, ":")
		first, _ := strconv.Atoi(number)
		for n := first; n < len(c); n++ {
			for item, err := range c[n].Items(ctx, mark) {
				if item.Mark != "" {
					item.Mark = strconv.Itoa(n) + ":" + item.Mark
				}
				if !yield(item, err) || err != nil {
					return
				}
			}
			mark = ""
		}
	}
}

// Identity implements [Source].
func (c Chain) Identity() (string, error) {
	var all []string
	var errs []error
	for _, s := range c {
		id, err := s.Identity()
		all, errs = append(all, id), append(errs, err)
	}
	return strings.Join(all, " "), errors.Join(errs...)
}

// Read implements [Sized], if the one source does.
func (c Chain) Read() (read, total int64) {
	if len(c) == 1 {
		if s, ok := c[0].(Sized); ok {
			return s.Read()
		}
	}
	return 0, 0
}
