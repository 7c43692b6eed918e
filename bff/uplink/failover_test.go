package uplink_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// owned returns a user of the given instance.
func owned(t *testing.T, c *uplink.Client, by *instance) string {
	t.Helper()
	for _, uid := range users(1000) {
		if who, err := list(t.Context(), c, uid); err == nil && who == by.addr {
			return uid
		}
	}
	t.Fatalf("%s serves nobody", by.addr)
	return ""
}

// apply1 starts a call and returns a channel for its outcome.
func apply1(t *testing.T, c *uplink.Client, uid string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { _, err := c.Apply(t.Context(), beats(uid, 1)); done <- err }() // returns when the client closes
	return done
}

func TestWhatIsOnItsWayToTheDeadGoesToTheNext(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].hang = make(chan struct{})
		uid := owned(t, c, all[0])
		var calls []<-chan error
		for range 10 {
			calls = append(calls, apply1(t, c, uid))
		}
		<-all[0].asked
		all[0].server.Stop()
		for _, done := range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := all[1].sizes(); !slices.Equal(got, []int{10}) {
			t.Errorf("the next one got batches of %v, want one of 10", got)
		}
	})
}

// A draining instance answers pending calls and receives no new ones.
func TestDrain(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].hang = make(chan struct{})
		uid := owned(t, c, all[0])
		before := apply1(t, c, uid)
		<-all[0].asked
		all[0].health.Shutdown()
		synctest.Wait()
		if err := <-apply1(t, c, uid); err != nil {
			t.Errorf("while the owner takes its leave: %v", err)
		}
		stopped := make(chan struct{})
		go func() { all[0].server.GracefulStop(); close(stopped) }() // returns with the answer
		close(all[0].hang)
		if err := <-before; err != nil {
			t.Errorf("what it had: %v", err)
		}
		<-stopped // the stream has ended
		if a, b := all[0].sizes(), all[1].sizes(); !slices.Equal(a, []int{1}) || !slices.Equal(b, []int{1}) {
			t.Errorf("batches of %v and %v, want one of 1 for each", a, b)
		}
	})
}

// A server that stops without a health update sends GOAWAY.
func TestGoAway(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		uid := owned(t, c, all[0])
		if err := <-apply1(t, c, uid); err != nil {
			t.Fatal(err)
		}
		all[0].server.GracefulStop()
		if err := <-apply1(t, c, uid); err != nil || len(all[1].sizes()) != 1 {
			t.Errorf("got %v, batches of %v", err, all[1].sizes())
		}
	})
}

func TestAnInstanceThatStallsIsLeft(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		uid := owned(t, c, all[0])
		all[0].stop()
		began := time.Now()
		if err := <-apply1(t, c, uid); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second+4*time.Millisecond { // plus twice the linger
			t.Errorf("it took %v", took)
		}
		if err := <-apply1(t, c, uid); err != nil || len(all[1].sizes()) != 2 { // during the pause
			t.Errorf("the next call: %v, batches of %v", err, all[1].sizes())
		}
		all[0].resume()
		time.Sleep(10 * time.Second) // virtual time
		if got := owned(t, c, all[0]); got != uid {
			t.Errorf("it serves %s and not %s any more", got, uid)
		}
	})
}

func TestAStreamThatBreaks(t *testing.T) {
	for name, tt := range map[string]struct {
		broken error
		skew   uint64
		want   codes.Code
	}{
		"the instance is at fault":      {broken: status.Error(codes.Internal, "bug"), want: codes.OK},
		"it answers something else":     {skew: 1, want: codes.OK},
		"all instances would say so":    {broken: status.Error(codes.Unimplemented, "what"), want: codes.Unimplemented},
		"it ends without having failed": {broken: status.Error(codes.OK, ""), want: codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				uid := owned(t, c, all[0])
				all[0].broken, all[0].skew = tt.broken, tt.skew
				if err := <-apply1(t, c, uid); status.Code(err) != tt.want {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if _, err := list(t.Context(), c, uid); err != nil { // during the pause, from another instance
					t.Errorf("a read: %v", err)
				}
				all[0].broken, all[0].skew = nil, 0
				time.Sleep(time.Second) // virtual time
				awaitUp(t, c, all[0])
			})
		})
	}
}

// A slow instance is used if it is the only one.
func TestTheOnlyInstanceMayBeSlow(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.hang = make(chan struct{})
		time.AfterFunc(5*time.Second, func() { close(i.hang) })
		if _, err := c.Apply(t.Context(), beats("u1", 1)); err != nil || len(i.sizes()) != 1 {
			t.Errorf("%v, batches of %v", err, i.sizes())
		}
	})
}

// Connections can be lost without either end noticing, as behind a proxy. New ones work.
func TestConnectionsThatAreLost(t *testing.T) {
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubbles(t, n, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				for _, i := range all {
					i.lose()
				}
				began := time.Now()
				for ok := false; !ok; {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					_, err := c.Apply(ctx, beats("u", 1))
					cancel()
					ok = err == nil
					time.Sleep(100 * time.Millisecond) // virtual time
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the next answer came after %v", took)
				}
			})
		})
	}
}

// resolver answers lookups from a list.
type resolver struct {
	mu    sync.Mutex
	hosts []string
	err   error
}

func (r *resolver) set(err error, hosts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts, r.err = hosts, err
}

func (r *resolver) lookup(_ context.Context, host string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if host != "history" {
		return nil, errors.New("no such host")
	}
	return r.hosts, r.err
}

