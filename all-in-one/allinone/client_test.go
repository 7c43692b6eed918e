package allinone_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// wanderer is a player whose edge restarts at other addresses.
type wanderer struct {
	*client.Client
	at, token atomic.Value // of string
	told      sync.Map     // last answer, by object
}

func wander(t *testing.T) *wanderer {
	t.Helper()
	w := &wanderer{}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, w.at.Load().(string))
	}
	var err error
	w.Client, err = client.New(client.Config{
		URL:   "http://edge",
		Token: func(context.Context) (string, error) { return w.token.Load().(string), nil },
		HTTP:  &http.Client{Transport: &http.Transport{DialContext: dial}},
		Answered: func(a client.Answer) {
			w.told.Store(a.Heartbeat.GetObjectId(), a.Status)
		},
		MinWait: 20 * time.Millisecond, MaxWait: 200 * time.Millisecond, Queue: 5000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wanderer) meet(p *process) {
	w.token.Store(p.token)
	w.at.Store(strings.TrimPrefix(p.http, "http://"))
}

// TestPlayersSurviveAKill kills the process while a player reports over the WebSocket. Finally the stores have
// all reports.
func TestPlayersSurviveAKill(t *testing.T) {
	const rounds, each = 3, 500
	dir, w := t.TempDir(), wander(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for round := range rounds {
		p := start(t, dir)
		w.meet(p)
		if round == 0 {
			go func() { _ = w.Run(ctx) }() // ends with ctx
		}
		w.watch(t, round*each, each)
		if round == rounds-1 {
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		p.kill()
	}
	db, err := pebble.Open(dir, pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for n := range rounds * each {
		k := history.Key{UID: "demo", Object: history.Object{ID: fmt.Sprint(n), Type: 1}}
		if e := db.Cache().Load(t.Context(), []history.Key{k})[0]; e.Err != nil || e.Record != nil {
			if e.Err != nil {
				t.Errorf("%s: %v", k, e.Err)
			}
			continue
		}
		// The cache keeps only the newest thousand.
		if e, err := db.Archive().Get(t.Context(), []history.Key{k}); err != nil || e[0].Record == nil {
			told, _ := w.told.Load(k.Object.ID)
			t.Errorf("%s is in neither store, %v; the player was told %v", k, err, told)
		}
	}
}

func (w *wanderer) watch(t *testing.T, from, n int) {
	t.Helper()
	for i := range n {
		err := w.Report(&historyv1.Heartbeat{
			ObjectId: fmt.Sprint(from + i), ObjectType: 1, Kind: historyv1.Kind_KIND_STOP,
			EventTimeMs: time.Now().UnixMilli(), PositionMs: 1000, DurationMs: 60_000,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
