package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// silentMaster suspends one master after the other. Its users must be refused soon, and other users must not
// notice.
func silentMaster(services, rounds int, silent time.Duration) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		masters := t.es["redis_cluster"]
		cache, err := redis.Open(ctx, redis.Config{Addrs: strings.Split(masters.Addr(), ","), Cluster: true}) // locates each user's master
		if err != nil {
			return err
		}
		defer cache.Close()
		c, err := t.gather(ctx, services, slowPlayers, "--redis", masters.Addr(), "--redis-cluster")
		if err != nil {
			return err
		}
		row := SlowRow{What: fmt.Sprintf("one of four Redis masters silent for %v", silent), Services: services}
		err = c.during(ctx, func(ctx context.Context) error {
			for n := range rounds {
				at := n % len(masters.Nodes)
				for _, p := range c.players {
					p.touched = cache.Node(history.BucketOf(p.uid)) == masters.Nodes[at].Addr()
				}
				round, err := c.fault(ctx, silent, func(sig syscall.Signal) error { return masters.Signal(sig, at) })
				if err != nil {
					return err
				}
				row.worst(round)
			}
			return nil
		})
		row.wantOthers()
		row.want(row.RefusedMS <= refusedIn.Milliseconds(), "a refusal takes %d ms", row.RefusedMS)
		row.wantBack()
		return errors.Join(err, t.judgeSlow(ctx, c, row))
	}
}

// behindAll makes Redis take 1.2 s for every call. Waiting is better than refusing then, because no other service
// is faster.
func behindAll(ctx context.Context, t *trial) error {
	var one float64
	var missed error
	for n := 1; n <= 3; n++ {
		row, err := t.behind(ctx, n)
		if err != nil {
			return errors.Join(missed, err)
		}
		if n == 1 {
			one = row.Touched.share()
		}
		row.want(row.Touched.share() >= min(one, 0.99), "%.1f %% are answered, with one service %.1f %%", 100*row.Touched.share(), 100*one)
		row.want(row.Resyncs <= 1, "a watcher is told %d times to read again", row.Resyncs)
		missed = errors.Join(missed, t.judgeSlow(ctx, nil, row))
	}
	return missed
}

func (t *trial) behind(ctx context.Context, services int) (row SlowRow, err error) {
	const slow, every = 24 * time.Second, 2 * time.Second
	line, err := openLine(ctx, t.es["redis"].Addr())
	if err != nil {
		return row, err
	}
	t.after = line.close
	c, err := t.gather(ctx, services, slowPlayers, "--redis", line.addr())
	if err != nil {
		return row, err
	}
	c.every = every
	c.touchAll()
	row, err = c.through(ctx, slow, func(sig syscall.Signal) error {
		line.set(map[syscall.Signal]time.Duration{syscall.SIGSTOP: 1200 * time.Millisecond}[sig])
		return nil
	})
	row.What = "Redis takes 1.2 s"
	return row, errors.Join(err, c.verify(ctx), t.endSlow(), line.close())
}

// stalledBroker suspends Kafka. Only players that need a queued acknowledgement may notice.
func stalledBroker(ctx context.Context, t *trial) error {
	return t.stalled(ctx, "Kafka's broker", t.es["kafka"], 20*time.Second, func(c *audience) {
		for i, p := range c.players {
			if p.touched = i%10 == 0; p.touched {
				p.ack = historyv1.Ack_ACK_QUEUED
			}
		}
	})
}

// stalledRegions suspends HBase. Only readers of archived records may notice. Its ZooKeeper session outlasts the
// suspension: otherwise HBase would abort afterwards.
func stalledRegions(ctx context.Context, t *trial) error {
	patient, err := t.engine("hbase", [2]string{"zookeeper.session.timeout.localHBaseCluster", "40000"})
	if err != nil {
		return err
	}
	t.after = func() error { return patient.Kill() }
	if err := inTurn(ctx, kill(t.es["hbase"]), patient.Start); err != nil {
		return err
	}
	return t.stalled(ctx, "HBase's region server", patient, 10*time.Second, func(c *audience) {
		for i := range 10 {
			c.players = append(c.players, c.stranger(i))
		}
	})
}

func (t *trial) stalled(ctx context.Context, what string, e *engine.Engine, still time.Duration, touch func(*audience)) error { //nolint:revive // a fault, spelled out
	c, err := t.gather(ctx, 2, slowPlayers, "--redis", t.es["redis"].Addr())
	if err != nil {
		return err
	}
	touch(c)
	row, err := c.through(ctx, still, func(sig syscall.Signal) error { return e.Signal(sig) })
	row.What = fmt.Sprintf("%s stands still for %v", what, still)
	row.wantOthers()
	row.wantBack()
	return errors.Join(err, t.judgeSlow(ctx, c, row))
}

