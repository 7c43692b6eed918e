package replay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// answers counts what became of heartbeats. Its methods may be called from many
// goroutines.
type answers struct {
	acked    atomic.Int64
	statuses [16]atomic.Int64
}

// Acked returns how many heartbeats were acknowledged so far.
func (a *answers) Acked() int64 { return a.acked.Load() }

// Statuses returns how many heartbeats were answered with each status.
func (a *answers) Statuses() map[historyv1.Status]int64 {
	m := make(map[historyv1.Status]int64)
	for i := range a.statuses {
		if n := a.statuses[i].Load(); n > 0 {
			m[historyv1.Status(i)] = n //nolint:gosec // a small constant range
		}
	}
	return m
}

// known reports whether a status is one that a service gives.
func (a *answers) known(s historyv1.Status) bool { return s > 0 && int(s) < len(a.statuses) }

// count counts a heartbeat.
func (a *answers) count(s historyv1.Status) {
	a.statuses[s].Add(1)
	a.acked.Add(1)
}

// StatusName returns a status as interfaces write it: "stored".
func StatusName(s historyv1.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

// Progress shows how far d has come with total heartbeats, until the returned
// function is called: a bar on a terminal, a line every few seconds elsewhere.
func Progress(out *os.File, total int, d interface{ Acked() int64 }) (done func()) {
	show, every := lines(out, total), 5*time.Second
	if term.IsTerminal(int(out.Fd())) { //nolint:gosec // a file descriptor
		show, every = bar(out, total), 100*time.Millisecond
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				show(d.Acked())
			case <-stop:
				show(d.Acked())
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

func bar(out io.Writer, total int) func(int64) {
	b := progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
		progressbar.OptionSetDescription("replay"), progressbar.OptionShowIts(), progressbar.OptionShowCount(),
		progressbar.OptionSetItsString("heartbeats"), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	return func(n int64) { _ = b.Set64(n) } // a bar that cannot be drawn is no reason to stop
}

func lines(out io.Writer, total int) func(int64) {
	began := time.Now()
	return func(n int64) {
		rate := float64(n) / time.Since(began).Seconds()
		fmt.Fprintf(out, "replay: %d of %d heartbeats, %.0f/s\n", n, total, rate)
	}
}

// ErrRefused means that the service found a heartbeat invalid.
var ErrRefused = errors.New("refused by the service")
