package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

var errOver = errors.New("generation is over")

func partitionOf(k history.Key) int { return int(history.BucketOf(k.UID)) % partitions }

// publisher is the queue as a service reaches it.
type publisher struct{ *process }

var _ history.Publisher = publisher{}

// Publish implements [history.Publisher], with one message per partition.
func (p publisher) Publish(ctx context.Context, all []history.Announcement) (unsent []history.Announcement, err error) {
	var messages [partitions][]history.Announcement
	var keys []history.Key
	var parts []int
	for _, a := range all {
		messages[partitionOf(a.Key)] = append(messages[partitionOf(a.Key)], a)
	}
	for n := range messages {
		if len(messages[n]) == 0 {
			continue
		}
		// They come from a map. Sorting makes the run reproducible.
		slices.SortStableFunc(messages[n], func(a, b history.Announcement) int { return compareKeys(a.Key, b.Key) })
		keys, parts = append(keys, messages[n][0].Key), append(parts, n)
	}
	q := p.w.queue
	send := func(i int) {
		q.messages[parts[i]] = append(q.messages[parts[i]], message{time.Now(), messages[parts[i]]})
	}
	p.w.do(ctx, &exchange{
		proc: p.process, what: "publish", keys: keys,
		run: send, late: send,
		fail: func(i int, e error) { unsent, err = append(unsent, messages[parts[i]]...), e },
	})
	return unsent, err
}

// consumer is the queue as a job reaches it.
type consumer struct{ *process }

var _ history.Consumer = consumer{}

// Consume implements [history.Consumer].
func (c consumer) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	m := &member{proc: c.process, assignments: make(chan *assignment, 1)}
	q := c.w.queue
	c.w.mu.Lock()
	q.joining = append(q.joining, m)
	c.w.mu.Unlock()
	defer q.leave(m)
	for {
		select {
		case assignment := <-m.assignments:
			if err := handle(assignment.ctx, assignment); assignment.ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Reread implements [recovery.Rereader].
func (c consumer) Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	var found []history.Announcement
	epoch := c.w.epochs.Load()
	err := c.read(ctx, "reread", history.Key{}, func() {
		for p := range partitions {
			for _, m := range c.w.queue.messages[p] {
				if !m.at.Before(since) {
					found = append(found, m.keys...)
				}
			}
		}
	})
	if err == nil && len(found) > 0 {
		err = use(ctx, slices.DeleteFunc(found, func(a history.Announcement) bool {
			return !slices.Contains(buckets, history.BucketOf(a.Key.UID))
		}))
	}
	if err == nil {
		c.reread.Store(epoch)
	}
	return err
}

// CommitMetadata implements [recovery.Rereader].
func (c consumer) CommitMetadata(ctx context.Context) (commitMetadata []string, err error) {
	err = c.read(ctx, "memos", history.Key{}, func() {
		commitMetadata = nil
		for p, n := range c.w.queue.committed {
			if n > 0 {
				commitMetadata = append(commitMetadata, c.w.queue.commitMetadata[p])
			}
		}
	})
	return commitMetadata, err
}

// leave ends a membership. The member keeps its partitions until the next generation.
func (q *queue) leave(m *member) {
	q.w.mu.Lock()
	defer q.w.mu.Unlock()
	q.w.left = append(q.w.left, m)
}

// rebalance begins a generation and assigns every partition to a member.
func (q *queue) rebalance(d *dice) {
	q.generation++
	for _, m := range q.members {
		if m.assignment != nil {
			m.assignment.end()
			m.assignment = nil
		}
	}
	if len(q.members) == 0 {
		return
	}
	assignments := make([]*assignment, len(q.members))
	for i, m := range q.members {
		ctx, end := context.WithCancel(m.proc.ctx)
		assignments[i] = &assignment{queue: q, proc: m.proc, number: q.generation, ctx: ctx, end: end}
	}
	shift := d.n(len(assignments))
	for p := range partitions {
		c := assignments[(p+shift)%len(assignments)]
		c.owned, c.next[p] = append(c.owned, p), q.committed[p]
	}
	for i, m := range q.members {
		m.assignment = assignments[i]
		select {
		case <-m.assignments:
		default:
		}
		m.assignments <- assignments[i]
	}
}

// Buckets implements [history.Assignment].
func (c *assignment) Buckets() []history.Bucket {
	var buckets []history.Bucket
	for b := range history.Buckets {
		if slices.Contains(c.owned, b%partitions) {
			buckets = append(buckets, history.Bucket(b))
		}
	}
	return buckets
}

// Fetch implements [history.Assignment].
func (c *assignment) Fetch(ctx context.Context) (history.Delivery, error) {
	var d history.Delivery
	var err error
	q, over := c.queue, false
	q.w.do(ctx, &exchange{
		proc: c.proc, what: "fetch", keys: make([]history.Key, 1),
		ready: func() bool { return c.number != q.generation || c.waiting() },
		run: func(int) {
			if over = c.number != q.generation; !over {
				d = c.take()
			}
		},
		fail: func(_ int, e error) { err = e },
	})
	if over {
		return d, errOver
	}
	return d, err
}

func (c *assignment) waiting() bool {
	for _, p := range c.owned {
		if c.next[p] < len(c.queue.messages[p]) {
			return true
		}
	}
	return false
}

func (c *assignment) take() history.Delivery {
	d := history.Delivery{Offsets: make(map[int]int64)}
	for _, p := range c.owned {
		waiting := c.queue.messages[p][c.next[p]:]
		n := 0
		if len(waiting) > 0 {
			n = 1 + c.queue.w.src.below(streamOther, len(waiting))
		}
		for _, m := range waiting[:n] {
			d.Keys = append(d.Keys, m.keys...)
		}
		d.Messages += n
		c.next[p] += n
		d.Offsets[p] = int64(c.next[p])
	}
	return d
}

// Commit implements [history.Assignment].
func (c *assignment) Commit(ctx context.Context, d history.Delivery) (err error) {
	q := c.queue
	e := c.proc.single(ctx, "commit", history.Key{}, func(bool) {
		if c.number != q.generation {
			err = errOver
			return
		}
		for p, next := range d.Offsets {
			if int(next) > q.committed[p] {
				q.committed[p], q.commitMetadata[p] = int(next), d.CommitMetadata
			}
		}
	})
	return errors.Join(err, e)
}

func (q *queue) drained() bool {
	for p := range partitions {
		if q.committed[p] < len(q.messages[p]) {
			return false
		}
	}
	return true
}

// rewind moves the committed offsets back, by up to five messages.
func (q *queue) rewind(d *dice) {
	for p := range partitions {
		q.committed[p] -= d.n(min(q.committed[p], 5) + 1)
	}
}

// lose drops unread messages past their retention, except those with records.
func (q *queue) lose() {
	for p := range partitions {
		for i := q.committed[p]; i < len(q.messages[p]); i++ {
			q.messages[p][i].keys = slices.DeleteFunc(slices.Clone(q.messages[p][i].keys), func(a history.Announcement) bool { return a.Record == nil })
		}
	}
}
