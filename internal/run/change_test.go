package run_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// TestOnChange asks something that changes, does not answer for a while, and changes
// again while what is to be done fails at first.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []string{"", "a", "a", "b", "b", "", "", "b", "c", "c", "c", "c"}
		asked, calls := 0, []int{}
		name := func(context.Context) (string, error) {
			asked++
			if at := min(asked, len(answers)) - 1; answers[at] != "" {
				return answers[at], nil
			}
			return "", errBroken
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := run.OnChange(0, name, func(context.Context) error {
			if calls = append(calls, asked); asked == 9 {
				return errBroken
			}
			return nil
		})(ctx)
		if want := []int{4, 9, 10}; !slices.Equal(calls, want) {
			t.Errorf("called after the answers %v, want %v", calls, want)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
	})
}
