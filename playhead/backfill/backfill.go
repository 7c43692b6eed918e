// Package backfill copies histories: old files into a service, and whole stores into others.
//
// A [Source] yields items in a fixed order. A [Target] folds them in with [history.Merge], so a repeated item changes
// nothing. [Copy] runs them: one reader, and a lane per share of the users. The window remembers which items are
// settled; a checkpoint holds its oldest end, with the counts up to there.
package backfill

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
)

// Item is one row of a file, or one content of a store: an event, a record, or a user's own state.
type Item struct {
	Key    history.Key
	Event  *history.Event  // the last report of a viewing
	Record *history.Record // a whole record, also a tombstone
	User   *history.User   // clear marks and pause, for the key of a user

	Place imports.Place
	// Outcome is Skipped or Rejected for an item that is not copied, for the Reason.
	Outcome Outcome
	Reason  string
	// Mark is the place in the source after the item; empty where a copy cannot go on.
	Mark string
}

// At returns the time of an item's latest event, in Unix milliseconds; 0 for a user's state.
func (i *Item) At() int64 {
	switch {
	case i.Event != nil:
		return i.Event.At
	case i.Record != nil:
		return i.Record.PlayedAt()
	}
	return 0
}

// Outcome is what became of an item.
type Outcome uint8

// Outcomes of items. Zero means that it is not known yet.
const (
	New        Outcome = iota + 1 // the target's content changed.
	Older                         // the target has something newer, and the item adds nothing.
	Equal                         // the target has it.
	Deleted                       // it was deleted or cleared later.
	Expired                       // older than the retention.
	Summarised                    // older than the retention, and part of a summary.
	Paused                        // of a time without recording.
	Brief                         // shorter than its class keeps.
	Skipped                       // no viewing, or not asked for.
	Rejected                      // cannot be read, or is invalid.
	Missing                       // verify: the target has no record of it.
	Different                     // verify: the target's record lacks it.
	Moved                         // verify: it was not in the target at first, and was a moment later.
	Repaired                      // verify: it was not in the target.
	Readable                      // nothing was asked to take it.
	outcomes
)

var outcomeNames = [outcomes]string{
	"", "new", "older", "equal", "deleted", "expired", "summarised", "paused", "brief", "skipped", "rejected",
	"missing", "different", "moved", "repaired", "readable",
}

// String returns the outcome's name in reports.
func (o Outcome) String() string { return outcomeNames[o] }

// Source yields items.
type Source interface {
	// Items yields the items after a mark, in the same order in every run, then at most one error.
	Items(ctx context.Context, after string) iter.Seq2[Item, error]
	// Identity names the content, such as by hashes of files, so that a mark is never used for another one. It fails if
	// the source cannot be read again.
	Identity() (string, error)
}

// Sized is a source that knows how much of it was read.
type Sized interface {
	// Read returns the read and the total size, in any unit; a total of 0 is unknown. It is safe for concurrent use.
	Read() (read, total int64)
}

// Target takes items.
type Target interface {
	// Fold folds items in and returns a result per item, in order. All items of a user come in order, from one call at a
	// time. It waits for a target that does not answer, up to a bound, and then fails; a repetition changes nothing.
	Fold(ctx context.Context, items []Item) ([]Result, error)
}

// Result is the outcome of an item, with the reason if it was rejected.
type Result struct {
	Outcome Outcome
	Reason  string
}

// Filter selects items. The zero value takes all.
type Filter struct {
	Since, Until int64 // Unix milliseconds, inclusive; 0 is no bound
	Users        map[string]bool
	Types        map[uint32]bool
	// Sample is the share of users to take, above 0 and below 1; others take all. It takes the same users every time.
	Sample float64
}

// reason returns why an item is not asked for, "" if it is.
func (f *Filter) reason(i *Item) string {
	uid, _ := history.UserOf(i.Key.UID)
	at := i.At()
	switch {
	case len(f.Users) > 0 && !f.Users[uid]:
		return "another user"
	case f.Sample > 0 && f.Sample < 1 && float64(xxhash.Sum64String(uid)>>11)/(1<<53) >= f.Sample:
		return "not in the sample"
	case i.User != nil:
		return ""
	case len(f.Types) > 0 && !f.Types[i.Key.Object.Type]:
		return "another type"
	case f.Since > 0 && at < f.Since, f.Until > 0 && at > f.Until:
		return "another time"
	}
	return ""
}

// Discard is a target that takes everything and keeps nothing.
type Discard struct{}

// Fold implements [Target].
func (Discard) Fold(_ context.Context, items []Item) ([]Result, error) {
	results := make([]Result, len(items))
	for i := range results {
		results[i].Outcome = Readable
	}
	return results, nil
}

func nowMS() int64 { return time.Now().UnixMilli() }

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

// Beats yields the reports of a viewing: its start if known, a heartbeat every period (milliseconds, 0 for none), and its
// last report. Only that one has metadata.
func Beats(last *history.Event, period int64) iter.Seq[*history.Event] {
	return func(yield func(*history.Event) bool) {
		if last.StartedAt > 0 && last.StartedAt < last.At {
			e := *last
			e.Meta = ""
			length := last.At - last.StartedAt
			played := last.Watched
			if played == 0 {
				played = length
			}
			from := max(last.Position-played, 0)
			e.Kind, e.At, e.Position, e.Watched = history.KindStart, last.StartedAt, from, 0
			if !yield(&e) {
				return
			}
			e.Kind = history.KindProgress
			for t := period; period > 0 && t < length; t += period {
				done := int64(float64(played) * float64(t) / float64(length))
				e.At, e.Position, e.Watched = last.StartedAt+t, from+min(done, last.Position-from), done
				if last.Watched == 0 {
					e.Watched = 0
				}
				if !yield(&e) {
					return
				}
			}
		}
		yield(last)
	}
}
