package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
)

// In some seeds the jobs publish what records say, and two counters count it in an in-memory HBase. The owner of the
// topic changes while the former one still counts. Each HBase call is an exchange, after which a counter may die.

// counting is the topic, its counters, and what the judge expects.
type counting struct {
	w          *World
	store      *hbasefake.Store
	reader     *hbase.Counters // of the judge
	counters   [2]*process
	topic      [][]byte // messages of one statement each
	committed  int
	owner      int // of counters
	generation int
	said       map[history.Key]*said
}

// said is what the topic says of a user and an object, by the times of the last reports. It has the latest statement,
// and what earlier ones said up to its removal.
type said struct {
	removed, cell int64
	at            map[int64]history.Played
}

var everyType = func() count.Types {
	t, err := count.ParseTypes([]string{"all"})
	if err != nil {
		panic(err)
	}
	return t
}()

func newCounting(w *World) *counting {
	c := &counting{w: w, store: hbasefake.New(time.Now), said: make(map[history.Key]*said)}
	c.reader = hbase.Over(c.store, hbase.Config{Now: time.Now}).Counters()
	return c
}

func (c *counting) start(i int) {
	p := c.w.newProcess(fmt.Sprintf("cnt%d", i+1))
	c.counters[i] = p
	counter := counts.New(counts.Config{
		Counters: byObject{hbase.Over(c.store.Through(countersDoor{p}.exchange), hbase.Config{Deadline: 2 * time.Second, Now: time.Now}).Counters()},
		Metrics:  counts.NewMetrics(prometheus.NewRegistry()), Deadline: 2 * time.Second, Pause: 50 * time.Millisecond,
	})
	go func() { _ = counter.Run(topicDoor{p, c, i})(p.ctx) }()
}

// event kills a counter, changes the owner, or delivers again what was committed.
func (c *counting) event(d *dice) {
	switch i := d.n(len(c.counters)); d.n(3) {
	case 0:
		c.w.kill(c.counters[i], "is killed")
	case 1:
		c.committed -= d.n(min(c.committed, 5) + 1)
		fallthrough
	default:
		c.generation++
		c.owner = i
		c.w.tracef("counts  are counted by %s, from message %d on", c.counters[i].name, c.committed)
	}
}

func (c *counting) revive() {
	for i, p := range c.counters {
		if p == nil || p.dead.Load() && time.Since(p.down) > c.w.traits.down {
			c.start(i)
			c.w.tracef("%-7s starts", c.counters[i].name)
		}
	}
}

func (c *counting) append(s count.Statement) {
	c.topic = append(c.topic, count.AppendMessage(nil, []count.Statement{s}))
	k := s.Key()
	p := c.said[k]
	if p == nil {
		p = &said{at: make(map[int64]history.Played)}
		c.said[k] = p
	}
	if s.RemovedAt < p.removed || s.RemovedAt == p.removed && s.CellTime <= p.cell {
		return
	}
	p.removed, p.cell = s.RemovedAt, s.CellTime
	maps.DeleteFunc(p.at, func(at int64, _ history.Played) bool { return at > s.RemovedAt })
	for _, played := range s.Played {
		p.at[played.At] = played
	}
}

// deleted checks that the topic says what a write deletes from a record that no job has archived. Reports that are
// folded into an archived removal are late, and count nowhere.
func (c *counting) deleted(was *history.Entry, w *history.Write) {
	if was.Record == nil || was.Record.Clean() || w.Record.RemovedAt <= was.Record.RemovedAt {
		return
	}
	e := c.w.archivedAt(w.Key)
	cleared := max(was.User.ClearedAt(w.Key.Object.Type), e.User.ClearedAt(w.Key.Object.Type))
	r := was.Record.After(cleared)
	if r == nil || w.Record.RemovedAt <= cleared || e.Record != nil && e.Record.RemovedAt >= w.Record.RemovedAt {
		return
	}
	for _, played := range r.Played() {
		if p := c.said[w.Key]; played.At <= w.Record.RemovedAt && (p == nil || p.at[played.At] != played) {
			c.w.fail("%s: %+v is deleted before it is said", w.Key, played)
		}
	}
}

