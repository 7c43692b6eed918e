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
	q.generation(func(ctx context.Context, claim history.Claim) error {
		got, err := fetchKeys(ctx, claim, len(keys))
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

// testLarge publishes about 2 MiB for one partition, which no broker takes whole.
func (q queueCase) large() {
	keys := make([]history.Announcement, 15_000)
	for i := range keys {
		keys[i] = announced("user", strings.Repeat("x", 120)+fmt.Sprint(i))
	}
	q.publish(keys)
	var got []history.Delivery
	q.generation(func(ctx context.Context, claim history.Claim) (err error) {
		got, err = fetchKeys(ctx, claim, len(keys))
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
	q.generation(func(_ context.Context, claim history.Claim) error {
		if got := slices.Sorted(slices.Values(claim.Buckets())); !slices.Equal(got, allBuckets()) {
			q.Errorf("got %d buckets, want each of %d once", len(got), history.Buckets)
		}
		return nil
	})
}

func (q queueCase) context() {
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	err := q.Consume(ctx, func(ctx context.Context, claim history.Claim) error {
		cancel()
		d, err := claim.Fetch(ctx) // of an empty queue
		if err == nil {
			q.Errorf("fetch returned %d keys of an empty queue", len(d.Keys))
		}
		return err
	})
	if err != nil {
		q.Errorf("got %v, want nil when the context is done", err)
	}
	if err := q.Consume(ctx, func(context.Context, history.Claim) error { return nil }); err != nil {
		q.Errorf("got %v, want nil when the context was done before", err)
	}
}

func (q queueCase) handleError() {
	broken := errors.New("broken")
	for _, want := range []error{broken, nil} {
		ctx, cancel := context.WithTimeout(q.Context(), patience)
		defer cancel()
		err := q.Consume(ctx, func(context.Context, history.Claim) error { return want })
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
		q.Error("no error from a publish without time")
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

// records publishes keys with their contents among some without.
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
