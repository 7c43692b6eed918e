package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// The records of a share.
const (
	shareUsers = 5_000
	ofUser     = 100 // records, of two heartbeats each
	share      = shareUsers * ofUser
)

// Scale fills an all-in-one with records, one share at a time, and prints a row after each. The row has the cost,
// the read latency of unread users, the disk usage and the memory. Finally it kills the process, restarts it, and
// reads again.
func Scale(ctx context.Context, out io.Writer, o Options, by Scaled) (err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer func() { err = errors.Join(err, w.Flush()) }()
	fmt.Fprintln(w, "RECORDS\tBEATS/S\tSERVER US\tNEWEST 20 P50 MS\tP99 MS\tDISK BYTES/RECORD\tMEMORY MIB")
	_, err = (&Embedded{Bin: o.Bin, Dir: o.Dir}).turn(ctx, func(a *allInOne) (Figures, error) {
		s := &scale{a: a, out: w, meta: by.Meta}
		for range max(by.Records/share, 1) {
			f, err := s.fill(ctx)
			if err != nil {
				return nil, err
			}
			o.Log.Info("share", "records", s.shares*share, "rate", int(f["rate"]), "archived_us", f["archived.all-in-one"])
		}
		return nil, s.restart(ctx)
	})
	return err
}

// Scaled is the size of a Scale run.
type Scaled struct {
	Records int
	Meta    int // bytes of metadata of a heartbeat
}

// scale is an all-in-one that fills.
type scale struct {
	a            *allInOne
	out          io.Writer
	meta, shares int
}

// fill adds a share of new users.
func (s *scale) fill(ctx context.Context) (f Figures, err error) {
	l := NewLoad(shareOf(s.shares), s.meta)
	l.EndAt(time.Now().UnixMilli())
	w, err := streams(ctx, s.a.rpc, l, small)
	if err != nil {
		return nil, err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"all-in-one": s.a.PID()})}
	if f, err = t.acked(ctx); err != nil {
		return nil, err
	}
	before := float64(s.shares * share)
	err = t.archived(ctx, f, func(ctx context.Context) (backlog, error) {
		b, err := s.a.backlog(ctx)
		b.puts -= before
		return b, err
	})
	if err != nil {
		return nil, err
	}
	s.shares++
	return f, s.row(ctx, f, w.conn, strconv.Itoa(s.shares*share))
}

// shareOf returns the viewings of a share, in an order without two of one user in a batch.
func shareOf(n int) []replay.Viewing {
	vs := make([]replay.Viewing, 0, share)
	for i := range ofUser {
		for u := range shareUsers {
			vs = append(vs, replay.Viewing{
				UID: sharer(n, u), Object: history.Object{ID: strconv.Itoa(100_000 + (i*7919+u)%catalogue), Type: 1},
				At: start + int64(i)*60_000 + int64(u), Played: 10_000, Duration: 600_000,
			})
		}
	}
	return vs
}

func sharer(share, user int) string { return strconv.Itoa(1_000_000 + share*shareUsers + user) }

// row reads pages of users of all shares and prints a row.
func (s *scale) row(ctx context.Context, f Figures, conn grpc.ClientConnInterface, name string) error {
	err := newestOver(conn).readOf(ctx, f, "newest", func(i int) string {
		return sharer(i%s.shares, (s.shares*pages+i*7)%shareUsers)
	})
	if err != nil {
		return err
	}
	disk := float64(diskUse(s.a.dir)) / float64(s.shares*share)
	_, err = fmt.Fprintf(s.out, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\n", name, f["rate"], f["archived.all-in-one"],
		f["newest p50"], f["newest p99"], disk, float64(resident(s.a.PID()))/(1<<20))
	return err
}

// restart kills the process, restarts it, and prints the time until it is ready and its read latencies.
func (s *scale) restart(ctx context.Context) error {
	s.a.Kill()
	began := time.Now()
	if err := s.a.run(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	conn, err := grpc.NewClient(s.a.rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = s.row(ctx, Figures{}, conn, fmt.Sprintf("ready %.1f s after a kill", took.Seconds()))
	return errors.Join(err, conn.Close())
}
