package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// alone is the all-in-one under a supervisor, on one data directory.
type alone struct {
	*trial

	dir  string
	unit *unit
	conn *grpc.ClientConn
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// startAlone starts the all-in-one and makes the load, which does not run yet.
func startAlone(ctx context.Context, t *trial, dir string) (*alone, error) {
	var addrs [3]string
	for i := range addrs {
		var err error
		if addrs[i], err = process.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	a := &alone{trial: t, dir: dir}
	secret := strings.Repeat("s", 32)
	file := filepath.Join(t.Dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return nil, err
	}
	a.unit = newUnit(t.Log, "all-in-one", addrs[2], filepath.Join(t.Bin, "all-in-one"), "--data", dir, "--hold", "2s", "--drain", "8s",
		"--listen", addrs[0], "--rpc", addrs[1], "--admin", addrs[2], "--token-secret-file", file, "--user-rate", "1e6", "--user-burst", "1e6")
	conn, err := dial(addrs[1])
	if err != nil {
		return nil, err
	}
	a.conn = conn
	t.load = &load{
		book: t.book, doors: []rpcDoor{{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn)}}, name: "c" + t.res.Case, seed: t.Seed, res: t.res,
		edge: edgeDoor{addr: addrs[0], secret: []byte(secret)},
	}
	watch, end := context.WithCancel(ctx)
	a.end = end
	a.wg.Go(func() { a.unit.watch(watch) })
	if err := a.unit.awaitReady(ctx, 30*time.Second); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *alone) close() error {
	a.end()
	a.wg.Wait()
	var errs []error
	for _, s := range a.unit.surprises() {
		errs = append(errs, errors.New(s))
	}
	return errors.Join(append(errs, a.conn.Close())...)
}

// settle stops the process, whose store only one may open, until nothing is marked,
// and compares; then it starts it again and reads as users do.
func (a *alone) settle(ctx context.Context) error {
	limit := time.Now().Add(60 * time.Second)
	for settled := false; !settled; {
		if err := a.unit.awaitReady(ctx, 30*time.Second); err != nil {
			return err
		}
		err := process.Await(ctx, 30*time.Second, "the last announcement", a.announced)
		if err != nil {
			return err
		}
		if settled, err = a.compare(ctx); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return errors.New("marks are left after a minute")
		}
	}
	a.res.QuietMS = time.Since(a.book.last).Milliseconds()
	return nil
}

func (a *alone) announced(ctx context.Context) error {
	held, err := a.unit.metric(ctx, "playhead_aggregate_held_keys")
	if err == nil && held > 0 {
		err = fmt.Errorf("%.0f keys are held", held)
	}
	return err
}

// compare opens the store of the stopped process. It reports false when marks are
// left there.
func (a *alone) compare(ctx context.Context) (settled bool, err error) {
	a.unit.setDown(true)
	took, err := ends(ctx, a.unit, 10*time.Second, syscall.SIGTERM)
	if err != nil {
		return false, err
	}
	a.Log.Info("stopped", "took", took)
	db, err := pebble.Open(a.dir, pebble.Config{Logger: a.Log})
	if err != nil {
		return false, err
	}
	left, err := marks(ctx, db.Cache())
	c := &checker{book: a.book, cache: db.Cache(), archive: db.Archive(), doors: a.load.doors, res: a.res}
	if err == nil && len(left) == 0 {
		err = c.records(ctx)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return false, err
	}
	a.unit.up()
	if len(left) > 0 {
		return false, nil
	}
	return true, errors.Join(a.unit.awaitReady(ctx, 30*time.Second), c.readers(ctx))
}
