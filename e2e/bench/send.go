package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/internal/run"
)

// Session is one worker's way to a store. Send returns when the heartbeats with these
// numbers are acknowledged.
type Session interface {
	Send(ctx context.Context, beats []int32) error
	Close() error
}

// Shape is how heartbeats are sent: by so many workers, or one for each user when 0, each
// with one batch under way.
type Shape struct {
	Workers, Batch int
	// Rate is at how many a second the heartbeats come, whatever the store does; 0 is as
	// fast as it takes them.
	Rate int
}

// String returns the shape as the tables name it.
func (s Shape) String() string {
	text := fmt.Sprintf("%d x %d", s.Workers, s.Batch)
	if s.Workers == 0 {
		text = fmt.Sprintf("each user x %d", s.Batch)
	}
	if s.Rate > 0 {
		text += fmt.Sprintf(" at %d/s", s.Rate)
	}
	return text
}

// work sends a load through sessions, one for each worker.
type work struct {
	shape    Shape
	sessions []Session
	parts    [][]int32
	conn     *grpc.ClientConn // that the sessions share; nil is none
}

// prepare opens a session for each part of the heartbeats.
func prepare(s Shape, parts [][]int32, open func(part []int32) (Session, error)) (*work, error) {
	w := &work{shape: s, parts: parts}
	for _, part := range parts {
		session, err := open(part)
		if err != nil {
			w.close()
			return nil, err
		}
		w.sessions = append(w.sessions, session)
	}
	runtime.GC() // of what the preparation left
	return w, nil
}

func (w *work) close() {
	for _, s := range w.sessions {
		_ = s.Close() // what counts is acknowledged
	}
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// run sends everything. It returns how long that took, and, of heartbeats that come at a
// rate, how long each took from the moment when it came until it was acknowledged: a wait
// for a worker that a slow answer keeps busy counts.
func (w *work) run(ctx context.Context) (took time.Duration, latencies []time.Duration, err error) {
	began := time.Now()
	all := make([][]time.Duration, len(w.parts))
	g, ctx := errgroup.WithContext(ctx)
	for i, part := range w.parts {
		g.Go(func() (err error) {
			all[i], err = w.send(ctx, w.sessions[i], part, began)
			return err
		})
	}
	err = g.Wait()
	return time.Since(began), slices.Concat(all...), err
}

func (w *work) send(ctx context.Context, s Session, beats []int32, began time.Time) (latencies []time.Duration, err error) {
	if w.shape.Rate > 0 {
		latencies = make([]time.Duration, 0, len(beats))
	}
	for len(beats) > 0 {
		n := min(w.shape.Batch, len(beats))
		if w.shape.Rate > 0 {
			n = arrived(beats[:n], w.shape.Rate, began)
		}
		if err := sendAgain(ctx, s, beats[:n]); err != nil {
			return nil, err
		}
		if w.shape.Rate > 0 {
			latencies = appendLatencies(latencies, beats[:n], w.shape.Rate, time.Since(began))
		}
		beats = beats[n:]
	}
	return latencies, nil
}

// errUnavailable is what a session returns when the store asks to be sent the same later.
var errUnavailable = errors.New("unavailable")

// tries are how often the same is sent.
const tries = 20

// sendAgain sends a batch, and again after a pause where the store asks for it, as players
// do. All of that counts.
func sendAgain(ctx context.Context, s Session, beats []int32) (err error) {
	for range tries {
		if err = s.Send(ctx, beats); !errors.Is(err, errUnavailable) || !run.Sleep(ctx, time.Second) {
			return err
		}
	}
	return err
}

// due is when a heartbeat comes, after the beginning.
func due(beat int32, rate int) time.Duration {
	return time.Duration(beat) * time.Second / time.Duration(rate)
}

// arrived waits for the first heartbeat and returns how many have come.
func arrived(beats []int32, rate int, began time.Time) int {
	time.Sleep(time.Until(began.Add(due(beats[0], rate))))
	now, n := time.Since(began), 1
	for n < len(beats) && due(beats[n], rate) <= now {
		n++
	}
	return n
}

// warmUp is for how long the latencies of a load that comes at a rate do not count.
const warmUp = time.Second

func appendLatencies(all []time.Duration, beats []int32, rate int, now time.Duration) []time.Duration {
	for _, b := range beats {
		if at := due(b, rate); at >= warmUp {
			all = append(all, now-at)
		}
	}
	return all
}
