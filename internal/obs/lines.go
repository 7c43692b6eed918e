package obs

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	patience = 100 * time.Millisecond // of whoever logs first while the output stands still
	room     = 1 << 20                // bytes that wait for it
)

// lines is an output of a log. Where out stands still, such as a pipe that nobody reads, lines wait, and those that
// find no room are lost; a line says how many.
type lines struct {
	out     io.Writer
	handler func(io.Writer) slog.Handler

	mu    sync.Mutex
	text  []byte        // that waits
	lost  int           // lines
	idle  chan struct{} // closed once all is written, nil when it is
	stuck bool
}

// Write returns when the line is written, so that the last one of a process is, or once out is known to stand still.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	if len(l.text)+len(line) > room {
		l.lost++
	} else {
		l.text = append(l.text, line...)
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.drain(l.idle)
	}
	idle, stuck := l.idle, l.stuck
	l.mu.Unlock()
	if stuck {
		return len(line), nil
	}
	select {
	case <-idle:
	case <-time.After(patience):
		l.mu.Lock()
		l.stuck = l.idle != nil
		l.mu.Unlock()
	}
	return len(line), nil
}

// drain writes what waits until nothing does.
func (l *lines) drain(idle chan struct{}) {
	for text := l.take(idle); text != nil; text = l.take(idle) {
		_, _ = l.out.Write(text) // there is nowhere else to tell of a failure
	}
}

func (l *lines) take(idle chan struct{}) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.NewBuffer(l.text)
	if l.lost > 0 {
		slog.New(l.handler(text)).Error("log stood still", "lost_lines", l.lost)
	}
	l.text, l.lost = nil, 0
	if text.Len() == 0 {
		l.idle, l.stuck = nil, false
		close(idle)
		return nil
	}
	return text.Bytes()
}
