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
	a.unit = newUnit(t.Log, "all-in-one", addrs[2], filepath.Join(t.Bin, "playhead"), "serve", "--data", dir, "--hold", "2s", "--drain", "8s",
		"--listen", addrs[0], "--rpc", addrs[1], "--admin", addrs[2], "--token-secret-file", file, "--user-rate", "1e6", "--user-burst", "1e6")
	conn, err := dial(addrs[1])
	if err != nil {
		return nil, err
	}
	a.conn = conn
	t.load = &load{
		book: t.book, rpcs: []rpcClient{{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn)}}, name: "c" + t.res.Case, seed: t.Seed, res: t.res,
		edge: edgeClient{addr: addrs[0], secret: []byte(secret)},
	}
	var watch context.Context
	watch, a.end = context.WithCancel(ctx)
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

// markClean stops the process, because only one may open its store, until no mark is left, and compares. Then it
// restarts the process and reads as users do.
func (a *alone) markClean(ctx context.Context) error {
	limit := time.Now().Add(60 * time.Second)
	for clean := false; !clean; {
		if err := a.unit.awaitReady(ctx, 30*time.Second); err != nil {
			return err
		}
		err := process.Await(ctx, 30*time.Second, "the last announcement", a.announced)
		if err != nil {
			return err
		}
		if clean, err = a.compare(ctx); err != nil {
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

// compare opens the store of the stopped process. It returns false if dirty marks are left.
func (a *alone) compare(ctx context.Context) (clean bool, err error) {
	a.unit.setDown(true)
	took, err := measureEnd(ctx, a.unit, 10*time.Second, syscall.SIGTERM)
	if err != nil {
		return false, err
	}
	a.Log.Info("stopped", "took", took)
	db, err := pebble.Open(a.dir, pebble.Config{Logger: a.Log})
	if err != nil {
		return false, err
	}
	left, err := process.Marked(ctx, db.Cache())
	c := &checker{book: a.book, cache: db.Cache(), archive: db.Archive(), rpcs: a.load.rpcs, res: a.res}
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

// twoProcesses starts a second process on the directory of the first. It must refuse with a reason, and the first
// must go on.
func twoProcesses(ctx context.Context, t *trial) error {
	a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-two"))
	if err != nil {
		return err
	}
	return a.run(ctx, func(ctx context.Context) error {
		p, err := process.Start(filepath.Join(t.Bin, "playhead"), "serve", "--data", a.dir,
			"--listen", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer p.Kill()
		select {
		case <-p.Done():
		case <-time.After(10 * time.Second):
			return errors.New("a second process runs on the same directory")
		}
		t.res.note("the second process says: %s", lastLine(p.Log()))
		if !strings.Contains(p.Log(), "in use") {
			return fmt.Errorf("the second process says %q", p.Log())
		}
		return pause(ctx, time.Second)
	})
}

func (a *alone) run(ctx context.Context, steps ...step) error {
	return errors.Join(a.underLoad(steps...)(ctx), a.markClean(ctx), a.close())
}

// diskFull fills the store's file system. The process must not acknowledge failed writes, and must resume once
// there is room, at the latest after a restart.
func diskFull(ctx context.Context, t *trial) error {
	dir := filepath.Join(t.Dir, "small")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		return fmt.Errorf("a small file system needs root: %w", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }() // the run's folder is removed later
	a, err := startAlone(ctx, t, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	return a.run(ctx, wait(2*time.Second), func(ctx context.Context) error { return a.fill(ctx, filepath.Join(dir, "ballast")) })
}

// fill takes all room, waits until acknowledgements stop, and frees the room.
func (a *alone) fill(ctx context.Context, ballast string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(ballast), &st); err != nil {
		return err
	}
	if err := os.WriteFile(ballast, make([]byte, int64(st.Bavail)*st.Bsize), 0o600); err != nil { //nolint:gosec // a small file system
		return fmt.Errorf("fill the file system: %w", err)
	}
	stuck := func(ctx context.Context) error {
		before := a.book.count()
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		if n := a.book.count() - before; n > 0 {
			return fmt.Errorf("%d more acknowledged", n)
		}
		return nil
	}
	if err := process.Await(ctx, 40*time.Second, "a full file system to be noticed", stuck); err != nil {
		return err
	}
	before, began := a.book.count(), time.Now()
	if err := os.Remove(ballast); err != nil {
		return err
	}
	goes := func(context.Context) error {
		if a.book.count() == before {
			return errors.New("nothing is acknowledged")
		}
		return nil
	}
	if err := process.Await(ctx, 10*time.Second, "acknowledgements once there is room", goes); err != nil {
		a.res.note("with room again it needs a restart: %v", err)
		a.unit.kill()
		return a.unit.awaitReady(ctx, 20*time.Second)
	}
	a.res.note("with room again it acknowledges after %v", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// killedAlone kills the all-in-one in a loop under load. If torn, the newest log ends in half a write at each
// restart.
func killedAlone(torn bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-"+t.res.Case))
		if err != nil {
			return err
		}
		return a.run(ctx, func(ctx context.Context) error {
			for range 12 {
				if err := pause(ctx, time.Duration(200+t.rand.IntN(1000))*time.Millisecond); err != nil {
					return err
				}
				a.unit.crash()
				if torn {
					if err := a.tear(); err != nil {
						return err
					}
				}
				a.unit.up()
				t.load.epoch.Add(1)
				if err := a.unit.awaitReady(ctx, 20*time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// tear appends half a write to the newest log of the store.
func (a *alone) tear() error {
	logs, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	if more, _ := filepath.Glob(filepath.Join(a.dir, "*", "*.log")); err == nil {
		logs = append(logs, more...)
	}
	var newest string
	var at time.Time
	for _, path := range logs {
		if st, err := os.Stat(path); err == nil && st.ModTime().After(at) {
			newest, at = path, st.ModTime()
		}
	}
	f, err := os.OpenFile(newest, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("tear the log: %w", err)
	}
	garbage := make([]byte, 1+a.rand.IntN(300))
	for i := range garbage {
		garbage[i] = byte(a.rand.Uint32())
	}
	_, err = f.Write(garbage)
	return errors.Join(err, f.Close())
}
