package obs

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	patience = 100 * time.Millisecond // wait of the first caller while output is blocked
	room     = 1 << 20                // limit of buffered bytes
)

// lines buffers log output. While out blocks, such as on an unread pipe, lines accumulate; lines beyond the
// limit are dropped and counted in a later line.
type lines struct {
	out     io.Writer
	handler func(io.Writer) slog.Handler

	mu    sync.Mutex
	text  []byte        // buffered
	lost  int           // dropped lines
	idle  chan struct{} // closed once text is written; nil when idle
	stuck bool
}

// Write returns once the line is written, which saves a process's last line, or once out counts as blocked.
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

func (l *lines) drain(idle chan struct{}) {
	for text := l.take(idle); text != nil; text = l.take(idle) {
		_, _ = l.out.Write(text) // a failure has nowhere to be logged
	}
}

func (l *lines) take(idle chan struct{}) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.NewBuffer(l.text)
	if l.lost > 0 {
		slog.New(l.handler(text)).Error("log output was blocked", "lost_lines", l.lost)
	}
	l.text, l.lost = nil, 0
	if text.Len() == 0 {
		l.idle, l.stuck = nil, false
		close(idle)
		return nil
	}
	return text.Bytes()
}
