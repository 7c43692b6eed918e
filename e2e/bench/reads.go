package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The histories to read.
const (
	readers = 200   // users
	records = 1_000 // per user
	newestN = 20
	pages   = 400 // reads
	perS    = 100 // pages per second
)

// manyHistories returns viewings of two heartbeats: 1,000 for each of 200 users.
func manyHistories() []replay.Viewing {
	vs := make([]replay.Viewing, 0, readers*records)
	for i := range records {
		for u := range readers {
			vs = append(vs, replay.Viewing{
				UID: reader(u), Object: history.Object{ID: strconv.Itoa(100_000 + (i*7919+u)%catalogue), Type: 1},
				At: start + int64(i)*60_000 + int64(u), Played: 10_000, Duration: 600_000,
			})
		}
	}
	return vs
}

func reader(i int) string { return "reader" + strconv.Itoa(i%readers) }

// newest reads a user's page and returns the number of its records.
type newest func(ctx context.Context, uid string) (int, error)

// newestOver reads through a service.
func newestOver(conn grpc.ClientConnInterface) newest {
	c := historyv1.NewHistoryServiceClient(conn)
	return func(ctx context.Context, uid string) (int, error) {
		resp, err := c.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: newestN})
		return len(resp.GetItems()), err
	}
}

// read reads 400 pages, 100 per second whatever the store does. It adds the percentiles of the latency, counted
// from the time each read was due.
func (n newest) read(ctx context.Context, f Figures, name string) error {
	return n.readOf(ctx, f, name, reader)
}

// readOf is read for other users.
func (n newest) readOf(ctx context.Context, f Figures, name string, user func(i int) string) error {
	began, took := time.Now(), make([]time.Duration, pages)
	g, ctx := errgroup.WithContext(ctx)
	for i := range took {
		at := began.Add(time.Duration(i) * time.Second / perS)
		time.Sleep(time.Until(at))
		g.Go(func() error {
			got, err := n(ctx, user(i))
			if err == nil && got != newestN {
				err = fmt.Errorf("%d records in a page, want %d", got, newestN)
			}
			if err != nil {
				return fmt.Errorf("newest of %s: %w", user(i), err)
			}
			took[i] = time.Since(at)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.Sort(took)
	f[name+" p50"], f[name+" p99"] = float64(Percentile(took, 0.5))/1e6, float64(Percentile(took, 0.99))/1e6
	return nil
}

// during reads pages while the load of work runs, and waits for both.
func (n newest) during(ctx context.Context, w *work, f Figures, name string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, _, err := w.run(ctx)
		return err
	})
	g.Go(func() error { return n.read(ctx, f, name) })
	return g.Wait()
}

// MeasureReads reads the newest records of users with long histories: first idle, then during a load.
func (e *Embedded) MeasureReads(ctx context.Context, histories, beside *Load, s Shape) (Figures, error) {
	return e.turn(ctx, func(a *allInOne) (Figures, error) {
		f, err := a.measure(ctx, histories, GRPC, small)
		if err != nil {
			return nil, err
		}
		beside.EndAt(time.Now().UnixMilli())
		w, err := streams(ctx, a.rpc, beside, s)
		if err != nil {
			return nil, err
		}
		defer w.close()
		n := newestOver(w.conn)
		return f, errors.Join(n.read(ctx, f, "idle"), n.during(ctx, w, f, "busy"))
	})
}

// MeasureReads is like [Embedded.MeasureReads].
func (p *Postgres) MeasureReads(ctx context.Context, histories, beside *Load, v Variant) (Figures, error) {
	f, err := p.Measure(ctx, histories, v.Door, small)
	if err != nil {
		return nil, err
	}
	n, end, err := p.newest(ctx, v.Door)
	defer end()
	if err != nil {
		return nil, err
	}
	w, err := prepare(v.Shape, beside.Share(v.Shape.Workers), func([]int32) (Session, error) { return p.open(ctx, beside) })
	if err != nil {
		return nil, err
	}
	defer w.close()
	return f, errors.Join(n.read(ctx, f, "idle"), n.during(ctx, w, f, "busy"))
}

// newest reads over eight connections, which end closes.
func (p *Postgres) newest(ctx context.Context, d Door) (n newest, end func(), err error) {
	sql := `SELECT * FROM history WHERE uid = $1 ORDER BY began DESC LIMIT 20`
	if d == Indexed {
		sql = `SELECT * FROM history WHERE uid = $1 ORDER BY at DESC LIMIT 20`
	}
	var all []*pgx.Conn
	end = func() {
		for _, c := range all {
			_ = c.Close(ctx) // nothing is lost
		}
	}
	idle := make(chan *pgx.Conn, 8)
	for range cap(idle) {
		c, err := p.connect(ctx)
		if err != nil {
			return nil, end, err
		}
		all = append(all, c)
		idle <- c
	}
	return func(ctx context.Context, uid string) (n int, err error) {
		c := <-idle
		defer func() { idle <- c }()
		rows, err := c.Query(ctx, sql, uid)
		if err != nil {
			return 0, err
		}
		for rows.Next() {
			if _, err := rows.Values(); err != nil {
				return n, err
			}
			n++
		}
		return n, rows.Err()
	}, end, nil
}

// MeasureCold reads the newest records of users unknown to Redis while new users arrive at once. Then it reads
// again, with the users known, during as many new ones.
func (e *Engines) MeasureCold(ctx context.Context, histories *Load, newcomers [2]*Load) (Figures, error) {
	name := newName()
	f, err := e.turn(ctx, GRPC, name, func(s *stack) (Figures, error) { return s.measure(ctx, e, histories, GRPC, small) })
	if err != nil {
		return nil, err
	}
	return e.turn(ctx, GRPC, name, func(s *stack) (Figures, error) {
		for i, phase := range []string{"cold", "warm"} {
			if err := s.meet(ctx, e, newcomers[i], func(w *work) error { return newestOver(w.conn).during(ctx, w, f, phase) }); err != nil {
				return nil, fmt.Errorf("%s: %w", phase, err)
			}
		}
		return f, nil
	})
}

// meet sends newcomers while do runs, and waits until they are archived.
func (s *stack) meet(ctx context.Context, e *Engines, l *Load, do func(*work) error) error {
	before, err := s.counted(ctx)
	if err != nil {
		return err
	}
	l.EndAt(time.Now().UnixMilli())
	w, err := streams(ctx, s.rpc, l, small)
	if err != nil {
		return err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(e.PIDs)}
	if err := errors.Join(t.meter.Start(), do(w)); err != nil {
		return err
	}
	return t.archived(ctx, make(Figures), s.since(before))
}
