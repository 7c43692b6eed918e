package sim

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// cacheDoor is the cache as a process reaches it.
type cacheDoor struct{ *process }

var (
	_ history.Cache  = cacheDoor{}
	_ history.Ledger = cacheDoor{}
)

// serviceDoor is the cache as a service reaches it.
type serviceDoor struct{ cacheDoor }

// Node returns the only node. Warm-up workers call it one after the other: each takes the users that wait at that
// moment.
func (d serviceDoor) Node(b history.Bucket) string {
	var callers [5]uintptr
	for _, pc := range callers[:runtime.Callers(3, callers[:])] {
		if strings.HasSuffix(runtime.FuncForPC(pc).Name(), "/read.(*warmer).work") {
			d.await("warm " + strconv.Itoa(int(b)))
		}
	}
	return ""
}

func (d cacheDoor) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if len(keys) == 0 {
		return nil
	}
	keys, entries := append([]history.Key(nil), keys...), make([]history.Entry, len(keys))
	d.w.do(ctx, &exchange{
		proc: d.process, what: "load", keys: keys,
		run: func(i int) {
			entries[i] = d.w.cache.load(keys[i])
		},
		fail: func(i int, err error) { entries[i] = history.Entry{Err: err} },
	})
	return entries
}

// Write may land late, except for a partial birth that has already landed. Landing again would restore its
// revision, and late writes based on it would count as whole.
func (d cacheDoor) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if len(writes) == 0 {
		return nil
	}
	writes = append([]history.Write(nil), writes...)
	outcomes, keys := make([]history.Outcome, len(writes)), make([]history.Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	x := &exchange{
		proc: d.process, what: "apply", keys: keys,
		run: func(i int) {
			was := d.w.cache.load(writes[i].Key)
			if outcomes[i] = d.w.cache.apply(writes[i]); outcomes[i].Status == history.Applied && d.w.counting != nil {
				d.w.counting.deleted(&was, &writes[i])
			}
			if d.w.traced() {
				d.w.tracef("        . %s %s", d.w.write(writes[i]), d.w.outcome(outcomes[i]))
			}
		},
		fail: func(i int, err error) { outcomes[i] = history.Outcome{Err: err} },
		late: func(i int) {
			if w := writes[i]; w.Base == 0 && w.Record.Partial && d.w.cache.knows(w.Record.Revision) {
				return
			}
			o := d.w.cache.apply(writes[i])
			if d.w.traced() {
				d.w.tracef("        . %s %s", d.w.write(writes[i]), d.w.outcome(o))
			}
		},
	}
	d.w.do(ctx, x)
	return outcomes
}

// single is an exchange of one key.
func (p *process) single(ctx context.Context, what string, k history.Key, run func(late bool)) (err error) {
	p.w.do(ctx, &exchange{
		proc: p, what: what, keys: []history.Key{k},
		run:  func(int) { run(false) },
		fail: func(_ int, e error) { err = e },
		late: func(int) { run(true) },
	})
	return err
}

// read is a read-only exchange of one key.
func (p *process) read(ctx context.Context, what string, k history.Key, run func()) (err error) {
	p.w.do(ctx, &exchange{
		proc: p, what: what, keys: []history.Key{k},
		run:  func(int) { run() },
		fail: func(_ int, e error) { err = e },
	})
	return err
}

func (d cacheDoor) Clear(ctx context.Context, uid string, c history.Clear) (until int64, err error) {
	err = d.single(ctx, "clear", history.UserKey(uid), func(late bool) {
		got, _ := d.w.cache.Clear(ctx, uid, c)
		if !late {
			until = got
		}
		if d.w.traced() {
			d.w.tracef("        . cleared %s type %d up to %d", uid, c.Type, got)
		}
	})
	return until, err
}

func (d cacheDoor) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	var refused error
	err := d.single(ctx, "pause", history.UserKey(uid), func(late bool) {
		got := d.w.cache.Pause(ctx, uid, from, to)
		if !late {
			refused = got
		}
		if d.w.traced() {
			d.w.tracef("        . pause of %s from %+v to %+v: %v", uid, from, to, got)
		}
	})
	return cmp.Or(err, refused)
}

func (d cacheDoor) Warm(ctx context.Context, uid string, warmth history.WarmSet) error {
	return d.single(ctx, "warm", history.UserKey(uid), func(bool) {
		if d.w.traced() {
			d.w.tracef("        . warm %s: %d items, low watermark %d, cleared %v, pause %+v", uid, len(warmth.Items), warmth.LowWatermark.Time(), warmth.Cleared, warmth.Pause)
		}
		_ = d.w.cache.Warm(ctx, uid, warmth)
	})
}

func (d cacheDoor) List(ctx context.Context, uid string, q history.Query) (page history.Page, err error) {
	err = d.read(ctx, "list", history.UserKey(uid), func() { page, _ = d.w.cache.List(ctx, uid, q) })
	return page, err
}