func TestNamesAreLookedUpAgain(t *testing.T) {
	r := &resolver{hosts: []string{"10.0.0.0", "10.0.0.1", "10.0.0.0"}}
	cfg := uplink.Config{Services: []string{"dns:///history:1"}, Lookup: r.lookup}
	bubbles(t, 3, cfg, func(t *testing.T, all []*instance, c *uplink.Client) {
		awaitUp(t, c, all[:2]...)
		r.set(nil, "10.0.0.2", "10.0.0.1")
		time.Sleep(70 * time.Second) // virtual time; a working instance stays for a minute
		awaitUp(t, c, all[1:]...)
		before := all[0].lists.Load()
		r.set(errors.New("resolver down"))
		time.Sleep(5 * time.Second) // virtual time
		r.set(nil)
		time.Sleep(5 * time.Second) // virtual time
		awaitUp(t, c, all[1:]...)
		if all[0].lists.Load() != before {
			t.Error("one that is gone was asked")
		}
	})
}

// TestANameOfManyInstances resolves two of three addresses at a time, as with partial DNS answers. No user
// moves.
func TestANameOfManyInstances(t *testing.T) {
	var asked atomic.Int64
	lookup := func(context.Context, string) ([]string, error) {
		n := asked.Add(1)
		return []string{fmt.Sprintf("10.0.0.%d", n%3), fmt.Sprintf("10.0.0.%d", (n+1)%3)}, nil
	}
	cfg := uplink.Config{Services: []string{"dns:///history:1"}, Lookup: lookup}
	bubbles(t, 3, cfg, func(t *testing.T, all []*instance, c *uplink.Client) {
		time.Sleep(30 * time.Second) // virtual time; each was resolved by then
		owner := make(map[string]string)
		for range 30 {
			for _, uid := range users(20) {
				who, err := list(t.Context(), c, uid)
				if err != nil || owner[uid] != "" && who != owner[uid] {
					t.Fatalf("%s is served by %q, and was by %q: %v", uid, who, owner[uid], err)
				}
				owner[uid] = who
			}
			time.Sleep(9 * time.Second) // virtual time
		}
	})
}

// TestANameOfNobody resolves to an address without a listener. The current instances stay until a resolved
// one is up.
func TestANameOfNobody(t *testing.T) {
	r := &resolver{hosts: []string{"10.0.0.0", "10.0.0.1"}}
	cfg := uplink.Config{Services: []string{"dns:///history:1"}, Lookup: r.lookup}
	bubbles(t, 3, cfg, func(t *testing.T, all []*instance, c *uplink.Client) {
		awaitUp(t, c, all[:2]...)
		r.set(nil, "10.0.0.9")
		for range 30 {
			for _, uid := range users(20) {
				if _, err := list(t.Context(), c, uid); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(9 * time.Second) // virtual time
		}
		r.set(nil, "10.0.0.2")
		time.Sleep(70 * time.Second) // virtual time
		for _, uid := range users(50) {
			if who, err := list(t.Context(), c, uid); err != nil || who != all[2].addr {
				t.Fatalf("%s is served by %q, want the one that is named: %v", uid, who, err)
			}
		}
	})
}

// A read in progress survives its instance's removal from DNS, and no other read is cut off before it is
// answered.
func TestAReadOutlivesTheName(t *testing.T) {
	r := &resolver{hosts: []string{"10.0.0.0"}}
	cfg := uplink.Config{Services: []string{"dns:///history:1"}, Lookup: r.lookup}
	bubbles(t, 2, cfg, func(t *testing.T, all []*instance, c *uplink.Client) {
		awaitUp(t, c, all[0])
		all[0].hang = make(chan struct{})
		done := make(chan error, 1)
		go func() { _, err := c.Points(t.Context(), &historyv1.PointsRequest{}); done <- err }() // returns when hang closes
		<-all[0].asked
		r.set(nil, "10.0.0.1")
		time.Sleep(70 * time.Second) // virtual time, until the first one is dropped
		awaitUp(t, c, all[1])
		close(all[0].hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestANameThatIsUnknown(t *testing.T) {
	r := &resolver{}
	cfg := uplink.Config{Services: []string{"dns:///nowhere:1"}, Lookup: r.lookup}
	bubbles(t, 0, cfg, func(t *testing.T, _ []*instance, c *uplink.Client) {
		began := time.Now()
		_, err := c.List(t.Context(), &historyv1.ListRequest{Uid: "u1"})
		if status.Code(err) != codes.Unavailable || time.Since(began) > 0 {
			t.Errorf("got %v after %v, want %v at once", err, time.Since(began), codes.Unavailable)
		}
	})
}

// An instance whose connections end as soon as they are ready is redialed with pauses, and is used once
// they last.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doors := newPipes()
		i := serveOn(t, doors)
		i.addr = "10.0.0.1:1"
		var dialled, well atomic.Int64
		c := open(t, uplink.Config{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			if dialled.Add(1); well.Load() > 0 {
				return doors.dial(ctx)
			}
			here, there := net.Pipe()
			go func() {
				_, _ = io.ReadFull(there, make([]byte, len(http2.ClientPreface)))
				f := http2.NewFramer(there, there)
				_ = f.WriteSettings()
				_, _ = f.ReadFrame()
				_ = there.Close()
			}()
			return here, nil
		}}, i)
		time.Sleep(10 * time.Second) // virtual time
		if n := dialled.Load(); n < 5 || n > 110 {
			t.Errorf("dialled %d times in 10 s", n)
		}
		well.Store(1)
		time.Sleep(10 * time.Second) // virtual time
		if err := apply(t.Context(), c, "user1"); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		i.server.Stop()
	})
}