// judge compares the totals with the topic, and the topic with the archive.
func (c *counting) judge() {
	want := make(map[history.Object]count.Sum)
	for k, p := range c.said {
		sum := count.Sum{}
		for _, played := range p.at {
			sum.Plays += int64(played.Plays) //nolint:gosec // small
			sum.Watched += played.Watched
		}
		sum.Viewers = min(sum.Plays, 1)
		want[k.Object] = want[k.Object].Plus(sum)
	}
	objects := c.w.objects()
	all, err := c.reader.Totals(context.Background(), objects)
	if err != nil {
		c.w.fail("totals have no answer: %v", err)
		return
	}
	for i, o := range objects {
		if all[i].All != want[o] {
			c.w.fail("%s: counted %+v, and the topic says %+v", o, all[i].All, want[o])
		}
	}
	for _, uid := range c.w.uids {
		for _, namespace := range c.w.namespacesOf(uid) {
			for _, o := range objects {
				c.judgeKey(history.Key{UID: namespace, Object: o})
			}
		}
	}
}

// judgeKey compares what the archive shows of a key with what was said of it.
func (c *counting) judgeKey(k history.Key) {
	e := c.w.archivedAt(k)
	r := e.Record.Visible(k.Object, &e.User)
	if r == nil {
		return
	}
	var all []history.Played
	if p := c.said[k]; p != nil {
		for _, at := range slices.Sorted(maps.Keys(p.at)) {
			if at > r.RemovedAt {
				all = append(all, p.at[at])
			}
		}
	}
	want := r.Played()
	if p := c.said[k]; p != nil && p.removed < r.RemovedAt { // the next statement bounds the watched time by the clear
		all, want = playsOnly(all), playsOnly(want)
	}
	if !slices.Equal(all, want) {
		c.w.fail("%s: %+v was said, and the archive has %+v", k, all, want)
	}
}

func playsOnly(all []history.Played) (plays []history.Played) {
	for _, p := range all {
		if p.Watched = 0; p.Plays > 0 {
			plays = append(plays, p)
		}
	}
	return plays
}

// countsDoor is the topic as a job or service reaches it.
type countsDoor struct{ *process }

var _ count.Publisher = countsDoor{}

func (d countsDoor) Publish(ctx context.Context, statements []count.Statement) (unsent []count.Statement, err error) {
	statements = slices.Clone(statements)
	keys := make([]history.Key, len(statements))
	for i := range statements {
		keys[i] = statements[i].Key()
	}
	send := func(i int) { d.w.counting.append(statements[i]) }
	d.w.do(ctx, &exchange{
		proc: d.process, what: "count", keys: keys, run: send, late: send,
		fail: func(i int, e error) { unsent, err = append(unsent, statements[i]), e },
	})
	return unsent, err
}

// topicDoor is the topic as a counter reaches it.
type topicDoor struct {
	*process
	counting *counting
	number   int
}

var _ counts.Consumer = topicDoor{}

