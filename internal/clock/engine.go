package clock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// mostOff is the tolerated lead of an engine's clock.
const mostOff = 10 * time.Second

// EngineConfig configures an [Engine]. Name and Ahead are required.
type EngineConfig struct {
	Name string
	// Ahead returns the lead of the engine's clock over this process's, the largest of all servers.
	Ahead    func(context.Context) (time.Duration, error)
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Engine watches the clock of an engine that expires data by it, and warns the operator.
type Engine struct {
	cfg EngineConfig

	mu    sync.Mutex
	ahead time.Duration
}

// NewEngine returns an engine whose clock counts as right until Run measures it.
func NewEngine(cfg EngineConfig) *Engine {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	e := &Engine{cfg: cfg}
	promauto.With(cfg.Registry).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_clock_engine_ahead_seconds", Help: "How far an engine's clock is ahead of this process's, of several servers the one furthest off.",
		ConstLabels: prometheus.Labels{"engine": cfg.Name},
	}, func() float64 { return e.off().Seconds() })
	return e
}

// Name returns the engine's name.
func (e *Engine) Name() string { return e.cfg.Name }

func (e *Engine) off() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ahead
}

// Check fails if the last measurement was more than ten seconds off.
func (e *Engine) Check(context.Context) error {
	if off := e.off(); off.Abs() > mostOff {
		return fmt.Errorf("the clock of %s is ahead by %s: set it right, it lets data expire by that", e.cfg.Name, off.Round(time.Millisecond))
	}
	return nil
}

// Run measures once a minute until ctx is done. Without an answer the last measurement stands.
func (e *Engine) Run(ctx context.Context) error {
	t := time.NewTicker(trustEvery)
	defer t.Stop()
	for {
		e.measure(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *Engine) measure(ctx context.Context) {
	ahead, err := e.cfg.Ahead(ctx)
	if err != nil {
		return // the store reports outages
	}
	was := e.Check(ctx)
	e.mu.Lock()
	e.ahead = ahead
	e.mu.Unlock()
	switch is := e.Check(ctx); {
	case was == nil && is != nil:
		e.cfg.Logger.Error("engine clock out of bounds", "engine", e.cfg.Name, "ahead", ahead)
	case was != nil && is == nil:
		e.cfg.Logger.Info("engine clock within bounds again", "engine", e.cfg.Name)
	}
}

// Outside returns the distance of a time from a span: positive after it, negative before it, 0 within.
func Outside(at, began, ended time.Time) time.Duration {
	return max(at.Sub(ended), 0) + min(at.Sub(began), 0)
}
