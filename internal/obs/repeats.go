package obs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	repeats = 3           // equal warnings or errors in a period
	period  = time.Minute // from the first of them

	maxMessages = 1000 // remembered; more are forgotten together
)

// sparing is a handler that leaves out equal warnings and errors beyond three a minute, as a fault that meets each
// request has. The next line that is written says how many. Equal lines have the same message and are about the same
// part.
type sparing struct {
	slog.Handler
	past *past
	part string // from attributes of the logger
}

// parts are the attributes that name a part.
var parts = []string{"engine", "server", "topic", "addr", "node", "part", "worker"}

// partIn returns the value of an attribute that names a part.
func partIn(a slog.Attr) string {
	if slices.Contains(parts, a.Key) {
		return " " + a.Value.String()
	}
	return ""
}

// past is what was written lately, by message.
type past struct {
	mu sync.Mutex
	of map[string]*recent
}

type recent struct {
	began          time.Time
	lines, leftOut int
}

// Handle implements [slog.Handler].
func (h sparing) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	part := h.part
	r.Attrs(func(a slog.Attr) bool { part += partIn(a); return true })
	leftOut, ok := h.past.add(r, part)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	var part strings.Builder
	part.WriteString(h.part)
	for _, a := range attrs {
		part.WriteString(partIn(a))
	}
	return sparing{h.Handler.WithAttrs(attrs), h.past, part.String()}
}

// WithGroup implements [slog.Handler].
func (h sparing) WithGroup(name string) slog.Handler {
	return sparing{h.Handler.WithGroup(name), h.past, h.part}
}

// add counts a line, and reports whether to write it and how many were left out before it. Messages are constant, but
// for those of libraries, which differ after their first digit.
func (p *past) add(r slog.Record, part string) (leftOut int, ok bool) {
	message := r.Message
	if i := strings.IndexAny(message, "0123456789"); i >= 0 {
		message = message[:i]
	}
	message += part
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]*recent)
	}
	seen := p.of[message]
	if len(p.of) >= maxMessages {
		clear(p.of)
	}
	if seen == nil || r.Time.Sub(seen.began) >= period {
		if seen != nil {
			leftOut = seen.leftOut
		}
		seen = &recent{began: r.Time}
		p.of[message] = seen
	}
	if seen.lines >= repeats {
		seen.leftOut++
		return 0, false
	}
	seen.lines++
	return leftOut, true
}
