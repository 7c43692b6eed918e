package limit_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/bff/limit"
)

// TestWhoNeverWaits checks that a user over the limit is refused with a delay. Others are not.
func TestWhoNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := limit.New(2, 5)
		for left := range 5 {
			b, err := users.Take("u1", 1)
			if want := (limit.Budget{Limit: 5, Left: 4 - left, Reset: time.Duration(left+1) * time.Second / 2}); err != nil || b != want {
				t.Errorf("got %+v, %v; want %+v", b, err, want)
			}
		}
		_, err := users.Take("u1", 1)
		if e, ok := errors.AsType[*limit.Exceeded](err); !ok || e.Wait != time.Second/2 || e.Left != 0 {
			t.Fatalf("got %v", err)
		}
		if _, err := users.Take("u2", 1); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(time.Second / 2) // bubble time
		if _, err := users.Take("u1", 1); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

func TestWhatIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := limit.New(1, 5)
		if _, err := users.Take("u1", 6); err != nil {
			t.Fatalf("it is lent what it lacks: %v", err)
		}
		users.Spend("u1", 3)
		_, err := users.Take("u1", 1)
		if e, ok := errors.AsType[*limit.Exceeded](err); !ok || e.Wait != 5*time.Second {
			t.Errorf("got %v, want 5 s", err)
		}
		time.Sleep(time.Hour) // bubble time; no more than full
		if b, err := users.Take("u1", 1); err != nil || b.Left != 4 {
			t.Errorf("after an hour: %+v, %v", b, err)
		}
	})
}

// TestDebtsAreKept checks that debt is kept until paid, whatever other users do.
func TestDebtsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := limit.New(1, 10)
		users.Spend("u1", 25) // ten are debt, paid after 10 s
		for second := range 30 {
			users.Spend(fmt.Sprint("other", second), 1)
			_, err := users.Take("u1", 0)
			if (err != nil) != (second < 11) {
				t.Errorf("after %d s: %v", second, err)
			}
			time.Sleep(time.Second) // bubble time
		}
	})
}

func TestUsersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, before := limit.New(10, 60), memory()
		for second := range 60 {
			for n := range 1000 {
				_, _ = users.Take(fmt.Sprint(second, "-", n), 1)
			}
			time.Sleep(time.Second) // bubble time
		}
		if grown := memory() - before; grown > 4<<20 { // 60,000 buckets would take 8 MiB or more
			t.Errorf("%d bytes for users of whom few are not full", grown)
		}
		runtime.KeepAlive(users)
	})
}

func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // it fits
}

func TestDefaults(t *testing.T) {
	for _, given := range []float64{0, -1} {
		if b, err := limit.New(given, given).Take("u1", 1); err != nil || b.Limit != 60 || b.Reset != time.Second/10 {
			t.Errorf("%v: %+v, %v", given, b, err)
		}
	}
	if b, _ := limit.New(1, 0.1).Take("u1", 1); b.Limit != 1 {
		t.Errorf("a burst below one: %+v", b)
	}
}
