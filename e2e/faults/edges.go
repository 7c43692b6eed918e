package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// devices lets two devices report one viewing, rewinds on purpose, and sends clocks
// that are wrong.
func devices(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	for n := range 50 {
		if err := t.watch(ctx, history.Key{UID: fmt.Sprintf("c14-%d", n), Object: history.Object{ID: "o", Type: 1}}); err != nil {
			return err
		}
	}
	return errors.Join(t.allAcked(), t.settle(ctx), t.wrongClocks(ctx))
}

// watch is one user: a phone plays, a paused television beats on, the phone rewinds.
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
		if _, err := t.book.send(ctx, t.stack.doors[i%2], []*event{e}); err != nil {
			return err
		}
	}
	return nil
}

// wrongClocks sends a time in seconds, which is refused, and one of a clock that is
// an hour ahead, which is corrected.
func (t *trial) wrongClocks(ctx context.Context) error {
	now := time.Now()
	ahead := now.Add(time.Hour).UnixMilli()
	resp, err := t.stack.doors[0].Apply(ctx, &historyv1.ApplyRequest{ReturnRecords: true, Heartbeats: []*historyv1.Heartbeat{
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

// oldRows replays viewings of 89, 90 and 91 days ago with the command.
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
	cmd := exec.CommandContext(ctx, filepath.Join(t.Bin, "replay"), "--service", t.stack.conns[0].Target(), "--no-shift", file) //nolint:gosec // our own command
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
	return t.settle(ctx)
}

// viewing notes the heartbeats that replay makes of a viewing of 20 s.
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
