package historytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

func (q queueCase) order() {
	var keys []history.Announcement
	for i := range 50 {
		keys = append(keys, announced("user", fmt.Sprint(i)))
		q.publish(keys[i:])
	}
	if got := q.receive(len(keys), true); !slices.Equal(got, keys) {
		q.Errorf("got %v, want objects 0 to 49 in order", got)
	}
}

func (q queueCase) messages() {
	keys := append(everyBucket(1), everyBucket(2)...)
	q.publish(keys)
	messages, size, partitions := 0, 0, map[int]int64{}
	q.generation(func(ctx context.Context, assignment history.Assignment) error {
		got, err := fetchKeys(ctx, assignment, len(keys))
		for _, d := range got {
			messages += d.Messages
			size += d.Bytes
			maps.Copy(partitions, d.Offsets)
		}
		return err
	})
	if messages == 0 || messages != len(partitions) {
		q.Errorf("%d messages in %d partitions, want one each", messages, len(partitions))
	}
	if size < 8*len(keys) {
		q.Errorf("%d keys counted as %d bytes", len(keys), size)
	}
}

// large publishes about 2 MiB to one partition, more than a broker accepts at once.
func (q queueCase) large() {
	keys := make([]history.Announcement, 15_000)
	for i := range keys {
		keys[i] = announced("user", strings.Repeat("x", 120)+fmt.Sprint(i))
	}
	q.publish(keys)
	var got []history.Delivery
	q.generation(func(ctx context.Context, assignment history.Assignment) (err error) {
		got, err = fetchKeys(ctx, assignment, len(keys))
		return err
	})
	if !slices.Equal(deliveredKeys(got), keys) {
		q.Errorf("%d keys came, want %d in order", len(deliveredKeys(got)), len(keys))
	}
	messages := 0
	for _, d := range got {
		messages += d.Messages
	}
	if messages < 2 {
		q.Errorf("%d messages for 2 MiB", messages)
	}
}

func (q queueCase) buckets() {
	q.generation(func(_ context.Context, assignment history.Assignment) error {
		if got := slices.Sorted(slices.Values(assignment.Buckets())); !slices.Equal(got, history.AllBuckets()) {
			q.Errorf("got %d buckets, want each of %d once", len(got), history.Buckets)
		}
		return nil
	})
}

func (q queueCase) context() {
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		cancel()
		d, err := assignment.Fetch(ctx) // from an empty queue
		if err == nil {
			q.Errorf("fetch returned %d keys of an empty queue", len(d.Keys))
		}
		return err
	})
	if err != nil {
		q.Errorf("got %v, want nil when the context is done", err)
	}
	if err := q.Consume(ctx, func(context.Context, history.Assignment) error { return nil }); err != nil {
		q.Errorf("got %v, want nil when the context was done before", err)
	}
}

func (q queueCase) handleError() {
	broken := errors.New("broken")
	for _, want := range []error{broken, nil} {
		ctx, cancel := context.WithTimeout(q.Context(), patience)
		defer cancel()
		err := q.Consume(ctx, func(context.Context, history.Assignment) error { return want })
		if !errors.Is(err, want) {
			q.Errorf("got %v, want what handle returned: %v", err, want)
		}
	}
}

func (q queueCase) empty() {
	q.publish(nil)
	q.nothingElse()
}

func (q queueCase) noTime() {
	ctx, cancel := context.WithCancel(q.Context())
	cancel()
	keys := everyBucket(1)
	unsent, err := q.Publish(ctx, keys)
	if err == nil {
		q.Error("publish past its deadline returned no error")
	}
	q.same(unsent, keys)
	q.nothingElse()
}

func (q queueCase) concurrent() {
	var wg sync.WaitGroup
	var keys []history.Announcement
	for round := range 8 {
		own := everyBucket(round + 1)
		keys = append(keys, own...)
		wg.Go(func() {
			for part := range slices.Chunk(own, 512) {
				q.publish(part)
			}
		})
	}
	q.same(q.receive(len(keys), true), keys)
	wg.Wait()
	q.nothingElse()
}

// records publishes keys, some with their contents.
func (q queueCase) records() {
	now, keys := hourAgo(), everyBucket(1)
	want := map[history.Key]*history.Record{}
	for i, k := range keys {
		if i%3 == 0 && !k.Key.IsUser() {
			r := cellAt(k.Key, now, int64(i)).Record.Successor(&history.User{CutTime: now + int64(i)})
			keys[i].Record, want[k.Key] = r, r
		}
	}
	q.publish(keys)
	for _, k := range q.receive(len(keys), true) {
		if !reflect.DeepEqual(k.Record, want[k.Key]) {
			q.Errorf("%s: got %+v, want %+v", k.Key, k.Record, want[k.Key])
		}
	}
}

