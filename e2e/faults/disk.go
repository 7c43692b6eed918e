package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/process"
)

// two starts a second process on the directory of the first: it must refuse and say
// why, and the first one must not notice.
func two(ctx context.Context, t *trial) error {
	a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-two"))
	if err != nil {
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error {
		p, err := process.Start(filepath.Join(t.Bin, "all-in-one"), "--data", a.dir,
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
	return errors.Join(err, a.settle(ctx), a.close())
}

// full fills the file system under the store: what cannot be written is not
// acknowledged, and once there is room again the process takes up its work, or does
// after a restart.
func full(ctx context.Context, t *trial) error {
	dir := filepath.Join(t.Dir, "small")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		return fmt.Errorf("a small file system needs root: %w", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }() // the folder goes with the run
	a, err := startAlone(ctx, t, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error { return a.fill(ctx, filepath.Join(dir, "ballast")) })
	return errors.Join(err, a.settle(ctx), a.close())
}

// fill takes all room, waits until nothing is acknowledged any more, and gives it
// back.
func (a *alone) fill(ctx context.Context, ballast string) error {
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
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
