package replay

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

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
