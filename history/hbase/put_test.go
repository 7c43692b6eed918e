package hbase_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
)

// fake answers batches with its answer function.
type fake struct {
	gohbase.Client
	answer func(ctx context.Context, batch []hrpc.Call) []error

	mu      sync.Mutex
	batches [][]hrpc.Call
}

func (f *fake) SendBatch(ctx context.Context, batch []hrpc.Call) ([]hrpc.RPCResult, bool) {
	f.mu.Lock()
	f.batches = append(f.batches, batch)
	f.mu.Unlock()
	results, ok := make([]hrpc.RPCResult, len(batch)), true
	for i, err := range f.answer(ctx, batch) {
		results[i].Error = err
		ok = ok && err == nil
	}
	return results, ok
}

// Put is a batch of one.
func (f *fake) Put(call *hrpc.Mutate) (*hrpc.Result, error) {
	return nil, f.answer(call.Context(), []hrpc.Call{call})[0]
}

func (f *fake) Close() {}

// calls returns the number of calls in all batches.
func (f *fake) calls() int {
	n := 0
	for _, b := range f.batches {
		n += len(b)
	}
	return n
}

func stored(_ context.Context, batch []hrpc.Call) []error { return make([]error, len(batch)) }

// row returns the row of a call, value the put value.
func row(call hrpc.Call) string { return string(call.Key()) }

func value(call hrpc.Call) []byte {
	for _, v := range call.(*hrpc.Mutate).Values()["info"] {
		return v
	}
	return nil
}

// cells returns one cell for each of n users.
func cells(n int) []history.Cell {
	all := make([]history.Cell, n)
	for i := range all {
		all[i] = history.Cell{Key: history.Key{UID: fmt.Sprintf("u%d", i), Object: history.Object{ID: "a", Type: 1}}, Record: record(1000)}
	}
	return all
}

// TestPutOversize refuses all cells of a region that has one oversize cell.
func TestPutOversize(t *testing.T) {
	const limit = 1000
	f := &fake{answer: func(_ context.Context, batch []hrpc.Call) []error {
		errs, refused := make([]error, len(batch)), map[byte]bool{}
		for _, call := range batch {
			refused[row(call)[0]] = refused[row(call)[0]] || len(value(call)) > limit
		}
		for i, call := range batch {
			if refused[row(call)[0]] {
				errs[i] = java("org.apache.hadoop.hbase.DoNotRetryIOException", "exceeds limit")
			}
		}
		return errs
	}}
	all := cells(500)
	big := map[int]bool{7: true, 8: true, 300: true}
	for i := range big {
		all[i].Record = &history.Record{Revision: 1, Version: history.VersionOf(1000, 0), Device: strings.Repeat("x", limit)}
	}
	errs := hbase.NewWith(f, nil).Put(t.Context(), all)
	for i, err := range errs {
		if got := errors.Is(err, history.ErrPermanent); got != big[i] || (err != nil) != big[i] {
			t.Errorf("cell %d: got %v, want refused %v", i, err, big[i])
		}
	}
	if n := len(f.batches); n > 40 {
		t.Errorf("%d batches to find %d cells of 500", n, len(big))
	}
}