// Changes creates a missing log, which is the same whenever it lands.
func (d cacheDoor) Changes(ctx context.Context, uid string, after uint64, limit int) (changes history.Changes, err error) {
	err = d.read(ctx, "changes", history.UserKey(uid), func() { changes, _ = d.w.cache.Changes(ctx, uid, after, limit) })
	return changes, err
}

func (d cacheDoor) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) (keys []history.Key, err error) {
	err = d.read(ctx, "overdue", history.Key{}, func() { keys, _ = d.w.cache.Overdue(ctx, buckets, age, limit) })
	return keys, err
}

func (d cacheDoor) Backlog(ctx context.Context, buckets []history.Bucket) (found []history.Backlog, err error) {
	err = d.read(ctx, "backlog", history.Key{}, func() { found, _ = d.w.cache.Backlog(ctx, buckets) })
	return found, err
}

func (d cacheDoor) MarkClean(ctx context.Context, contents []history.Content) (err error) {
	if len(contents) == 0 {
		return nil
	}
	contents = append([]history.Content(nil), contents...)
	keys := make([]history.Key, len(contents))
	for i := range contents {
		keys[i] = contents[i].Key
	}
	markClean := func(i int) { d.w.cache.markClean(contents[i]) }
	d.w.do(ctx, &exchange{
		proc: d.process, what: "mark_clean", keys: keys,
		run: markClean, late: markClean,
		fail: func(_ int, e error) { err = e },
	})
	return err
}

func (d cacheDoor) Trim(ctx context.Context, uids []string) (err error) {
	keys := make([]history.Key, len(uids))
	for i, uid := range uids {
		keys[i] = history.UserKey(uid)
	}
	trim := func(i int) { _ = d.w.cache.Trim(ctx, []string{keys[i].UID}) }
	d.w.do(ctx, &exchange{
		proc: d.process, what: "trim", keys: keys,
		run: trim, late: trim,
		fail: func(_ int, e error) { err = e },
	})
	return err
}

// archiveDoor is the archive as a process reaches it.
type archiveDoor struct{ *process }

var _ history.Archive = archiveDoor{}

// Put may land after the cache has lost the content. It does not land after later content of the key is archived:
// Playhead promises nothing then. PutUser behaves alike.
func (d archiveDoor) Put(ctx context.Context, cells []history.Cell) []error {
	if len(cells) == 0 {
		return nil
	}
	cells = append([]history.Cell(nil), cells...)
	errs, keys := make([]error, len(cells)), make([]history.Key, len(cells))
	for i := range cells {
		keys[i] = cells[i].Key
	}
	put := func(i int) {
		d.w.archive.put(cells[i])
		if d.w.cache.made[cells[i].Record.Revision] {
			d.w.archived[keys[i]] = true
		}
		if d.w.traced() {
			d.w.tracef("        . put %s %s", keys[i], d.w.content(cells[i].Record))
		}
	}
	late := func(i int) {
		if d.w.cache.knows(cells[i].Record.Revision) || !d.w.archived[keys[i]] {
			put(i)
		}
	}
	bad := false
	d.w.do(ctx, &exchange{
		proc: d.process, what: "put", keys: keys,
		run: put, late: late,
		fail: func(i int, err error) { errs[i], bad = err, true },
	})
	if !bad {
		return nil
	}
	return errs
}

func (d archiveDoor) Get(ctx context.Context, keys []history.Key) (entries []history.Entry, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys, entries = append([]history.Key(nil), keys...), make([]history.Entry, len(keys))
	d.w.do(ctx, &exchange{
		proc: d.process, what: "get", keys: keys,
		run:  func(i int) { entries[i] = d.w.archive.get(keys[i]) },
		fail: func(_ int, e error) { err = e },
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (d archiveDoor) Page(ctx context.Context, uid string, q history.Query) (page history.Page, err error) {
	err = d.read(ctx, "page", history.UserKey(uid), func() { page, _ = d.w.archive.Page(ctx, uid, q) })
	return page, err
}

// userLands reports whether an abandoned put of a user's state lands. A put from before a cache loss does not
// land after a warm-up of the user, nor after later state is archived.
func (w *World) userLands(uid string, revision uint64) bool {
	k := history.UserKey(uid)
	return w.cache.knows(revision) || !w.archived[k] && !w.cache.load(k).User.Warm
}

func (d archiveDoor) PutUser(ctx context.Context, uid string, u history.User) error {
	return d.single(ctx, "put user", history.UserKey(uid), func(late bool) {
		if late && !d.w.userLands(uid, u.Revision) {
			return
		}
		if d.w.cache.made[u.Revision] {
			d.w.archived[history.UserKey(uid)] = true
		}
		if d.w.traced() {
			d.w.tracef("        . put user %s: cleared %v, pause %+v", uid, u.Cleared, u.Pause)
		}
		_ = d.w.archive.PutUser(ctx, uid, u)
	})
}

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
