package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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