// TestPutRows puts the cells of a user in one call, each at its own time. If one of them is oversize, only that one is
// refused.
func TestPutRows(t *testing.T) {
	const limit = 1000
	store, began := hbasefake.New(time.Now), time.Now().UnixMilli()-1000
	var calls atomic.Int64
	client := store.Through(func(_ context.Context, x *hbasefake.Exchange) {
		for i := range x.Calls {
			if x.Calls[i].Put {
				calls.Add(1)
			}
			if x.Calls[i].Longest > limit {
				x.Fail(i, java("org.apache.hadoop.hbase.DoNotRetryIOException", "exceeds limit"))
				continue
			}
			x.Make(i)
		}
	})
	var all []history.Cell
	for i := range 60 {
		all = append(all, history.Cell{Key: history.Key{UID: fmt.Sprint("u", i/20), Object: history.Object{ID: fmt.Sprint(i), Type: 1}}, Record: record(began + int64(i))})
	}
	a := hbase.Over(client, hbase.Config{Bulk: true})
	if errs := a.Put(t.Context(), all); errs != nil || calls.Load() != 3 {
		t.Errorf("got %v in %d calls, want all in one for each user", errs, calls.Load())
	}
	all[7].Record.Device = strings.Repeat("x", limit)
	for i, err := range a.Put(t.Context(), all) {
		if errors.Is(err, history.ErrPermanent) != (i == 7) || (err != nil) != (i == 7) {
			t.Errorf("cell %d: %v", i, err)
		}
	}
	keys := make([]history.Key, len(all))
	for i, c := range all {
		keys[i] = c.Key
	}
	entries, err := a.Get(t.Context(), keys)
	for i, e := range entries {
		if e.Record == nil || e.Record.Version.Time() != began+int64(i) || e.Record.CellTime != began+int64(i) {
			t.Errorf("cell %d: got %+v at its time", i, e.Record)
		}
	}
	if err != nil || len(entries) != 60 {
		t.Errorf("got %d entries, %v", len(entries), err)
	}
}

// TestPutRefusedForAStranger sends each batch with another caller's oversize cell. Alone, each cell is stored.
func TestPutRefusedForAStranger(t *testing.T) {
	f := &fake{answer: func(_ context.Context, batch []hrpc.Call) []error {
		errs := make([]error, len(batch))
		for i, call := range batch {
			if !call.(*hrpc.Mutate).SkipBatch() {
				errs[i] = java("org.apache.hadoop.hbase.DoNotRetryIOException", "exceeds limit")
			}
		}
		return errs
	}}
	if errs := hbase.NewWith(f, nil).Put(t.Context(), cells(5)); errs != nil {
		t.Errorf("got %v, want all stored", errs)
	}
}

func TestPutHalfFails(t *testing.T) {
	f := &fake{answer: func(_ context.Context, batch []hrpc.Call) []error {
		errs := make([]error, len(batch))
		for i := range errs {
			if i%2 == 1 {
				errs[i] = gohbase.NotExecutedError
			}
		}
		return errs
	}}
	for i, err := range hbase.NewWith(f, nil).Put(t.Context(), cells(100)) {
		if got, want := errors.Is(err, history.ErrUnavailable), i%2 == 1; got != want {
			t.Errorf("cell %d: got %v, want failed %v", i, err, want)
		}
	}
	if len(f.batches) != 1 {
		t.Errorf("%d batches, want 1: the caller decides what to try again", len(f.batches))
	}
}

func TestPutOneKeyOnce(t *testing.T) {
	f := &fake{answer: stored}
	all := cells(2)
	all = append(all, all[0], all[0])
	all[2].Record, all[3].Record = record(3000), record(2000)
	if errs := hbase.NewWith(f, nil).Put(t.Context(), all); errs != nil {
		t.Errorf("got %v", errs)
	}
	if f.calls() != 2 {
		t.Errorf("%d calls, want 2: one for each key", f.calls())
	}
	f.answer = func(context.Context, []hrpc.Call) []error { return []error{gohbase.TableNotFound, nil} }
	errs := hbase.NewWith(f, nil).Put(t.Context(), all)
	var failed []bool
	for _, err := range errs {
		failed = append(failed, errors.Is(err, history.ErrUnavailable))
	}
	// The remaining cells' order: u1, then u0 of time 3000.
	if want := "[false true false false]"; fmt.Sprint(failed) != want {
		t.Errorf("failed %v, want %s", failed, want)
	}
}