// Consume counts as long as the counter owns the topic.
func (d topicDoor) Consume(ctx context.Context, handle func(context.Context, count.Delivery) error) error {
	c := d.counting
	generation, next := -1, 0
	for ctx.Err() == nil {
		var delivery count.Delivery
		var bad error
		d.w.do(ctx, &exchange{
			proc: d.process, what: "fetch counts", keys: make([]history.Key, 1),
			ready: func() bool {
				return c.owner == d.number && (c.generation != generation && c.committed < len(c.topic) || c.generation == generation && next < len(c.topic))
			},
			run: func(int) {
				if generation != c.generation {
					generation, next = c.generation, c.committed
				}
				n := 1 + d.w.src.below(streamOther, len(c.topic)-next)
				for _, m := range c.topic[next : next+n] {
					all, err := count.Message(m)
					delivery.Statements, delivery.Messages, bad = append(delivery.Statements, all...), delivery.Messages+1, errors.Join(bad, err)
				}
				next += n
			},
			fail: func(_ int, e error) { bad = e },
		})
		if bad != nil {
			return bad
		}
		if err := handle(ctx, delivery); err != nil {
			return err
		}
		err := d.single(ctx, "commit counts", history.Key{}, func(bool) {
			if c.generation == generation {
				c.committed = max(c.committed, next)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// byObject counts one object after the other, because the order of concurrent exchanges would be the scheduler's. All
// statements of an object fail together, as in the store.
type byObject struct{ count.Counters }

func (c byObject) Count(ctx context.Context, statements []count.Statement) []count.Result {
	results := make([]count.Result, len(statements))
	done := make(map[history.Object]bool)
	for _, first := range statements {
		if done[first.Object] {
			continue
		}
		done[first.Object] = true
		var some []count.Statement
		var indexes []int
		for i, s := range statements {
			if s.Object == first.Object {
				some, indexes = append(some, s), append(indexes, i)
			}
		}
		for i, r := range c.Counters.Count(ctx, some) {
			results[indexes[i]] = r
		}
	}
	return results
}

// countersDoor is HBase as a counter reaches it.
type countersDoor struct{ *process }

func (d countersDoor) exchange(ctx context.Context, all *hbasefake.Exchange) {
	x := &exchange{proc: d.process, what: "counters", keys: make([]history.Key, len(all.Calls)), run: all.Make, fail: all.Fail}
	for i := range all.Calls {
		call := &all.Calls[i]
		row, _, _ := strings.Cut(call.Row[2:], "\x00")
		if x.keys[i] = (history.Key{UID: row, Object: history.Object{ID: call.Column}}); call.Put {
			x.late = all.Repeat
		}
	}
	d.w.do(ctx, x)
}

// In some seeds the jobs send a stream of plays. The judge reads it as docs/plays.md tells other systems to.

// playsDoor is the stream as a job reaches it.
type playsDoor struct{ *process }

var _ archive.Plays = playsDoor{}

// Send may send only the first messages. A request whose answer was lost does not land later: that is a stated limit.
func (d playsDoor) Send(ctx context.Context, messages []history.PlayMessage) error {
	var part error
	err := d.read(ctx, "plays", history.UserKey(messages[0].Key.UID), func() {
		n := len(messages)
		if dice, fails := d.w.src.chance(streamFate, d.w.faults()); fails {
			n, part = dice.n(n), errNoAnswer
		}
		d.w.plays = append(d.w.plays, messages[:n]...)
	})
	return errors.Join(err, part)
}

// readPlays returns the plays that a reader of messages has in the end, by id.
func readPlays(messages []history.PlayMessage) map[string]history.Key {
	type play struct {
		key history.Key
		at  int64
	}
	plays, removed := make(map[string]play), make(map[history.Key]int64)
	for _, m := range messages {
		switch m.Kind {
		case history.PlayCompleted:
			plays[m.ID()] = play{m.Key, m.At}
		case history.PlayRetracted:
			delete(plays, m.ID())
		default:
			if removed[m.Key] >= m.At {
				continue
			}
			removed[m.Key] = m.At
			maps.DeleteFunc(plays, func(_ string, p play) bool {
				all := m.Key.Object.ID == "" && (m.Key.Object.Type == 0 || m.Key.Object.Type == p.key.Object.Type)
				return p.at <= m.At && p.key.UID == m.Key.UID && (all || p.key == m.Key)
			})
		}
	}
	keys := make(map[string]history.Key, len(plays))
	for id, p := range plays {
		keys[id] = p.key
	}
	return keys
}

// judgePlays compares the stream with what the archive shows. A play that goes on across a clear comes again only
// with the next report. The stream keeps plays that a record no longer lists.
func (w *World) judgePlays() {
	got := make(map[history.Key]int)
	for _, k := range readPlays(w.plays) {
		got[k]++
	}
	for _, uid := range w.uids {
		for _, o := range w.objects() {
			k := history.Key{UID: uid, Object: o}
			e, want := w.inArchive(k), 0
			if r := e.Record.Visible(o, &e.User); r != nil {
				if r.PlaysBefore > 0 || r.RemovedAt > 0 && r.RemovedAt <= e.User.ClearedAt(o.Type) {
					continue
				}
				want = int(r.Plays()) //nolint:gosec // small
			}
			if got[k] != want {
				w.fail("%s: the stream has %d plays, and the archive %d", k, got[k], want)
			}
		}
	}
}
