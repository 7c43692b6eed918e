package faults

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

//go:embed preload/skew.c
var skewSource []byte

// skew is an adjustable wall clock of Redis.
type skew struct{ file, library string }

// newSkew builds the library that Redis preloads. It needs a C compiler.
func (t *trial) newSkew(ctx context.Context) (*skew, error) {
	s := &skew{file: filepath.Join(t.Dir, "skew"), library: filepath.Join(t.Dir, "skew.so")}
	source := filepath.Join(t.Dir, "skew.c")
	if err := errors.Join(os.WriteFile(source, skewSource, 0o600), s.set(0)); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "cc", "-O2", "-shared", "-fPIC", "-o", s.library, source, "-ldl").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build a clock that can be set: %w: %s", err, out)
	}
	return s, nil
}

// set sets the clock's offset.
func (s *skew) set(off time.Duration) error {
	f, err := os.OpenFile(s.file, os.O_CREATE|os.O_WRONLY, 0o600) // the file is mapped: it must keep its inode
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(int64(off/time.Second)))) //nolint:gosec // below zero too
	return errors.Join(err, f.Close())
}

const clockStep = 10 * time.Minute

// clockSteps steps Redis's clock forward, back, behind, and back again. After each step the services die, and the
// jobs alone must archive the dirty records without regard to clocks. A service that starts with a different
// clock must store nothing.
func clockSteps(ctx context.Context, t *trial) error {
	s, err := t.startSkewed(ctx, spec{})
	if err != nil {
		return err
	}
	for _, jump := range []struct{ before, to time.Duration }{{0, clockStep}, {clockStep, 0}, {0, -clockStep}, {-clockStep, 0}} {
		if err := t.jump(ctx, s, jump.before, jump.to); err != nil {
			return fmt.Errorf("from %v to %v: %w", jump.before, jump.to, err)
		}
	}
	return t.markClean(ctx)
}

// startSkewed starts the stack with a Redis whose clock can be set.
func (t *trial) startSkewed(ctx context.Context, sp spec) (*skew, error) {
	s, err := t.newSkew(ctx)
	if err != nil {
		return nil, err
	}
	skewed, err := t.engineWith(engineConfig{name: "redis", env: []string{"LD_PRELOAD=" + s.library, "SKEWFILE=" + s.file}})
	if err != nil {
		return nil, err
	}
	t.after = func() error { return skewed.Kill() }
	return s, inTurn(ctx, kill(t.es["redis"]), skewed.Start, func(ctx context.Context) error { return t.start(ctx, sp) })
}

// far is a clock offset at which records expire.
const far = 100 * 24 * time.Hour

// farAhead moves Redis's clock so far ahead for a moment that every record expires.
func farAhead(ctx context.Context, t *trial) error {
	s, err := t.startSkewed(ctx, spec{blind: true})
	if err != nil {
		return err
	}
	set := func(off time.Duration) step { return func(context.Context) error { return s.set(off) } }
	return inTurn(ctx, t.underLoad(wait(3*time.Second), set(far), t.anew, wait(3*time.Second), set(0), wait(4*time.Second)), t.markClean)
}

// jump begins and ends with equal clocks and ready services.
func (t *trial) jump(ctx context.Context, s *skew, before, to time.Duration) error {
	err := t.underLoad(wait(time.Second), func(ctx context.Context) (err error) {
		if before != 0 {
			err = errors.Join(s.set(before), pause(ctx, 2*time.Second))
		}
		acked := t.book.count()
		err = errors.Join(err, s.set(to), pause(ctx, 2*time.Second))
		if err == nil && t.book.count() == acked {
			err = errors.New("nothing is acknowledged once the clock has jumped")
		}
		return err
	})(ctx)
	crash(t.stack.services)
	t.load.epoch.Add(1)
	began := time.Now()
	if err := errors.Join(err, t.stack.quiet(ctx, 40*time.Second)); err != nil {
		return err
	}
	t.res.note("from %v to %v: all archived %v after the services' death", before, to, time.Since(began).Round(100*time.Millisecond))
	up(t.stack.services)
	if to != 0 {
		err = errors.Join(t.storesNothing(ctx, t.stack.services[0], t.stack.rpcs[0]), s.set(0))
	}
	return errors.Join(err, t.stack.awaitReady(ctx))
}