func TestPutIllegal(t *testing.T) {
	f := &fake{answer: stored}
	all := cells(6)
	all[0].Key.UID = "a\nb"
	all[1].Key.Object.ID = "\x00"
	all[2].Record = nil
	all[3].Record = record(0)
	all[4].Key = history.UserKey("u")
	errs := hbase.NewWith(f, nil).Put(t.Context(), all)
	for i, err := range errs {
		if got, want := errors.Is(err, history.ErrPermanent), i < 5; got != want {
			t.Errorf("cell %d: got %v, want refused %v", i, err, want)
		}
	}
	if f.calls() != 1 {
		t.Errorf("%d calls, want 1", f.calls())
	}
}

func TestPutInBatches(t *testing.T) {
	f := &fake{answer: stored}
	a := hbase.NewWith(f, nil)
	if errs := a.Put(t.Context(), cells(1201)); errs != nil || len(f.batches) != 3 || f.calls() != 1201 {
		t.Errorf("1201 cells: got %v in %d batches of %d calls in all, want 3 batches", errs, len(f.batches), f.calls())
	}
	if errs := a.Put(t.Context(), nil); errs != nil || len(f.batches) != 3 {
		t.Errorf("no cells: got %v and %d more batches", errs, len(f.batches)-3)
	}
}

// pauses is a server with one user's pause. Another archive may write it before a put.
type pauses struct {
	fake
	value  []byte
	at     uint64
	before []history.Pause
	err    error
}

func (f *pauses) SendBatch(_ context.Context, batch []hrpc.Call) ([]hrpc.RPCResult, bool) {
	results := make([]hrpc.RPCResult, len(batch))
	for i := range results {
		var result pb.Result
		if f.value != nil {
			result.Cell = []*pb.Cell{{Qualifier: []byte("#paused"), Timestamp: &f.at, Value: f.value}}
		}
		results[i].Msg = &pb.GetResponse{Result: &result}
	}
	return results, true
}

func (f *pauses) CheckAndPut(put *hrpc.Mutate, _, column string, expected []byte) (bool, error) {
	if len(f.before) > 0 {
		f.value, f.before = hbase.PauseValue(f.before[0]), f.before[1:]
	}
	if f.err != nil || !bytes.Equal(f.value, expected) || column != "#paused" {
		return false, f.err
	}
	f.value = value(put)
	return true, nil
}

// TestPauseBesideAnother has another job put a pause of the same time in between. The winner does not depend on the
// order.
func TestPauseBesideAnother(t *testing.T) {
	on, off, longer := history.Pause{Since: 500}, history.Pause{Since: 200, Until: 500}, history.Pause{Since: 100, Until: 500}
	for _, tt := range []struct {
		put, want history.Pause
		before    []history.Pause
	}{
		{put: off, want: off},
		{put: off, before: []history.Pause{on}, want: on},
		{put: on, before: []history.Pause{off, longer}, want: on},
		{put: longer, before: []history.Pause{off}, want: longer},
		{put: off, before: []history.Pause{longer}, want: longer},
	} {
		f := &pauses{before: tt.before, at: hbase.PauseTime(on)}
		if err := hbase.NewWith(f, nil).PutUser(t.Context(), "u", history.User{Pause: tt.put}); err != nil || string(f.value) != string(hbase.PauseValue(tt.want)) {
			t.Errorf("%+v after %+v: stands %q, %v; want %+v", tt.put, tt.before, f.value, err, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		at   uint64
		want string
	}{"that is not later": {hbase.PauseTime(on), "500 0"}, "that is later": {hbase.PauseTime(on) + 1, "?"}} {
		f := &pauses{value: []byte("?"), at: tt.at}
		if err := hbase.NewWith(f, nil).PutUser(t.Context(), "u", history.User{Pause: on}); err != nil || string(f.value) != tt.want {
			t.Errorf("beside damage %s: stands %q, %v; want %q", name, f.value, err, tt.want)
		}
	}
	f := &pauses{err: gohbase.TableNotFound}
	if err := hbase.NewWith(f, nil).PutUser(t.Context(), "u", history.User{Pause: on}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("without an answer: %v, want unavailable", err)
	}
}
