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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
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

// oneMoment puts, deletes and puts one object within one hold and one millisecond. It covers every order over two
// services, sequential and concurrent.
func oneMoment(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	orders := [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	var g errgroup.Group
	g.SetLimit(workers)
	for n := range 40 {
		for i, order := range orders {
			at := time.Now().UnixMilli() - 1000
			k := history.Key{UID: fmt.Sprintf("c3-%d-%d", n, i), Object: history.Object{ID: "o", Type: 1}}
			g.Go(func() error { return t.moment(ctx, k, at, order) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return inTurn(ctx, t.allAcked, t.markClean)
}

// moment makes the three writes in one order; concurrently for every other user. For every third user the last
// put is a millisecond later, and must then be visible.
func (t *trial) moment(ctx context.Context, k history.Key, at int64, order [3]int) error {
	later := int64(len(k.UID)+int(k.UID[3])) % 3 / 2
	writes := []func(rpcClient) error{
		func(d rpcClient) error { return t.put(ctx, d, k, history.KindProgress, at, 1000) },
		func(d rpcClient) error { return t.book.remove(ctx, d, []history.Key{k}, at) },
		func(d rpcClient) error { return t.put(ctx, d, k, history.KindStop, at+later, 2000) },
	}
	together := k.UID[len(k.UID)-1]%2 == 0
	var wg sync.WaitGroup
	errs := make([]error, len(order))
	for i, w := range order {
		do := func() { errs[i] = writes[w](t.stack.rpcs[i%2]) }
		if together {
			wg.Go(do)
		} else {
			do()
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (t *trial) put(ctx context.Context, d rpcClient, k history.Key, kind history.Kind, at, position int64) error { //nolint:revive // an event, spelled out
	e := t.book.note(history.Event{Key: k, Kind: kind, At: at, Position: position, Duration: length, Session: "s", Device: "tv"})
	_, err := t.book.send(ctx, d, []*event{e})
	return err
}

// latePhone clears whole histories, then uploads a phone's reports of a week offline. Nothing from before the
// clear may return; later reports may.
func latePhone(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	const week, users = 7 * 24 * 3600 * 1000, 40
	now := time.Now().UnixMilli()
	if err := t.week(ctx, users, now-week, now-3600_000); err != nil {
		return err
	}
	for n := range users {
		uid, typ := fmt.Sprintf("c5-%d", n), uint32(n%4) //nolint:gosec // small
		if err := t.book.clear(ctx, t.stack.rpcs[n%2], uid, typ, now-week/2); err != nil {
			return err
		}
	}
	if err := t.week(ctx, users, now-week, now); err != nil {
		return err
	}
	return inTurn(ctx, t.allAcked, t.markClean)
}

// week reports events of all users at random moments of a time range.
func (t *trial) week(ctx context.Context, users int, from, to int64) error {
	for n := range users {
		var events []*event
		for range 60 {
			o := t.rand.IntN(12)
			k := history.Key{UID: fmt.Sprintf("c5-%d", n), Object: history.Object{ID: fmt.Sprintf("o_%d", o), Type: uint32(1 + o%3)}} //nolint:gosec // small
			events = append(events, t.book.next(t.rand, k, from+t.rand.Int64N(to-from), false))
		}
		if _, err := t.book.send(ctx, t.stack.rpcs[n%2], events); err != nil {
			return err
		}
	}
	return nil
}

// hundred puts 100 objects of one user in one batch, deletes half of them, and puts some again.
func hundred(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	at := time.Now().UnixMilli() - 1000
	var events, again []*event
	var gone []history.Key
	for n := range 100 {
		k := history.Key{UID: "c6", Object: history.Object{ID: fmt.Sprintf("o_%d", n), Type: uint32(1 + n%3)}} //nolint:gosec // small
		events = append(events, t.book.next(t.rand, k, at, false))
		if n%2 == 0 {
			gone = append(gone, k)
		}
		if n%4 == 0 {
			again = append(again, t.book.next(t.rand, k, at+2, false))
		}
	}
	_, err := t.book.send(ctx, t.stack.rpcs[0], events)
	if err == nil {
		err = t.book.remove(ctx, t.stack.rpcs[1], gone, at+1)
	}
	if err == nil {
		_, err = t.book.send(ctx, t.stack.rpcs[0], again)
	}
	if err := errors.Join(err, t.markClean(ctx)); err != nil {
		return err
	}
	return t.columns(ctx, "c6", 100)
}

// columns checks the number of cells in a user's row and notes the number of messages.
func (t *trial) columns(ctx context.Context, uid string, want int) error {
	row, err := t.stack.archive.Page(ctx, uid, history.Query{Limit: 10_000})
	if err != nil {
		return err
	}
	messages, err := total(ctx, t.stack.jobs, "playhead_job_messages_total")
	if err != nil {
		return err
	}
	t.res.note("%d columns, announced by %.0f messages", len(row.Items), messages)
	if len(row.Items) != want || messages > 10 {
		return fmt.Errorf("got %d columns from %.0f messages, want %d from 10 at most", len(row.Items), messages, want)
	}
	return nil
}

// devices has two devices report one viewing, with deliberate rewinds, and sends reports with wrong clocks.
func devices(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	for n := range 50 {
		if err := t.watch(ctx, history.Key{UID: fmt.Sprintf("c14-%d", n), Object: history.Object{ID: "o", Type: 1}}); err != nil {
			return err
		}
	}
	return inTurn(ctx, t.allAcked, t.markClean, t.wrongClocks)
}

// watch plays one user: a phone plays, a paused television sends heartbeats, the phone rewinds.
func (t *trial) watch(ctx context.Context, k history.Key) error {
	at := time.Now().UnixMilli() - 60_000
	type step struct {
		kind     history.Kind
		at       int64
		position int64
		device   string
	}
	steps := []step{
		{history.KindStart, 0, 0, "tv"},
		{history.KindPause, 10_000, 300_000, "tv"},
		{history.KindProgress, 15_000, 310_000, "phone"},
		{history.KindPause, 20_000, 300_000, "tv"},
		{history.KindProgress, 30_000, 325_000, "phone"},
		{history.KindSeek, 31_000, 100_000, "phone"},
		{history.KindPause, 30_500, 300_000, "tv"}, // late
	}
	for i, s := range steps {
		e := t.book.note(history.Event{
			Key: k, Kind: s.kind, At: at + s.at, Position: s.position, Duration: length, Session: s.device, Device: s.device,
		})
		if _, err := t.book.send(ctx, t.stack.rpcs[i%2], []*event{e}); err != nil {
			return err
		}
	}
	return nil
}

// wrongClocks sends a time in seconds, which must be refused, and one from a clock an hour ahead, which must be
// corrected.
func (t *trial) wrongClocks(ctx context.Context) error {
	now := time.Now()
	ahead := now.Add(time.Hour).UnixMilli()
	resp, err := t.stack.rpcs[0].Apply(ctx, &historyv1.ApplyRequest{ReturnRecords: true, Heartbeats: []*historyv1.Heartbeat{
		{Uid: "c14", ObjectId: "seconds", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: now.Unix(), PositionMs: 1},
		{Uid: "c14", ObjectId: "ahead", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: ahead, SentAtMs: ahead, PositionMs: 1},
		{Uid: "c14", ObjectId: "future", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: ahead, PositionMs: 1},
	}})
	if err != nil {
		return err
	}
	if got := resp.GetStatuses()[0]; got != historyv1.Status_STATUS_INVALID {
		return fmt.Errorf("a time in seconds is %v, want it refused", got)
	}
	for _, it := range resp.GetRecords()[1:] {
		if d := it.GetEventTimeMs() - now.UnixMilli(); d < -1000 || d > 10_000 {
			return fmt.Errorf("a clock an hour ahead gives a record %d ms from now: %v", d, it)
		}
	}
	return nil
}

const day = 24 * 3600 * 1000 // milliseconds

// oldRows replays viewings from 89, 90 and 91 days ago with the command.
func oldRows(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	var csv strings.Builder
	csv.WriteString("user_id,video_id,time_ms,play_time_ms,duration_ms\n")
	for n, age := range []int64{89 * day, 90*day - 3600_000, 90*day + 60_000, 91 * day} {
		fmt.Fprintf(&csv, "c17-%d,v,%d,20000,30000\n", n, now-age)
		if n < 2 {
			t.viewing(fmt.Sprintf("c17-%d", n), now-age)
		}
	}
	file := filepath.Join(t.Dir, "old.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(t.Bin, "playhead"), "replay", "--service", t.stack.conns[0].Target(), file) //nolint:gosec // our own command
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("replay: %w: %s", err, out)
	}
	expired := ""
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "expired" {
			expired = f[1]
		}
	}
	if t.res.note("%s heartbeats counted as expired", expired); expired != "6" {
		return fmt.Errorf("%q heartbeats expired, want the 6 of two viewings: %s", expired, out)
	}
	return t.markClean(ctx)
}

// viewing notes the heartbeats that replay sends for a viewing of 20 s.
func (t *trial) viewing(uid string, at int64) {
	k := history.Key{UID: uid, Object: history.Object{ID: "v", Type: 1}}
	session := replay.Session(&replay.Viewing{At: at})
	for _, b := range []struct {
		kind   history.Kind
		played int64
	}{{history.KindStart, 0}, {history.KindProgress, 15_000}, {history.KindStop, 20_000}} {
		t.book.ack(t.book.note(history.Event{
			Key: k, Kind: b.kind, At: at + b.played, Position: b.played, Duration: 30_000, Session: session, Device: "replay",
		}))
	}
}
