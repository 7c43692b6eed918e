package historytest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// OpenQueue opens a fresh queue with one group of jobs. The function that it
// returns opens a member of that group; it is called once by [Queue] and several
// times by [QueueGroup]. Whatever was opened is closed by t.Cleanup.
type OpenQueue func(t *testing.T) (p history.Publisher, member func(t *testing.T) history.Consumer)

// Queue is what every [history.Publisher] and [history.Consumer] does, with one
// member in the group. An adapter whose groups have several members also passes
// [QueueGroup].
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
		"a single member claims every bucket":          queueCase.buckets,
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

// queueCase is one test of the suite.
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
	q.generation(func(ctx context.Context, claim history.Claim) error {
		q.publish(early)
		got, err := fetchKeys(ctx, claim, len(early))
		if err != nil {
			return err
		}
		q.publish(late)
		if _, err := fetchKeys(ctx, claim, len(late)); err != nil {
			return err
		}
		return claim.Commit(ctx, got[len(got)-1])
	})
	q.same(q.receive(len(late), true), late)
	q.nothingElse()
}

func (q queueCase) commitLate() {
	keys := everyBucket(1)
	q.generation(func(ctx context.Context, claim history.Claim) error {
		var all []history.Delivery
		for half := range slices.Chunk(keys, len(keys)/2) {
			q.publish(half)
			got, err := fetchKeys(ctx, claim, len(half))
			if err != nil {
				return err
			}
			all = append(all, got...)
		}
		return errors.Join(claim.Commit(ctx, all[len(all)-1]), claim.Commit(ctx, all[0]))
	})
	q.nothingElse()
}

func (q queueCase) commitOver() {
	keys := everyBucket(1)
	q.publish(keys)
	var old history.Claim
	var got []history.Delivery
	q.generation(func(ctx context.Context, claim history.Claim) (err error) {
		old = claim
		got, err = fetchKeys(ctx, claim, len(keys))
		return err
	})
	if err := old.Commit(q.Context(), got[len(got)-1]); err == nil {
		q.Error("a commit succeeded after its generation")
	}
	if d, err := old.Fetch(q.Context()); err == nil {
		q.Errorf("a fetch after its generation returned %d keys", len(d.Keys))
	}
	q.same(q.receive(len(keys), true), keys)
}

func (q queueCase) commitLast() {
	keys := everyBucket(1)
	q.publish(keys)
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	err := q.Consume(ctx, func(ctx context.Context, claim history.Claim) error {
		got, err := fetchKeys(ctx, claim, len(keys))
		if err != nil {
			return err
		}
		cancel()
		<-ctx.Done()
		if err := claim.Commit(context.WithoutCancel(ctx), got[len(got)-1]); err != nil {
			q.Errorf("commit before handle returns: %v", err)
		}
		return ctx.Err()
	})
	if err != nil {
		q.Errorf("consume: got %v, want nil once the context is done", err)
	}
	q.nothingElse()
}
