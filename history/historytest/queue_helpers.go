package historytest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// patience is how long a test waits for a queue that may have to form a group
// first, and for a feed. It only ends tests that have failed.
const patience = time.Minute

// announced returns the announcement of an object.
func announced(uid, id string) history.Announcement {
	return history.Announcement{Key: history.Key{UID: uid, Object: history.Object{ID: id, Type: 1}}}
}

// everyBucket returns two keys of one user in every bucket, and so some in every
// partition: an object's and the user's own. Other rounds have other users.
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

func allBuckets() []history.Bucket {
	b := make([]history.Bucket, history.Buckets)
	for i := range b {
		b[i] = history.Bucket(i)
	}
	return b
}

func (q queueCase) publish(keys []history.Announcement) {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	if unsent, err := q.Publish(ctx, keys); err != nil || len(unsent) != 0 {
		q.Errorf("publish %d keys: %d unsent, %v", len(keys), len(unsent), err)
	}
}

// generation runs handle as a job that leaves the group when handle returns. It
// runs again when the group was divided anew under it.
func (q queueCase) generation(handle func(context.Context, history.Claim) error) {
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

// fetchKeys fetches until n keys have come.
func fetchKeys(ctx context.Context, claim history.Claim, n int) ([]history.Delivery, error) {
	var got []history.Delivery
	for n > 0 {
		d, err := claim.Fetch(ctx)
		if err != nil {
			return got, err
		}
		got = append(got, d)
		n -= len(d.Keys)
	}
	return got, nil
}

// receive returns the next n keys, in one generation that commits them or does not.
func (q queueCase) receive(n int, commit bool) []history.Announcement {
	q.Helper()
	var got []history.Delivery
	q.generation(func(ctx context.Context, claim history.Claim) (err error) {
		if got, err = fetchKeys(ctx, claim, n); err != nil || !commit {
			return err
		}
		return claim.Commit(ctx, got[len(got)-1])
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

// same compares keys without their order, which holds only within a partition.
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
