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

// OpenQueue opens a fresh queue with one group of jobs. member opens a member of the group: [Queue] calls it
// once, [QueueGroup] several times. t.Cleanup closes everything.
type OpenQueue func(t *testing.T) (p history.Publisher, member func(t *testing.T) history.Consumer)

// Queue tests the contracts of [history.Publisher] and [history.Consumer] with one member. Adapters with larger
// groups also pass [QueueGroup].
func Queue(t *testing.T, open OpenQueue) {
	tests := map[string]func(queueCase){
		"what is committed does not come again":        queueCase.committed,
		"what is not committed comes again":            queueCase.uncommitted,
		"a commit covers what was fetched before":      queueCase.commitCovers,
		"a commit out of order takes nothing back":     queueCase.commitLate,
		"a generation that is over commits nothing":    queueCase.commitOver,
		"a job on its way out may still commit":        queueCase.commitLast,
		"a partition keeps its order":                  queueCase.order,
		"one publish is one message per partition":     queueCase.messages,
		"a message that would be too large is divided": queueCase.large,
		"a single member assignments every bucket":     queueCase.buckets,
		"the end of the context is not an error":       queueCase.context,
		"an error of handle comes back":                queueCase.handleError,
		"nothing to publish is no message":             queueCase.empty,
		"nothing is sent without time to send it":      queueCase.noTime,
		"many goroutines publish at once":              queueCase.concurrent,
		"a record travels with its key":                queueCase.records,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(queueCase{t, p, member(t)})
		})
	}
}

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

// QueueGroup tests groups with several members. It is for adapters that pass [Queue] and divide the buckets
// between processes.
func QueueGroup(t *testing.T, open OpenQueue) {
	tests := map[string]func(*queueGroup){
		"members divide the buckets":                (*queueGroup).divide,
		"a member takes over from one that left":    (*queueGroup).takeOver,
		"what a member held comes again elsewhere":  (*queueGroup).redeliver,
		"nothing is lost while members come and go": (*queueGroup).rebalance,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			p, member := open(t)
			run(&queueGroup{T: t, publisher: p, open: member, owned: map[int][]history.Bucket{}, got: map[history.Announcement]bool{}, changed: make(chan struct{})})
		})
	}
}

func (g *queueGroup) divide() {
	for range 2 {
		g.join()
	}
	g.until("two members own all buckets", func() bool { return g.members() == 2 && g.whole() })
	keys := everyBucket(1)
	g.publish(keys)
	g.until("all keys came to the owners of their buckets", func() bool { return g.has(keys) })
}

func (g *queueGroup) takeOver() {
	leave := g.join()
	g.join()
	g.until("two members own all buckets", func() bool { return g.members() == 2 && g.whole() })
	leave()
	g.until("one member owns all buckets", func() bool { return g.members() == 1 && g.whole() })
	keys := everyBucket(1)
	g.publish(keys)
	g.until("all keys came to it", func() bool { return g.has(keys) })
}

// redeliver has one member fetch everything and keep it until a rebalance. Then its context is done, its
// assignment is void, and everything is redelivered.
func (g *queueGroup) redeliver() {
	keys := everyBucket(1)
	g.publish(keys)
	var old history.Assignment
	var held []history.Delivery
	holding := make(chan struct{})
	g.run(func(ctx context.Context, assignment history.Assignment) (err error) {
		if old != nil {
			return g.receive(ctx, assignment)
		}
		if held, err = fetchKeys(ctx, assignment, len(keys)); err != nil {
			return err
		}
		old = assignment
		close(holding)
		<-ctx.Done()
		return ctx.Err()
	})
	<-holding
	g.join()
	g.until("all keys came again", func() bool { return g.has(keys) })
	if err := old.Commit(g.Context(), held[len(held)-1]); err == nil {
		g.Error("commit succeeded in an ended generation")
	}
}

// rebalance publishes during three rebalances.
func (g *queueGroup) rebalance() {
	var keys []history.Announcement
	round := func() {
		more := everyBucket(len(keys) + 1)
		keys = append(keys, more...)
		for part := range slices.Chunk(more, 256) {
			g.publish(part)
		}
	}
	g.join()
	round()
	leave := g.join()
	round()
	g.until("the second member works", func() bool { return g.members() == 2 && g.has(keys) })
	g.join()
	round()
	leave()
	round()
	g.until("all keys came", func() bool { return g.has(keys) })
}

// queueGroup is a group under test, with its members' assignments and received keys.
type queueGroup struct {
	*testing.T
	publisher history.Publisher
	open      func(t *testing.T) history.Consumer

	mu      sync.Mutex
	joined  int
	owned   map[int][]history.Bucket // by member, during its generations
	got     map[history.Announcement]bool
	changed chan struct{} // closed and replaced at each change
}

// join adds a member that commits what it receives.
func (g *queueGroup) join() (leave func()) { return g.run(g.receive) }

// run adds a member with its own handle, until leave or the end of the test.
func (g *queueGroup) run(handle func(context.Context, history.Assignment) error) (leave func()) {
	c := g.open(g.T)
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	g.joined++
	id, done := g.joined, make(chan struct{})
	go func() {
		defer close(done)
		err := c.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
			g.note(func() { g.owned[id] = assignment.Buckets() })
			defer g.note(func() { delete(g.owned, id) })
			return handle(ctx, assignment)
		})
		if err != nil {
			g.Errorf("member %d: %v", id, err)
		}
	}()
	leave = func() {
		cancel()
		<-done
	}
	g.Cleanup(leave)
	return leave
}

// receive records and commits everything until its context is done.
func (g *queueGroup) receive(ctx context.Context, assignment history.Assignment) error {
	for {
		d, err := assignment.Fetch(ctx)
		if err != nil {
			return err
		}
		for _, k := range d.Keys {
			if b := history.BucketOf(k.Key.UID); !slices.Contains(assignment.Buckets(), b) {
				g.Errorf("key %v of bucket %d came to a member that does not own it", k.Key, b)
			}
		}
		if err := assignment.Commit(ctx, d); err != nil {
			return err
		}
		g.note(func() {
			for _, k := range d.Keys {
				g.got[k] = true
			}
		})
	}
}

func (g *queueGroup) note(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// until waits for a condition, evaluated under the lock.
func (g *queueGroup) until(what string, condition func() bool) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		g.mu.Lock()
		ok, changed := condition(), g.changed
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	g.Fatalf("not in %v: %s", patience, what)
}

func (g *queueGroup) members() int { return len(g.owned) }

// whole reports whether every bucket has one owner.
func (g *queueGroup) whole() bool {
	var all []history.Bucket
	for _, b := range g.owned {
		all = append(all, b...)
	}
	slices.Sort(all)
	return slices.Equal(all, history.AllBuckets())
}

func (g *queueGroup) has(keys []history.Announcement) bool {
	for _, k := range keys {
		if !g.got[k] {
			return false
		}
	}
	return true
}

func (g *queueGroup) publish(keys []history.Announcement) {
	g.Helper()
	queueCase{T: g.T, Publisher: g.publisher}.publish(keys)
}