// Rereader is a queue that retains committed messages, as the job needs it.
type Rereader interface {
	Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error
	CommitMetadata(ctx context.Context) ([]string, error)
}

// QueueReread is for adapters that pass [Queue] and whose members implement [Rereader].
func QueueReread(t *testing.T, open OpenQueue) {
	tests := map[string]func(queueCase){
		"what was committed is read again": queueCase.rereadCommitted,
		"only what was asked for comes":    queueCase.rereadBuckets,
		"what is older stays away":         queueCase.rereadSince,
		"a job goes on while it is read":   queueCase.rereadBesideAJob,
		"nothing is nothing":               queueCase.rereadNothing,
		"an error of use ends it":          queueCase.rereadError,
		"a memo goes with a commit":        queueCase.commitMetadata,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(queueCase{t, p, member(t)})
		})
	}
}

// reread returns the reread announcements of buckets since a time.
func (q queueCase) reread(buckets []history.Bucket, since time.Time) []history.Announcement {
	q.Helper()
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	var all []history.Announcement
	err := q.Consumer.(Rereader).Reread(ctx, buckets, since, func(_ context.Context, some []history.Announcement) error {
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

// rereadCommitted rereads before and after a commit, without affecting the group.
func (q queueCase) rereadCommitted() {
	start := time.Now()
	keys, more := withRecords(1), everyBucket(2)
	q.publish(keys)
	q.same(q.receive(len(keys), true), keys)
	q.publish(more)
	all := append(append([]history.Announcement(nil), keys...), more...)
	for range 2 {
		q.same(q.reread(history.AllBuckets(), start.Add(-time.Second)), all)
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
	q.same(q.reread(history.AllBuckets(), since), more)
	if got := q.reread(history.AllBuckets(), time.Now().Add(time.Hour)); len(got) != 0 {
		q.Errorf("got %d keys from the time to come", len(got))
	}
}

// rereadBesideAJob rereads in a generation that fetches and commits.
func (q queueCase) rereadBesideAJob() {
	keys := withRecords(1)
	q.publish(keys)
	q.generation(func(ctx context.Context, assignment history.Assignment) error {
		var wg sync.WaitGroup
		var again []history.Announcement
		wg.Go(func() { again = q.reread(assignment.Buckets(), time.Now().Add(-time.Hour)) })
		got, err := fetchKeys(ctx, assignment, len(keys))
		wg.Wait()
		q.same(again, keys)
		if err != nil {
			return err
		}
		return assignment.Commit(ctx, got[len(got)-1])
	})
	q.nothingElse()
}

func (q queueCase) rereadNothing() {
	if got := q.reread(history.AllBuckets(), time.Unix(0, 0)); len(got) != 0 {
		q.Errorf("got %d keys of an empty queue", len(got))
	}
}

func (q queueCase) rereadError() {
	q.publish(everyBucket(1))
	broken, calls := errors.New("broken"), 0
	err := q.Consumer.(Rereader).Reread(q.Context(), history.AllBuckets(), time.Now().Add(-time.Hour), func(context.Context, []history.Announcement) error {
		calls++
		return broken
	})
	if !errors.Is(err, broken) || calls != 1 {
		q.Errorf("got %v after %d calls, want that of the first", err, calls)
	}
}

// commitMetadata commits partitions with one commit metadata, then with another.
func (q queueCase) commitMetadata() {
	commitMetadata := func() []string {
		all, err := q.Consumer.(Rereader).CommitMetadata(q.Context())
		if err != nil {
			q.Error(err)
		}
		return slices.Compact(slices.Sorted(slices.Values(all)))
	}
	if got := commitMetadata(); len(got) > 0 {
		q.Errorf("before the first commit: got %q", got)
	}
	for round, text := range []string{"", "one", "two 2 \n2"} {
		keys := everyBucket(round + 1)
		q.publish(keys)
		q.generation(func(ctx context.Context, assignment history.Assignment) error {
			got, err := fetchKeys(ctx, assignment, len(keys))
			if err != nil {
				return err
			}
			d := got[len(got)-1]
			d.CommitMetadata = text
			return assignment.Commit(ctx, d)
		})
		if got := commitMetadata(); !slices.Equal(got, []string{text}) {
			q.Errorf("after a commit: got %q, want %q", got, text)
		}
	}
}