// storesNothing checks that a service with a wrong clock reports it, and neither stores nor deletes.
func (t *trial) storesNothing(ctx context.Context, u *unit, d rpcClient) error {
	k := history.Key{UID: "c24-nobody", Object: objectOf(0)}
	err := process.Await(ctx, 20*time.Second, "a service to say that the clocks differ", func(ctx context.Context) error {
		resp, err := d.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: heartbeats([]*event{{Event: history.Event{
			Key: k, Kind: history.KindProgress, At: time.Now().UnixMilli() - lag, Position: 1, Duration: length,
		}}})})
		switch {
		case err != nil && strings.Contains(status.Convert(err).Message(), "clock"):
			return nil
		case err != nil:
			return err // still starting
		}
		return fmt.Errorf("a report is %v", resp.GetStatuses()[0])
	})
	if err != nil {
		return err
	}
	if _, err := d.Delete(ctx, &historyv1.DeleteRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: k.Object.ID, Type: k.Object.Type}}}); status.Code(err) != codes.Unavailable {
		return fmt.Errorf("a delete is answered with %v, want it unavailable", status.Code(err))
	}
	if err := u.readyNow(ctx); err == nil {
		return fmt.Errorf("%s is ready while its clock is wrong", u.name)
	}
	return nil
}

// apart lets two services' clocks differ, by less and by more than the tolerance.
func apart(ctx context.Context, t *trial) error {
	p, err := openProxy(ctx, t.es["redis"].Addr())
	if err != nil {
		return err
	}
	t.after = p.close
	if err := t.start(ctx, spec{redis: []string{t.es["redis"].Addr(), p.addr()}}); err != nil {
		return err
	}
	for _, by := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond, 2 * time.Minute, -2 * time.Minute} {
		apart := t.littleApart
		if max(by, -by) > time.Minute {
			apart = t.farApart
		}
		if err := apart(ctx, p, by); err != nil {
			return fmt.Errorf("%v apart: %w", by, err)
		}
		t.load.epoch.Add(1)
	}
	return t.markClean(ctx)
}

// littleApart starts a service with a clock offset within the tolerance.
func (t *trial) littleApart(ctx context.Context, p *proxy, by time.Duration) error {
	p.clock(by)
	t.stack.services[1].kill()
	return inTurn(ctx, t.stack.awaitReady, t.underLoad(wait(3*time.Second), func(ctx context.Context) error { return t.coverEachOther(ctx, by) }))
}

// coverEachOther reports at one service and deletes at the other, without a time. The delete must cover the
// report despite the clocks.
func (t *trial) coverEachOther(ctx context.Context, by time.Duration) error {
	for n := range 40 {
		uid, o := fmt.Sprintf("c24-%v-%d", by, n), objectOf(0)
		object := &historyv1.Object{Id: o.ID, Type: o.Type}
		one, other := t.stack.rpcs[n%2], t.stack.rpcs[1-n%2]
		at := time.Now().UnixMilli()
		_, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.ApplyResponse, error) {
			return one.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: heartbeats([]*event{{Event: history.Event{
				Key: history.Key{UID: uid, Object: o}, Kind: history.KindProgress, At: at, Position: 60_000, Duration: length,
			}}})})
		})
		if err != nil {
			return err
		}
		if n%4 < 2 {
			_, err = other.Delete(ctx, &historyv1.DeleteRequest{Uid: uid, Objects: []*historyv1.Object{object}})
		} else {
			_, err = other.Clear(ctx, &historyv1.ClearRequest{Uid: uid})
		}
		if err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		for _, d := range t.stack.rpcs {
			resp, err := d.Points(ctx, pointsOf(uid, []history.Object{o}))
			if err != nil {
				return err
			}
			if it := resp.GetItems()[0]; it.GetObject() != nil {
				return fmt.Errorf("%s: deleted, and shows %v", uid, it)
			}
		}
	}
	return nil
}

// farApart moves a running service's clock, which must keep working. Then it restarts the service with that
// clock: it must store nothing, and the other must go on.
func (t *trial) farApart(ctx context.Context, p *proxy, by time.Duration) error {
	off := t.stack.services[1]
	return t.underLoad(wait(time.Second), func(ctx context.Context) error {
		p.clock(by)
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		if err := off.readyNow(ctx); err == nil {
			return fmt.Errorf("%s is ready while its clock is wrong", off.name)
		}
		off.kill()
		before := t.book.count()
		if err := errors.Join(t.storesNothing(ctx, off, t.stack.rpcs[1]), pause(ctx, 2*time.Second)); err != nil {
			return err
		}
		if t.book.count() == before {
			return errors.New("the other service acknowledges nothing")
		}
		p.clock(0)
		return t.stack.awaitReady(ctx)
	})(ctx)
}
