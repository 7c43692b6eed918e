package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// crowd is how many invented players report while somebody looks at /flow.
const crowd = 12

// every is how often each reports, in seconds: more often than other players, so that there is
// something to see, and seldom enough that it costs next to nothing.
const every = 4

// play has the crowd play until ctx is done. Its players come in through the edge, as others do,
// and nothing that they play is long.
func play(ctx context.Context, p *allinone.Process) {
	var players sync.WaitGroup
	for n := range crowd {
		players.Go(func() {
			if run.Sleep(ctx, rand.N(5*time.Second)) { // not all at once
				playOne(ctx, p, fmt.Sprintf("crowd-%d", n))
			}
		})
	}
	players.Wait()
}

func playOne(ctx context.Context, p *allinone.Process, uid string) {
	http := &http.Client{Transport: &http.Transport{}}
	defer http.CloseIdleConnections()
	c, err := client.New(client.Config{
		URL: "http://" + p.HTTP(), Device: "crowd", NoRecords: true, HTTP: http,
		Token:   func(context.Context) (string, error) { return p.Token(uid, time.Hour) },
		Changed: func(*historyv1.Change) {},
	})
	if err != nil {
		return // the demo goes on without
	}
	var connection sync.WaitGroup
	connection.Go(func() { _ = c.Run(ctx) })
	defer connection.Wait()
	for view(ctx, c) {
	}
}

// view plays something for some seconds. One in eight players leaves without a word, and the
// hold of what was played runs out.
func view(ctx context.Context, c *client.Client) bool {
	length := every * (2 + rand.N(5))
	beat := &historyv1.Heartbeat{
		ObjectId: fmt.Sprint(rand.N(1000)), ObjectType: video, Kind: historyv1.Kind_KIND_START,
		Session: fmt.Sprint(rand.Uint64()), DurationMs: time.Hour.Milliseconds(),
	}
	for second := 0; second < length; second += every {
		if second > 0 {
			beat.Kind = historyv1.Kind_KIND_PROGRESS
		}
		if !report(c, beat, second) || !run.Sleep(ctx, every*time.Second) {
			return false
		}
	}
	if beat.Kind = historyv1.Kind_KIND_STOP; rand.N(8) > 0 && !report(c, beat, length) {
		return false
	}
	return run.Sleep(ctx, time.Second+rand.N(2*time.Second))
}

func report(c *client.Client, beat *historyv1.Heartbeat, second int) bool {
	beat.EventTimeMs, beat.PositionMs = time.Now().UnixMilli(), int64(second)*1000
	beat.WatchedMs = beat.PositionMs
	return c.Report(beat) == nil
}
