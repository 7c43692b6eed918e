package historytest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// QueueReread is for adapters that pass [Queue] and whose members are a
// [history.Rereader].
func QueueReread(t *testing.T, open OpenQueue) {
	tests := map[string]func(queueCase){
		"what was committed is read again": queueCase.rereadCommitted,
		"only what was asked for comes":    queueCase.rereadBuckets,
		"what is older stays away":         queueCase.rereadSince,
		"a job goes on while it is read":   queueCase.rereadBesideAJob,
		"nothing is nothing":               queueCase.rereadNothing,
		"an error of use ends it":          queueCase.rereadError,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(queueCase{t, p, member(t)})
		})
	}
}

// reread returns what comes again of buckets since a time.
func (q queueCase) reread(buckets []history.Bucket, since time.Time) []history.Announcement {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	var all []history.Announcement
	err := q.Consumer.(history.Rereader).Reread(ctx, buckets, since, func(_ context.Context, some []history.Announcement) error {
		all = append(all, some...)
		return nil
	})
	if err != nil {
		q.Errorf("reread: %v", err)
	}
	return all
}

// withRecords returns keys in every bucket, each object with its content.
func withRecords(round int) []history.Announcement {
	keys, now := everyBucket(round), hourAgo()
	for i, k := range keys {
		if !k.Key.IsUser() {
			keys[i].Record = cellAt(k.Key, now, int64(i)).Record.Successor(nil)
		}
	}
	return keys
}

// rereadCommitted reads twice, before and after a commit, and leaves the group alone.
func (q queueCase) rereadCommitted() {
	start := time.Now()
	keys, more := withRecords(1), everyBucket(2)
	q.publish(keys)
	q.same(q.receive(len(keys), true), keys)
	q.publish(more)
	all := append(append([]history.Announcement(nil), keys...), more...)
	for range 2 {
		q.same(q.reread(allBuckets(), start.Add(-time.Second)), all)
	}
	q.same(q.receive(len(more), true), more)
	q.nothingElse()
}

func (q queueCase) rereadBuckets() {
	keys := withRecords(1)
	q.publish(keys)
	var buckets []history.Bucket
	var want []history.Announcement
	for _, k := range keys {
		if b := history.BucketOf(k.Key.UID); b%3 == 0 {
			buckets, want = append(buckets, b), append(want, k)
		}
	}
	q.same(q.reread(buckets, time.Now().Add(-time.Hour)), want)
	if got := q.reread(nil, time.Now().Add(-time.Hour)); len(got) != 0 {
		q.Errorf("got %d keys of no bucket", len(got))
	}
}

func (q queueCase) rereadSince() {
	keys, more := everyBucket(1), withRecords(2)
	q.publish(keys)
	since := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond)
	time.Sleep(time.Until(since))
	q.publish(more)
	q.same(q.reread(allBuckets(), since), more)
	if got := q.reread(allBuckets(), time.Now().Add(time.Hour)); len(got) != 0 {
		q.Errorf("got %d keys from the time to come", len(got))
	}
}

// rereadBesideAJob reads in a generation that fetches and commits.
func (q queueCase) rereadBesideAJob() {
	keys := withRecords(1)
	q.publish(keys)
	q.generation(func(ctx context.Context, claim history.Claim) error {
		var wg sync.WaitGroup
		var again []history.Announcement
		wg.Go(func() { again = q.reread(claim.Buckets(), time.Now().Add(-time.Hour)) })
		got, err := fetchKeys(ctx, claim, len(keys))
		wg.Wait()
		q.same(again, keys)
		if err != nil {
			return err
		}
		return claim.Commit(ctx, got[len(got)-1])
	})
	q.nothingElse()
}

func (q queueCase) rereadNothing() {
	if got := q.reread(allBuckets(), time.Unix(0, 0)); len(got) != 0 {
		q.Errorf("got %d keys of an empty queue", len(got))
	}
}

func (q queueCase) rereadError() {
	q.publish(everyBucket(1))
	broken, calls := errors.New("broken"), 0
	err := q.Consumer.(history.Rereader).Reread(q.Context(), allBuckets(), time.Now().Add(-time.Hour), func(context.Context, []history.Announcement) error {
		calls++
		return broken
	})
	if !errors.Is(err, broken) || calls != 1 {
		q.Errorf("got %v after %d calls, want that of the first", err, calls)
	}
}