// standstill suspends one of two services for a minute. Its users notice, and must move to the other one.
func standstill(ctx context.Context, t *trial) error {
	const still = time.Minute
	c, err := t.gather(ctx, 2, slowPlayers, "--redis", t.es["redis"].Addr())
	if err != nil {
		return err
	}
	c.late = 500 * time.Millisecond
	row, err := c.through(ctx, still, func(sig syscall.Signal) error { t.stack.services[0].signal(sig); return nil })
	row.What = fmt.Sprintf("one of two services stands still for %v", still)
	row.wantOthers()
	row.want(row.Touched.Players <= slowPlayers*7/10, "%d of %d players notice", row.Touched.Players, slowPlayers)
	row.want(row.LastedMS <= backWithin.Milliseconds(), "it is noticed for %d ms", row.LastedMS)
	row.want(row.Resyncs <= 2, "a watcher is told %d times to read again, want once there and once back", row.Resyncs)
	return errors.Join(err, t.judgeSlow(ctx, c, row))
}

// stoppedEdge suspends the edge for a while, like a live migration. When it resumes, all its timers have expired
// and the services' answers are unread. It must blame no service, and no player may move.
func stoppedEdge(ctx context.Context, t *trial) error {
	const rounds, still = 3, 10 * time.Second
	c, err := t.gather(ctx, 2, slowPlayers, "--redis", t.es["redis"].Addr())
	if err != nil {
		return err
	}
	for _, p := range c.players {
		p.touched = true
	}
	row := SlowRow{What: fmt.Sprintf("the edge stands still for %v, %d times", still, rounds), Services: 2}
	err = c.during(ctx, func(ctx context.Context) error {
		for range rounds {
			round, err := c.fault(ctx, still, func(sig syscall.Signal) error { t.stack.bff.signal(sig); return nil })
			if err != nil {
				return err
			}
			row.worst(round)
		}
		return nil
	})
	row.want(row.BackMS <= refusedIn.Milliseconds(), "the last failure is %d ms after the return", row.BackMS)
	row.want(row.Resyncs == 0, "a watcher is told %d times to read again", row.Resyncs)
	return errors.Join(err, t.judgeSlow(ctx, c, row))
}

// waiting has all players send a message at once while the only service is suspended. The edge must refuse what
// it cannot keep, and must not grow.
func waiting(ctx context.Context, t *trial) error {
	const still = 5 * time.Second
	const most = 200 // MiB
	c, err := t.gather(ctx, 1, t.crowdSize(), "--redis", t.es["redis"].Addr())
	if err != nil {
		return err
	}
	c.touchAll()
	began := time.Now()
	w := c.weigh()
	t.stack.services[0].signal(syscall.SIGSTOP)
	err = errors.Join(c.once(ctx), pause(ctx, still-time.Since(began)))
	t.stack.services[0].signal(syscall.SIGCONT)
	back := time.Now()
	row := c.row(began, back)
	again, err2 := c.untilStored(ctx)
	row.Edge, row.BackMS = w.stop(), again.Sub(back).Milliseconds()
	row.What = fmt.Sprintf("%d messages at once while the service stands still for %v", len(c.players), still)
	row.want(row.RefusedMS <= 2500, "a refusal takes %d ms", row.RefusedMS)
	row.want(row.Edge.Most-row.Edge.Before <= most, "the edge grows by %d MiB", row.Edge.Most-row.Edge.Before)
	return errors.Join(err, err2, t.judgeSlow(ctx, c, row))
}

// overload has players report three times as much as Redis can store. The product must store up to its capacity,
// and refuse the rest.
func overload(ctx context.Context, t *trial) error {
	var missed error
	for _, n := range []int{1, 2, 6} {
		row, err := t.overload(ctx, n)
		if err != nil {
			return errors.Join(missed, err)
		}
		missed = errors.Join(missed, t.judgeSlow(ctx, nil, row))
	}
	return missed
}

