package historytest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// OpenQueue opens a fresh queue with one group of jobs. member opens a member of the group: [Queue] calls it
// once, [QueueGroup] several times. t.Cleanup closes everything.
type OpenQueue func(t *testing.T) (p history.Publisher, member func(t *testing.T) history.Consumer)

type queueCase struct {
	*testing.T
	history.Publisher
	history.Consumer
}

func (q queueCase) committed() {
	keys := everyBucket(1)
	q.publish(keys)
	q.same(q.receive(len(keys), true), keys)
	q.nothingElse()
}

func (q queueCase) uncommitted() {
	keys := everyBucket(1)
	q.publish(keys)
	for range 2 {
		q.same(q.receive(len(keys), false), keys)
	}
	q.same(q.receive(len(keys), true), keys)
	q.nothingElse()
}

func (q queueCase) commitCovers() {
	early, late := everyBucket(1), everyBucket(2)
	q.generation(func(ctx context.Context, assignment history.Assignment) error {
		q.publish(early)
		got, err := fetchKeys(ctx, assignment, len(early))
		if err != nil {
			return err
		}
		q.publish(late)
		if _, err := fetchKeys(ctx, assignment, len(late)); err != nil {
			return err
		}
		return assignment.Commit(ctx, got[len(got)-1])
	})
	q.same(q.receive(len(late), true), late)
	q.nothingElse()
}

func (q queueCase) commitLate() {
	keys := everyBucket(1)
	q.generation(func(ctx context.Context, assignment history.Assignment) error {
		var all []history.Delivery
		for half := range slices.Chunk(keys, len(keys)/2) {
			q.publish(half)
			got, err := fetchKeys(ctx, assignment, len(half))
			if err != nil {
				return err
			}
			all = append(all, got...)
		}
		return errors.Join(assignment.Commit(ctx, all[len(all)-1]), assignment.Commit(ctx, all[0]))
	})
	q.nothingElse()
}

func (q queueCase) commitOver() {
	keys := everyBucket(1)
	q.publish(keys)
	var old history.Assignment
	var got []history.Delivery
	q.generation(func(ctx context.Context, assignment history.Assignment) (err error) {
		old = assignment
		got, err = fetchKeys(ctx, assignment, len(keys))
		return err
	})
	if err := old.Commit(q.Context(), got[len(got)-1]); err == nil {
		q.Error("commit succeeded after its generation")
	}
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	if d, err := old.Fetch(ctx); err == nil || ctx.Err() != nil {
		q.Errorf("a fetch after its generation: %d keys, error %v; want an error at once", len(d.Keys), err)
	}
	q.same(q.receive(len(keys), true), keys)
}

func (q queueCase) commitLast() {
	keys := everyBucket(1)
	q.publish(keys)
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		got, err := fetchKeys(ctx, assignment, len(keys))
		if err != nil {
			return err
		}
		cancel()
		<-ctx.Done()
		if err := assignment.Commit(context.WithoutCancel(ctx), got[len(got)-1]); err != nil {
			q.Errorf("commit before handle returns: %v", err)
		}
		return ctx.Err()
	})
	if err != nil {
		q.Errorf("consume: got %v, want nil once the context is done", err)
	}
	q.nothingElse()
}

// patience bounds the wait for a queue, which may first form a group, or a feed. Only failed tests reach it.
const patience = time.Minute

// announced returns the announcement of an object.
func announced(uid, id string) history.Announcement {
	return history.Announcement{Key: history.Key{UID: uid, Object: history.Object{ID: id, Type: 1}}}
}

// everyBucket returns two keys of one user in every bucket, and thus some in every partition: an object's and
// the user's. Each round has its own users.
func everyBucket(round int) []history.Announcement {
	var keys []history.Announcement
	seen := make([]bool, history.Buckets)
	for i := 0; len(keys) < 2*history.Buckets; i++ {
		uid := fmt.Sprintf("user%d-%d", round, i)
		if b := history.BucketOf(uid); !seen[b] {
			seen[b] = true
			keys = append(keys, announced(uid, "100"), history.Announcement{Key: history.UserKey(uid)})
		}
	}
	return keys
}

func (q queueCase) publish(keys []history.Announcement) {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	if unsent, err := q.Publish(ctx, keys); err != nil || len(unsent) != 0 {
		q.Errorf("publish %d keys: %d unsent, %v", len(keys), len(unsent), err)
	}
}

// generation runs handle as a job that leaves the group when handle returns. A rebalance runs it again.
func (q queueCase) generation(handle func(context.Context, history.Assignment) error) {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	if err := q.Consume(ctx, handle); err != nil {
		q.Fatalf("consume: %v", err)
	}
	if ctx.Err() != nil {
		q.Fatalf("consume: no end after %v", patience)
	}
}

// fetchKeys fetches n keys.
func fetchKeys(ctx context.Context, assignment history.Assignment, n int) ([]history.Delivery, error) {
	var got []history.Delivery
	for n > 0 {
		d, err := assignment.Fetch(ctx)
		if err != nil {
			return got, err
		}
		got = append(got, d)
		n -= len(d.Keys)
	}
	return got, nil
}

// receive returns the next n keys in one generation, which commits them if commit is set.
func (q queueCase) receive(n int, commit bool) []history.Announcement {
	q.Helper()
	var got []history.Delivery
	q.generation(func(ctx context.Context, assignment history.Assignment) (err error) {
		if got, err = fetchKeys(ctx, assignment, n); err != nil || !commit {
			return err
		}
		return assignment.Commit(ctx, got[len(got)-1])
	})
	return deliveredKeys(got)
}

// nothingElse publishes once more into every partition and expects only that.
func (q queueCase) nothingElse() {
	q.Helper()
	last := everyBucket(1_000_000)
	q.publish(last)
	q.same(q.receive(len(last), true), last)
}

func deliveredKeys(deliveries []history.Delivery) []history.Announcement {
	var keys []history.Announcement
	for _, d := range deliveries {
		keys = append(keys, d.Keys...)
	}
	return keys
}

// same compares keys ignoring their order, which is defined only within a partition.
func (q queueCase) same(got, want []history.Announcement) {
	q.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, byKey)
	slices.SortFunc(want, byKey)
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			q.Fatalf("got %d keys, want %d; the first difference is %v, want %v", len(got), len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		q.Fatalf("got %d keys, want %d", len(got), len(want))
	}
}

func byKey(a, b history.Announcement) int {
	return strings.Compare(a.Key.String(), b.Key.String())
}
