package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/playhead/playhead/all-in-one/playstest"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/wire"
)

// countsWithin bounds the time from the last acknowledgement until totals are right.
const countsWithin = time.Minute

// countedKills kills and suspends everything at random while viewers complete objects. In the end the totals of the
// edge and the stream of plays must be those of a log of what was acknowledged. Jobs stand still for less than a
// session of their group: see the limits in docs/plays.md.
func countedKills(rounds int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.start(ctx, spec{counted: true}); err != nil {
			return err
		}
		f := &fans{trial: t, want: make(map[history.Object]count.Totals), viewers: make(map[string]bool)}
		k := newKiller(t)
		k.suspending()
		f.begin(ctx)
		err := k.rounds(rounds)(ctx)
		k.wg.Wait()
		for _, v := range k.victims {
			t.res.note("%s %d times", v.name, v.killed)
		}
		if err := errors.Join(err, k.err, f.end()); err != nil {
			return err
		}
		if err := process.Await(ctx, countsWithin, "the totals to be those of the log", f.compareTotals); err != nil {
			return err
		}
		took := time.Since(t.book.last)
		if err := inTurn(ctx, t.markClean, f.compareTotals, f.comparePlays); err != nil {
			return err
		}
		t.res.note("totals of %d plays are right %v after the last acknowledgement, and at rest", f.plays(), took.Round(100*time.Millisecond))
		return t.noteGeneration(ctx)
	}
}

// suspending adds victims that stand still for up to three seconds.
func (k *killer) suspending() {
	add := func(name string, alive func() bool, signal func(syscall.Signal) error) {
		k.victims = append(k.victims, &victim{name: "suspended " + name, alive: alive, kill: func(ctx context.Context) error {
			err := errors.Join(signal(syscall.SIGSTOP), pause(ctx, time.Duration(1000+k.rand.IntN(2000))*time.Millisecond))
			return errors.Join(err, signal(syscall.SIGCONT))
		}})
	}
	for _, u := range k.stack.jobs {
		add(u.name, u.alive, func(sig syscall.Signal) error {
			u.signal(sig)
			return nil
		})
	}
	for _, e := range []*engine.Engine{k.es["kafka"], k.es["hbase"]} {
		add(e.Name(), func() bool { return k.up(e) }, func(sig syscall.Signal) error { return e.Signal(sig) })
	}
}

// noteGeneration notes how often the group of the jobs was balanced.
func (t *trial) noteGeneration(ctx context.Context) error {
	latest := 0.0
	for _, u := range t.stack.jobs {
		n, err := u.metric(ctx, "playhead_kafka_generation")
		if err != nil {
			return err
		}
		latest = max(latest, n)
	}
	t.res.note("the jobs are in generation %.0f of their group", latest)
	return nil
}

// Sizes of the audience.
const (
	fanCount  = 16 // concurrent
	fanUsers  = 6  // of one fan only
	films     = 12 // that all watch
	filmMS    = 100_000
	fanPeriod = 200 * time.Millisecond
)

// fans are viewers who complete objects, and a log of what was acknowledged.
type fans struct {
	*trial

	stopped chan struct{}
	wg      sync.WaitGroup
	steps   atomic.Int64

	mu  sync.Mutex
	err error
	log playstest.Log
	// want is what the totals must be, viewers are in it: of an object, and of an object and day.
	want    map[history.Object]count.Totals
	viewers map[string]bool
}

func (f *fans) begin(ctx context.Context) {
	f.stopped = make(chan struct{})
	for i := range fanCount {
		one := &fan{fans: f, id: i, rand: rand.New(rand.NewPCG(f.Seed, uint64(i)))} //nolint:gosec // repeatable
		f.wg.Go(func() {
			if err := one.run(ctx); err != nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.err = errors.Join(f.err, err)
			}
		})
	}
}

// end lets all fans finish what they have begun, so that everything in the log is acknowledged.
func (f *fans) end() error {
	close(f.stopped)
	f.wg.Wait()
	return f.err
}

type fan struct {
	*fans

	id   int
	rand *rand.Rand
	wait []pending
}

// pending are steps for a record that is archived.
type pending struct {
	key  history.Key
	then step
}

