package kafka_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

// TestDeadLetters buries letters and drives them again: each comes once, in order,
// and one that cannot be handled stays, with those after it.
func TestDeadLetters(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	dead, err := kafka.OpenDead(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	letters := []history.Dead{
		{Key: history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}, Origin: "archive", Reason: "too large", At: 1},
		{Payload: []byte{0xff, 0x00}, Origin: "partition 3 offset 17", Reason: "corrupt", At: 2},
		{Key: history.UserKey("bob"), Origin: "archive", Reason: "no such family \xff", At: 3},
	}
	if n := redriven(t, dead, nil); len(n) != 0 {
		t.Errorf("before any was added: %v", n)
	}
	if err := dead.Add(t.Context(), letters[:2]); err != nil {
		t.Fatal(err)
	}
	if got := redriven(t, dead, nil); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("got letters %v, want 1 2", got)
	}
	if err := dead.Add(t.Context(), letters[2:]); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if got := redriven(t, dead, broken); !slices.Equal(got, []int64{3}) {
		t.Errorf("got letters %v, want 3", got)
	}
	if got := redriven(t, dead, nil); !slices.Equal(got, []int64{3}) {
		t.Errorf("after a failure got letters %v, want 3 again", got)
	}
	if got := redriven(t, dead, nil); len(got) != 0 {
		t.Errorf("in the end got letters %v, want none", got)
	}
}

// redriven returns when the letters that are left were added. Their handling fails
// with the given error.
func redriven(t *testing.T, dead *kafka.DeadLetters, fail error) (at []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := dead.Redrive(ctx, func(_ context.Context, d history.Dead) error {
		at = append(at, d.At)
		return fail
	})
	if !errors.Is(err, fail) || ctx.Err() != nil {
		t.Errorf("redrive: got %v, want %v", err, fail)
	}
	return at
}

// TestDeadLettersAreWhole buries one letter of each kind.
func TestDeadLettersAreWhole(t *testing.T) {
	dead, err := kafka.OpenDead(t.Context(), fresh(t, cluster(t).ListenAddrs()))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	k := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	letters := []history.Dead{
		{Key: k, Record: &history.Record{Revision: 5, CellTime: 17, Version: history.VersionOf(10, 0)}, Origin: "archive", Reason: "too large", At: 1},
		{Key: k, Cell: []byte{0xff, 0x01}, Origin: "archive", Reason: "corrupt", At: 2},
		{Payload: []byte{0xff, 0x00}, Origin: "partition 3 offset 17", Reason: "corrupt", At: 3},
		{Key: history.UserKey("bob"), Cell: []byte("x"), Origin: "archive", Reason: "pause", At: 4},
	}
	if err := dead.Add(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	var got []history.Dead
	if _, err := dead.Redrive(t.Context(), func(_ context.Context, d history.Dead) error {
		got = append(got, d)
		return nil
	}); err != nil || !reflect.DeepEqual(got, letters) {
		t.Errorf("got %+v, %v, want %+v", got, err, letters)
	}
}
