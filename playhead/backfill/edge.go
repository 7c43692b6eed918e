package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Edge is a target that reports viewings through an edge, as the users' players: a WebSocket and a token per user,
// within the rate limits.
type Edge struct {
	// URL is the edge's base URL, such as https://edge.example.com.
	URL string
	// Token returns a user's token.
	Token func(uid string) (string, error)
	// Period is as in [Service], Patience bounds the time without an answer (default 60 s).
	Period, Patience time.Duration
	Logger           *slog.Logger
}

// usersOfCall bounds the concurrent connections of a call.
const usersOfCall = 8

// Fold implements [Target].
func (t *Edge) Fold(ctx context.Context, items []Item) ([]Result, error) {
	players := make(map[string]*player)
	results := make([]Result, len(items))
	for i := range items {
		if items[i].Event == nil {
			return nil, fmt.Errorf("%s: an edge takes viewings of files only", items[i].Key)
		}
		p := players[items[i].Key.UID]
		if p == nil {
			p = &player{uid: items[i].Key.UID, results: results, waiting: make(map[report][]int), progress: make(chan struct{}, 1)}
			players[p.uid] = p
		}
		for e := range Beats(items[i].Event, t.Period.Milliseconds()) {
			p.add(i, e)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(usersOfCall)
	for _, p := range players {
		g.Go(func() error {
			if err := t.user(ctx, p); err != nil {
				return fmt.Errorf("report as %s: %w", p.uid, err)
			}
			return nil
		})
	}
	return results, g.Wait()
}

// player reports the items of one user.
type player struct {
	uid     string
	results []Result // of the call
	beats   []*historyv1.Heartbeat

	mu       sync.Mutex // guards results and waiting
	waiting  map[report][]int
	progress chan struct{}
}

// report names a heartbeat of a user.
type report struct {
	object  history.Object
	session string
	kind    historyv1.Kind
	at      int64
}

func reportOf(hb *historyv1.Heartbeat) report {
	return report{history.Object{ID: hb.GetObjectId(), Type: hb.GetObjectType()}, hb.GetSession(), hb.GetKind(), hb.GetEventTimeMs()}
}

func (p *player) add(item int, e *history.Event) {
	hb := heartbeat(e)
	p.beats = append(p.beats, hb)
	p.waiting[reportOf(hb)] = append(p.waiting[reportOf(hb)], item)
}

// answered notes a result.
func (p *player) answered(a client.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := reportOf(a.Heartbeat)
	if all := p.waiting[r]; len(all) > 0 {
		result := Result{Outcome: statusOutcomes[a.Status]}
		if a.Refusal != nil {
			result.Reason = a.Refusal.GetField() + ": " + a.Refusal.GetReason()
		}
		p.results[all[0]], p.waiting[r] = worse(p.results[all[0]], result), all[1:]
	}
	run.Wake(p.progress)
}

// user reports all heartbeats of a user, in order of time.
func (t *Edge) user(ctx context.Context, p *player) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c, err := client.New(client.Config{
		URL: t.URL, Token: func(context.Context) (string, error) { return t.Token(p.uid) },
		Unauthorized: func(err error) {
			end(fmt.Errorf("the edge at %s refuses the tokens, is the secret its own, and the audience? %w", t.URL, err))
		},
		Answered: p.answered, Queue: len(p.beats), NoRecords: true, Recorded: true, Logger: t.Logger,
	})
	if err != nil {
		return err
	}
	for _, hb := range p.beats {
		if err := c.Report(hb); err != nil {
			return err
		}
	}
	go t.watch(ctx, p, end)
	ended, flushed := make(chan error, 1), make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	go func() { flushed <- c.Flush(ctx) }()
	select {
	case err := <-ended: // refused permanently, or interrupted
		return cmp.Or(err, context.Cause(ctx))
	case err := <-flushed:
		cause := context.Cause(ctx)
		end(nil)
		<-ended //nolint:errcheck // it was ended by end
		return cmp.Or(cause, err, p.whole())
	}
}

var errUnanswered = errors.New("the edge did not answer all reports")

// whole fails if an answer is missing.
func (p *player) whole() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, items := range p.waiting {
		if len(items) > 0 {
			return errUnanswered
		}
	}
	return nil
}

// watch ends a run without progress.
func (t *Edge) watch(ctx context.Context, p *player, end context.CancelCauseFunc) {
	patience := run.Default(t.Patience, 60*time.Second)
	for {
		late := time.NewTimer(patience)
		select {
		case <-p.progress:
		case <-ctx.Done():
			late.Stop()
			return
		case <-late.C:
			end(fmt.Errorf("the edge at %s has answered nothing for %v: is it there?", t.URL, patience))
			return
		}
		late.Stop()
	}
}