func (f *fan) run(ctx context.Context) error {
	tick := time.NewTicker(fanPeriod)
	defer tick.Stop()
	for {
		if err := f.step(ctx); err != nil {
			return err
		}
		if len(f.wait) > 0 && f.archived(ctx, f.wait[0].key) == nil {
			if err := f.next(ctx); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
			continue
		case <-f.stopped:
		}
		for len(f.wait) > 0 {
			k := f.wait[0].key
			if err := process.Await(ctx, ackedWithin, k.String()+" to be archived", func(ctx context.Context) error { return f.archived(ctx, k) }); err != nil {
				return err
			}
			if err := f.next(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// next takes the steps that have waited longest.
func (f *fan) next(ctx context.Context) error {
	then := f.wait[0].then
	f.wait = f.wait[1:]
	return then(ctx)
}

// archived fails until a record is archived and counted.
func (f *fans) archived(ctx context.Context, k history.Key) error {
	e := f.stack.cache.Load(ctx, []history.Key{k})[0]
	if e.Err == nil && !e.Record.Clean() {
		e.Err = errors.New("it is dirty")
	}
	return e.Err
}

// completion is a session that plays an object to its end.
type completion struct {
	history.Key

	session     string
	at, watched int64
}

func (c *completion) event() history.Event {
	return history.Event{
		Key: c.Key, Kind: history.KindFinish, At: c.at, Position: filmMS, Duration: filmMS,
		Session: c.session, StartedAt: c.at - filmMS, Watched: c.watched,
	}
}

// step completes an object, sometimes with an upload that is up to a week late. A third is reported again. A tenth is
// taken back, another tenth is removed.
func (f *fan) step(ctx context.Context) error {
	n := f.steps.Add(1)
	c := completion{
		Key:     history.Key{UID: fmt.Sprintf("%s-%d-%d-%d", f.load.name, f.load.epoch.Load(), f.id, f.rand.IntN(fanUsers)), Object: objectOf(f.rand.IntN(films))},
		session: fmt.Sprint("s", n), at: time.Now().UnixMilli() - 5*filmMS - f.rand.Int64N(filmMS), watched: f.rand.Int64N(filmMS),
	}
	if f.rand.IntN(4) == 0 {
		c.at -= f.rand.Int64N(6 * 24 * 3600 * 1000)
	}
	switch n % 10 {
	case 1:
		return f.takeBack(ctx, c, n)
	case 5:
		return f.remove(ctx, c, n)
	}
	said := f.book.note(c.event())
	err := f.report(n, said)(ctx)
	if err == nil && n%3 == 0 {
		err = f.report(n+1, said)(ctx)
	}
	f.note(c, (*playstest.Log).Stays)
	return err
}

// takeBack completes an object that proves to be longer, at once or when its record is archived. The book knows one length
// of objects, and nothing of this user.
func (f *fan) takeBack(ctx context.Context, c completion, n int64) error {
	c.UID = fmt.Sprint(c.UID, "-", n)
	err := f.report(n, &event{Event: c.event()})(ctx)
	more := f.report(n, &event{Event: history.Event{
		Key: c.Key, Kind: history.KindProgress, At: c.at + 5000, Position: filmMS, Duration: 9 * filmMS, Session: c.session,
	}})
	f.mu.Lock()
	f.log.Gone(c.Key, c.session, c.at)
	f.count(c, 0)
	f.mu.Unlock()
	if err == nil && n%20 == 1 {
		f.wait = append(f.wait, pending{c.Key, more})
		return nil
	}
	if err == nil {
		err = more(ctx)
	}
	return err
}

// remove completes an object as a user of its own. It deletes it at once, or clears the history when it is archived, and
// reports it again. Every other time the user plays it once more.
func (f *fan) remove(ctx context.Context, c completion, n int64) error {
	c.UID = fmt.Sprint(c.UID, "-", n)
	said, d := f.book.note(c.event()), f.stack.rpcs[n%int64(len(f.stack.rpcs))]
	err := f.report(n, said)(ctx)
	f.note(c, (*playstest.Log).Gone)
	clears := n%20 == 5
	then := func(ctx context.Context) error {
		err := process.Await(ctx, ackedWithin, "a removal", func(ctx context.Context) error {
			if clears {
				return f.book.clear(ctx, d, c.UID, 0, c.at+1)
			}
			return f.book.remove(ctx, d, []history.Key{c.Key}, c.at+1)
		})
		if err == nil {
			err = f.report(n+1, said)(ctx)
		}
		if err != nil || n%40 > 20 {
			return err
		}
		again := c
		again.session, again.at = c.session+"-again", c.at+2*filmMS
		err = f.report(n, f.book.note(again.event()))(ctx)
		f.note(again, (*playstest.Log).Stays)
		return err
	}
	if clears {
		f.wait = append(f.wait, pending{c.Key, then})
		return err
	}
	return errors.Join(err, then(ctx))
}

// ackedWithin bounds the retries of a request.
const ackedWithin = 3 * time.Minute

// report sends an event until it is acknowledged, to each service and the edge in turn.
func (f *fans) report(n int64, e *event) step {
	return func(ctx context.Context) error {
		return process.Await(ctx, ackedWithin, "an acknowledgement", func(ctx context.Context) error {
			to := target(f.stack.edge)
			if i := n % int64(1+len(f.stack.rpcs)); i > 0 {
				to = f.stack.rpcs[i-1]
			}
			n++
			again, err := f.book.send(ctx, to, []*event{e})
			if err == nil && len(again) > 0 {
				err = history.ErrUnavailable
			}
			return err
		})
	}
}

// note notes an acknowledged completion, and what becomes of it in the stream. It is counted in any case.
func (f *fans) note(c completion, in func(*playstest.Log, history.Key, string, int64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in(&f.log, c.Key, c.session, c.at)
	f.count(c, 1)
}

// count adds a completion to what the totals of its object must be. The caller holds f.mu.
func (f *fans) count(c completion, plays int64) {
	day := history.Played{At: c.at}.Day()
	one := count.Totals{All: count.Sum{Plays: plays, Watched: c.watched}}
	today := one.All
	if plays > 0 {
		one.All.Viewers, today.Viewers = f.first(c.String()), f.first(fmt.Sprint(c.Key, day))
	}
	one.Days = []count.DaySum{{Day: day, Sum: today}}
	t := f.want[c.Object]
	t.Add(one)
	f.want[c.Object] = t
}

// first returns 1 for a new viewer, 0 for a known one.
func (f *fans) first(viewer string) int64 {
	if f.viewers[viewer] {
		return 0
	}
	f.viewers[viewer] = true
	return 1
}

// plays returns all plays of the log.
func (f *fans) plays() (all int64) {
	for _, t := range f.want {
		all += t.All.Plays
	}
	return all
}

// shownSum is a total as the edge shows it.
type shownSum struct {
	Plays   int64 `json:"plays"`
	Viewers int64 `json:"viewers"`
	Watched int64 `json:"watched_ms"`
}

// compareTotals asks the edge for the totals of all objects.
func (f *fans) compareTotals(ctx context.Context) error {
	var ask struct {
		Objects []uploadObject `json:"objects"`
		Since   string         `json:"since"`
	}
	ask.Since = time.Now().UTC().AddDate(0, 0, -30).Format(time.DateOnly)
	for n := range films {
		ask.Objects = append(ask.Objects, uploadObject(objectOf(n)))
	}
	var answer struct {
		Items []struct {
			Total shownSum `json:"total"`
			Days  []struct {
				shownSum

				Day string `json:"day"`
			} `json:"days"`
		} `json:"items"`
	}
	if err := f.stack.edge.post(ctx, call{"/v1/counts", token.Claims{UID: "backend", Scope: "counts:read"}, ask}, &answer); err != nil {
		return err
	}
	if len(answer.Items) != films {
		return fmt.Errorf("%d totals, want %d", len(answer.Items), films)
	}
	var wrong error
	for n, it := range answer.Items {
		got, o := count.Totals{All: count.Sum(it.Total)}, objectOf(n)
		for _, d := range it.Days {
			at, err := time.Parse(time.DateOnly, d.Day)
			if err != nil {
				return err
			}
			got.Days = append(got.Days, count.DaySum{Day: history.DayOf(at), Sum: count.Sum(d.shownSum)})
		}
		if want := f.want[o]; !reflect.DeepEqual(got, want) {
			wrong = errors.Join(wrong, fmt.Errorf("totals of %s: %+v, want %+v", o, got, want))
		}
	}
	return wrong
}

// comparePlays reads the stream of plays.
func (f *fans) comparePlays(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countsWithin)
	defer cancel()
	all, err := process.Messages(ctx, f.es["kafka"].Addr(), f.stack.plays())
	if err != nil {
		return err
	}
	messages := make([]history.PlayMessage, len(all))
	for i, m := range all {
		if messages[i], err = wire.Play(m.Value); err != nil {
			return err
		}
	}
	kinds, err := f.log.Judge(messages)
	f.res.note("messages of plays: %v", kinds)
	return err
}
