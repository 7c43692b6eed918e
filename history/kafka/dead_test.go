package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/wire"
)

// TestDeadLetters adds letters and redrives them: each comes once, in order. One that fails stays, with those after
// it.
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

// TestRedriveWhatRetentionLeft redrives letters after retention has removed the first ones, with a new group and
// with a group that is behind. Neither waits for the removed ones.
func TestRedriveWhatRetentionLeft(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	dead, err := kafka.OpenDead(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	for at := range int64(8) {
		if err := dead.Add(t.Context(), []history.Dead{{Payload: []byte{0xff}, At: at}}); err != nil {
			t.Fatal(err)
		}
		switch at {
		case 3:
			if err := c.DeleteRecords(cfg.Topic, 0, 2); err != nil {
				t.Fatal(err)
			}
			if got := redriven(t, dead, nil); !slices.Equal(got, []int64{2, 3}) {
				t.Errorf("got letters %v, want the 2 and 3 that are left", got)
			}
		case 7:
			if err := c.DeleteRecords(cfg.Topic, 0, 6); err != nil {
				t.Fatal(err)
			}
			if got := redriven(t, dead, nil); !slices.Equal(got, []int64{6, 7}) {
				t.Errorf("got letters %v, want the 6 and 7 that are left", got)
			}
		}
	}
	if err := c.DeleteRecords(cfg.Topic, 0, 8); err != nil {
		t.Fatal(err)
	}
	if got := redriven(t, dead, nil); len(got) != 0 {
		t.Errorf("in the end got letters %v, want none", got)
	}
}

// redriven returns the times of redriven letters. Their handling fails with the given error.
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

// TestDeadLettersAreWhole adds one letter of each kind.
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

// TestLetterTooLarge cuts a payload that is too large for the topic. A damaged cell is not cut.
func TestLetterTooLarge(t *testing.T) {
	dead, err := kafka.OpenDead(t.Context(), fresh(t, cluster(t).ListenAddrs()))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	large := make([]byte, 2<<20)
	_, _ = rand.Read(large)
	if err := dead.Add(t.Context(), []history.Dead{{Payload: large, Reason: "corrupt", At: 1}, {Payload: large[:9], At: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := dead.Add(t.Context(), []history.Dead{{Key: history.UserKey("ann"), Cell: large}}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("a cell: %v, want unavailable", err)
	}
	var got []history.Dead
	_, err = dead.Redrive(t.Context(), func(_ context.Context, d history.Dead) error {
		got = append(got, d)
		return nil
	})
	if err != nil || len(got) != 2 || !bytes.HasPrefix(large, got[0].Payload) || len(got[0].Payload) < 100_000 || !strings.Contains(got[0].Reason, "corrupt; of 2097152 bytes") || got[1].At != 2 {
		t.Errorf("got %d letters, %v", len(got), err)
	}
}

func TestFirstOfDay(t *testing.T) { announceFirsts(t, fresh(t, cluster(t).ListenAddrs())) }

// announceFirsts announces more than one request takes, and reads the topic with another client.
func announceFirsts(t *testing.T, cfg kafka.Config) {
	const n = 2500
	cfg.Partitions = 2
	f, err := kafka.NewFirstOfDay(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	firsts := make([]history.First, n)
	for i := range firsts {
		firsts[i] = history.First{Sighting: history.Sighting{UID: fmt.Sprint("user", i), Day: 20_778}, At: int64(i)}
	}
	for _, some := range [][]history.First{nil, firsts} {
		if err := f.Announce(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[history.First]bool{}
	for p := range cfg.Partitions {
		r := driver.NewReader(driver.ReaderConfig{Brokers: cfg.Brokers, Topic: cfg.Topic, Partition: p, MaxWait: 100 * time.Millisecond})
		defer r.Close()
		want := 0
		for _, one := range firsts {
			if int(history.BucketOf(one.UID))%cfg.Partitions == p {
				want++
			}
		}
		for range want {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("partition %d: %v, after %d messages", p, err, len(got))
			}
			one, err := wire.First(m.Value)
			if err != nil || one.UID != string(m.Key) || one.Day.Number() != 20261121 {
				t.Errorf("message %q: got %+v, %v", m.Key, one, err)
			}
			got[one] = true
		}
	}
	if len(got) != n {
		t.Errorf("%d users came, want %d", len(got), n)
	}
}

func TestFirstOfDayWithoutBrokers(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "history.first-of-day"))
	f, err := kafka.NewFirstOfDay(kafka.Config{Brokers: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	firsts := []history.First{{Sighting: history.Sighting{UID: "ann", Day: 20_778}}}
	if err := f.Announce(t.Context(), firsts); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Announce(ctx, firsts); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("announce to nobody: %v, want unavailable", err)
	}
}

// TestAllDeadLetters reads letters without consuming them, before and after they were redriven.
func TestAllDeadLetters(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	dead, err := kafka.OpenDead(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	all := func() (at []int64) {
		t.Helper()
		if err := dead.All(t.Context(), func(d history.Dead) error {
			at = append(at, d.At)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if got := all(); len(got) != 0 {
		t.Errorf("before any was added: %v", got)
	}
	if err := dead.Add(t.Context(), []history.Dead{{Payload: []byte{0xff}, At: 1}, {Key: history.UserKey("bob"), At: 2}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := all(); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("got letters %v, want 1 2", got)
		}
		redriven(t, dead, nil)
	}
	broken := errors.New("broken")
	if err := dead.All(t.Context(), func(history.Dead) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