func (t *trial) overload(ctx context.Context, services int) (row SlowRow, err error) {
	// The job's measurement of all marks, 100 kB every five seconds, must be a small part of the line.
	const players, lasts, bytes = 2000, 30 * time.Second, 300_000 // each reports about once per second
	line, err := openLine(ctx, t.es["redis"].Addr())
	if err != nil {
		return row, err
	}
	t.after = line.close
	c, err := t.gather(ctx, services, players, "--redis", line.addr())
	if err != nil {
		return row, err
	}
	capacity, err := t.capacity(ctx, func() { line.narrow(bytes) })
	line.narrow(0)
	if err != nil {
		return row, err
	}
	c.every = time.Duration(float64(players) / (3 * capacity) * float64(time.Second))
	c.touchAll()
	row, err = c.through(ctx, lasts, func(sig syscall.Signal) error {
		line.narrow(map[syscall.Signal]int64{syscall.SIGSTOP: bytes}[sig])
		return nil
	})
	row.What = fmt.Sprintf("three times as many reports as Redis takes, which are %.0f a second", capacity)
	done, vain, least := float64(row.Touched.InTime)/lasts.Seconds(), 0, math.MaxInt
	for _, p := range c.players {
		in, late := p.answered(row.began, row.ended)
		vain, least = vain+late, min(least, in)
	}
	t.res.note("%d services: %.0f of %.0f a second are answered, %d of %d waited in vain, each player was answered %d times or more",
		services, done, capacity, vain, row.Touched.Sent, least)
	row.want(done >= 0.8*capacity, "%.0f a second are answered, of %.0f that can be", done, capacity)
	// Redis's slowness is unknown for the first two seconds. Two thirds of the calls in that time are excess,
	// which is 4.4 % of thirty seconds' calls. As many wait in vain.
	row.want(vain*25 <= row.Touched.Sent, "%d of %d waited in vain", vain, row.Touched.Sent)
	return row, errors.Join(err, c.verify(ctx), t.endSlow(), line.close())
}

// answered counts the stored reports of a time, and the unanswered ones.
func (p *viewer) answered(began, ended time.Time) (in, vain int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.did {
		switch {
		case e.at.Before(began) || e.at.After(ended):
		case e.ok:
			in++
		case e.took > 1900*time.Millisecond: // the edge's deadline is two seconds
			vain++
		}
	}
	return in, vain
}

// capacity returns the stored reports per second of known users under constant excess load.
func (t *trial) capacity(ctx context.Context, begin func()) (float64, error) {
	const workers, size, lasts = 4, 100, 8 * time.Second
	var stored atomic.Int64
	store := func(ctx context.Context, until time.Time) error {
		g, ctx := errgroup.WithContext(ctx)
		for w := range workers {
			g.Go(func() error {
				for n := 1; n == 1 || time.Now().Before(until); n++ {
					req := &historyv1.ApplyRequest{}
					for i := range size {
						req.Heartbeats = append(req.Heartbeats, progress(fmt.Sprintf("%s-capacity-%d-%d", t.stack.name, w, i), int64(n)*1000))
					}
					switch _, err := t.stack.rpcs[0].Apply(ctx, req); {
					case err == nil:
						stored.Add(size)
					case n == 1 || status.Code(err) != codes.Unavailable: // excess is refused
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
	if err := errors.Join(store(ctx, time.Now()), pause(ctx, calm)); err != nil {
		return 0, err
	}
	begin()
	stored.Store(0)
	began := time.Now()
	err := store(ctx, began.Add(lasts))
	return float64(stored.Load()) / time.Since(began).Seconds(), err
}

// judgeSlow records a row and verifies the acknowledged reports. It fails after a missed target.
func (t *trial) judgeSlow(ctx context.Context, c *audience, row SlowRow) error {
	t.res.Slow = append(t.res.Slow, row)
	if c != nil {
		if err := c.verify(ctx); err != nil {
			return err
		}
	}
	if len(row.Missed) > 0 {
		return fmt.Errorf("%s: %s", row.What, row.Missed)
	}
	return nil
}

// verify counts missing acknowledged reports as lost.
func (c *audience) verify(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, p := range c.players {
		want := p.stored.Load()
		if p.session == nil || want == 0 {
			continue
		}
		c.trial.book.add(int(p.acked.Load()))
		g.Go(func() error {
			resp, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) {
				return c.trial.stack.rpcs[0].Points(ctx, &historyv1.PointsRequest{Uid: p.uid, Objects: []*historyv1.Object{{Id: slowObject, Type: 1}}})
			})
			if err != nil {
				return err
			}
			if got := resp.GetItems()[0].GetPositionMs(); got < want {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.trial.res.count(history.Key{UID: p.uid, Object: history.Object{ID: slowObject, Type: 1}}, "point", lost("is at %d, acknowledged %d", got, want))
			}
			return nil
		})
	}
	return g.Wait()
}
