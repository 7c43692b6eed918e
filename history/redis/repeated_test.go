package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// losing is a proxy. On demand it swallows the next script's answer, calls a function, and closes the connection.
type losing struct {
	net.Listener
	server string
	next   atomic.Pointer[func()]
}

func newLosing(t *testing.T, server string) *losing {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &losing{Listener: l, server: server}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(t.Context(), conn)
		}
	}()
	return p
}

func (p *losing) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var lose atomic.Pointer[func()]
	go func() {
		defer server.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(bytes.ToLower(buf[:n]), []byte("evalsha")) {
				lose.Store(p.next.Swap(nil))
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if f := lose.Swap(nil); f != nil && err == nil {
			(*f)()
			return
		}
		if err != nil {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestRepeatedRenumbering loses the answer to a call that renumbers records, so the client repeats it. A record
// written in between never gets an earlier revision back.
func TestRepeatedRenumbering(t *testing.T) {
	for name, call := range map[string]func(c *redis.Cache, uid string, at int64) error{
		"clear": func(c *redis.Cache, uid string, at int64) error {
			_, err := c.Clear(t.Context(), uid, history.Clear{Type: 0, Until: at - 1000})
			return err
		},
		"pause that changes nothing": func(c *redis.Cache, uid string, _ int64) error {
			return c.Pause(t.Context(), uid, history.Pause{}, history.Pause{})
		},
	} {
		for _, marksClean := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				fake := miniredis.RunT(t)
				direct := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
				p := newLosing(t, fake.Addr())
				flaky := open(t, redis.Config{Addrs: []string{p.Addr().String()}, Timeout: patience})
				k, at := key(user(t, direct), "1"), hourAgo()
				put(t, direct, history.Write{Key: k, Record: record(at, 1)})
				var loaded uint64
				meanwhile := func() {
					loaded = direct.Load(t.Context(), []history.Key{k})[0].Record.Revision
					put(t, direct, history.Write{Key: k, Record: record(at+1, 2), Base: loaded}) // acknowledged
				}
				p.next.Store(&meanwhile)
				if err := call(flaky, k.UID, at); err != nil {
					t.Fatal(err)
				}
				if loaded == 0 {
					t.Fatal("no answer was lost")
				}
				if marksClean {
					markClean(t, direct, k, loaded) // a job had archived the earlier content
					if r := direct.Load(t.Context(), []history.Key{k})[0].Record; r.Clean() || !dirty(t, direct, k) {
						t.Errorf("what was acknowledged and not archived is clean, with a mark: %t", dirty(t, direct, k))
					}
					return
				}
				out := direct.Write(t.Context(), []history.Write{{Key: k, Record: record(at+2, 3), Base: loaded}})[0]
				if out.Status != history.Conflict {
					t.Errorf("a write from before another one: got %+v, want a conflict: it replaces what was acknowledged", out.Status)
				}
			})
		}
	}
}

// TestRepeatedStateRevision loses the answer to a clear, and the user pauses before the repetition. A job that
// loaded the state before the pause must not mark the pause clean.
func TestRepeatedStateRevision(t *testing.T) {
	fake := miniredis.RunT(t)
	direct := open(t, redis.Config{Addrs: []string{fake.Addr()}, Timeout: patience})
	p := newLosing(t, fake.Addr())
	flaky := open(t, redis.Config{Addrs: []string{p.Addr().String()}, Timeout: patience})
	uid, at := user(t, direct), hourAgo()
	k := history.UserKey(uid)
	var loaded uint64
	meanwhile := func() {
		loaded = direct.Load(t.Context(), []history.Key{k})[0].User.Revision // by a job
		if err := direct.Pause(t.Context(), uid, history.Pause{}, history.Pause{Since: at}); err != nil {
			t.Error(err)
		}
	}
	p.next.Store(&meanwhile)
	if _, err := flaky.Clear(t.Context(), uid, history.Clear{Until: at - 1000}); err != nil {
		t.Fatal(err)
	}
	markClean(t, direct, k, loaded)
	if !dirty(t, direct, k) {
		t.Error("the pause has lost its mark, and was never archived")
	}
}

// TestLateAnswerIsNotAskedForAgain: calls to a slow server are not repeated.
func TestLateAnswerIsNotAskedForAgain(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			var calls atomic.Int32
			end := make(chan struct{})
			config, _ := fakeNodes(t, nodes, func(_ *server.Peer, cmd string, _ ...string) bool {
				if strings.HasPrefix(cmd, "EVAL") {
					calls.Add(1)
					<-end
				}
				return false
			})
			config.Cluster, config.Timeout = nodes > 1, time.Second
			c, at := open(t, config), hourAgo()
			k := key(user(t, c), "1")
			out := c.Write(t.Context(), []history.Write{{Key: k, Record: record(at, 1)}})[0]
			close(end)
			if !errors.Is(out.Err, history.ErrUnavailable) || calls.Load() != 1 {
				t.Errorf("got %v, error %v, after %d calls, want unavailable after one", out.Status, out.Err, calls.Load())
			}
		})
	}
}
