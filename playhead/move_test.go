package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	front "github.com/playhead/playhead/bff/edge"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// running starts a part and returns a function that stops it.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func runningAllInOne(t *testing.T, cfg allinone.Config) (p *allinone.Process, stop func()) {
	t.Helper()
	cfg.RPC, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
	p, err := allinone.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, running(t, p.Run)
}

// runningEdge runs an edge of other services, as bff does.
func runningEdge(t *testing.T, addr, service string, secret []byte) {
	t.Helper()
	up, err := uplink.Open(uplink.Config{Services: []string{service}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	tokens, err := token.NewVerifier(secret, "")
	if err != nil {
		t.Fatal(err)
	}
	lis, err := run.Listen(t.Context(), "listen", addr)
	if err != nil {
		t.Fatal(err)
	}
	e, err := front.New(front.Config{Service: up, Tokens: tokens, Listener: lis, UserRate: 1000, UserBurst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var g run.Group
	e.AddTo(&g)
	running(t, g.Run)
}

// watcher is a user who plays all the time, and deletes now and then.
type watcher struct {
	*client.Client
	mu     sync.Mutex
	stored map[string]int64 // position of the latest acknowledged report, by object
	gone   map[string]bool  // deleted objects, which are not played again
	count  int64
}

func newWatcher(t *testing.T, url, uid string, secret []byte) *watcher {
	t.Helper()
	text, err := token.Mint(secret, uid, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{stored: make(map[string]int64), gone: make(map[string]bool)}
	w.Client, err = client.New(client.Config{
		URL: url, Token: client.StaticToken(text), NoRecords: true, MinWait: 10 * time.Millisecond, MaxWait: 100 * time.Millisecond,
		Answered: func(a client.Answer) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if a.Status != historyv1.Status_STATUS_STORED && a.Status != historyv1.Status_STATUS_UNCHANGED {
				t.Errorf("%s: %v %v", a.Heartbeat.GetObjectId(), a.Status, a.Refusal)
			}
			w.stored[a.Heartbeat.GetObjectId()] = max(w.stored[a.Heartbeat.GetObjectId()], a.Heartbeat.GetPositionMs())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, w.Run)
	return w
}

// play reports some viewings, whose positions grow, and waits for the answers.
func (w *watcher) play(ctx context.Context, prefix string) error {
	for range 20 {
		w.count++
		h := &historyv1.Heartbeat{ObjectId: fmt.Sprintf("%s-%d", prefix, w.count%7), ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, PositionMs: 60_000 + w.count, DurationMs: 3_600_000, EventTimeMs: time.Now().UnixMilli()}
		if err := w.Report(h); err != nil {
			return err
		}
	}
	return w.Flush(ctx)
}

// remove deletes an object until that is acknowledged.
func (w *watcher) remove(ctx context.Context, id string) error {
	for ctx.Err() == nil {
		if _, err := w.Delete(ctx, &historyv1.Object{Id: id, Type: 1}); err == nil {
			w.mu.Lock()
			w.gone[id] = true
			w.mu.Unlock()
			return nil
		}
		run.Sleep(ctx, 5*time.Millisecond)
	}
	return ctx.Err()
}

// check compares the history with what was acknowledged.
func (w *watcher) check(t *testing.T, when, uid string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make(map[string]bool)
	for it, err := range w.List(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		id := it.GetObject().GetId()
		found[id] = true
		if w.gone[id] {
			t.Errorf("%s: %s of %s was deleted", when, id, uid)
		} else if it.GetPositionMs() < w.stored[id] {
			t.Errorf("%s: %s of %s at %d, want %d", when, id, uid, it.GetPositionMs(), w.stored[id])
		}
	}
	for id := range w.stored {
		if !found[id] && !w.gone[id] {
			t.Errorf("%s: %s of %s is lost", when, id, uid)
		}
	}
}

// TestMove moves an all-in-one to another service while players report and delete. The command is killed in each step,
// and started again; the edge takes the place of the all-in-one, which does not start any more. The service stands for
// the three engines.
func TestMove(t *testing.T) {
	secret, addr, admin := strings.Repeat("s", 40), freePort(t), freePort(t)
	dirs := [2]string{filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")}
	secretFile, switched := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "switched")
	if err := os.WriteFile(secretFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--data", dirs[0], "--listen", addr, "--rpc", freePort(t), "--admin", admin, "--token-secret-file", secretFile, "--user-rate", "1000", "--user-burst", "1000", "--log-level", "error"}
	old := startProcess(t, serve...)
	next, stopNext := runningAllInOne(t, allinone.Config{Dir: dirs[1], HTTP: "127.0.0.1:0"})
	users := make(map[string]*watcher)
	for n := range 5 {
		uid := fmt.Sprintf("user-%d", n)
		w := newWatcher(t, "http://"+addr, uid, []byte(secret))
		for _, prefix := range []string{"old", "both", "gone"} {
			if err := w.play(t.Context(), prefix); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.remove(t.Context(), "gone-0"); err != nil {
			t.Fatal(err)
		}
		users[uid] = w
	}
	var load sync.WaitGroup
	moved := make(chan struct{})
	for _, w := range users {
		load.Go(func() {
			for round := 0; ; round++ {
				if err := errors.Join(w.play(t.Context(), "both"), w.play(t.Context(), fmt.Sprint("new", round%5))); err != nil {
					t.Error(err)
					return
				}
				if round < 7 {
					if err := w.remove(t.Context(), fmt.Sprint("gone-", round)); err != nil {
						t.Error(err)
					}
				}
				select {
				case <-moved:
					if round >= 7 {
						return
					}
				default:
				}
			}
		})
	}
	move := func() *process {
		return startProcess(t, "move", "--data", dirs[0], "--admin", admin, "--service", next.RPC(), "--edge", "touch "+switched)
	}
	for _, file := range []string{filepath.Join(dirs[0]+".moving", "snapshot"), filepath.Join(dirs[0]+".moving", "snapshot.checkpoint"), switched} {
		p := move()
		awaitFile(t, file)
		p.kill()
	}
	<-old.done
	runningEdge(t, addr, next.RPC(), []byte(secret))
	last := move()
	<-last.done
	if out := last.out.String(); !last.cmd.ProcessState.Success() || !strings.Contains(out, "moved: everything that "+dirs[0]+" has is in "+next.RPC()) {
		t.Fatal(out)
	}
	again := startProcess(t, serve...)
	<-again.done
	if out := again.out.String(); again.cmd.ProcessState.Success() || !strings.Contains(out, "has moved to the service") {
		t.Errorf("the all-in-one starts again: %s", out)
	}
	close(moved)
	load.Wait()
	for uid, w := range users {
		w.check(t, "moved", uid)
	}
	stopNext()
	if out, err := replayed(t, "verify", "--from=archive:"+dirs[0], "--to=archive:"+dirs[1], "--wait=0s"); err != nil {
		t.Errorf("verify: %s, %v", out, err)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if !run.Sleep(t.Context(), 5*time.Millisecond) {
			t.Fatal(path, t.Context().Err())
		}
	}
}
