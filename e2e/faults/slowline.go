package faults

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// slowLine passes connections on to one address. Each byte arrives a while later, and holds up
// none behind it, unless the line is narrow.
type slowLine struct {
	lis net.Listener
	to  string
	ctx context.Context
	end context.CancelFunc
	by  atomic.Int64 // nanoseconds, of the way there and back
	wg  sync.WaitGroup

	mu   sync.Mutex
	rate int64     // bytes a second that all connections take on the way there; 0 for any number
	free time.Time // when the next one may leave
}

func openLine(ctx context.Context, to string) (*slowLine, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &slowLine{lis: lis, to: to}
	l.ctx, l.end = context.WithCancel(ctx)
	l.wg.Go(l.serve)
	return l, nil
}

func (l *slowLine) addr() string { return l.lis.Addr().String() }

func (l *slowLine) set(by time.Duration) { l.by.Store(int64(by)) }

// narrow bounds how many bytes a second all connections take on the way there; 0 is for any
// number.
func (l *slowLine) narrow(rate int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate, l.free = rate, time.Now()
}

// due returns when so many bytes arrive that leave now.
func (l *slowLine) due(n int, there bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if there && l.rate > 0 {
		if l.free.After(at) {
			at = l.free
		}
		at = at.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		l.free = at
	}
	return at.Add(time.Duration(l.by.Load()) / 2)
}

func (l *slowLine) close() error {
	l.end()
	err := l.lis.Close()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (l *slowLine) serve() {
	for {
		in, err := l.lis.Accept()
		if err != nil {
			return // closed
		}
		out, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.to)
		if err != nil {
			_ = in.Close() // as the far end would
			continue
		}
		cut := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() }) // they may be closed already
		stop := context.AfterFunc(l.ctx, cut)
		for _, there := range []bool{true, false} {
			from, to := out, in
			if there {
				from, to = in, out
			}
			l.wg.Go(func() {
				defer stop()
				defer cut()
				l.pass(from, to, there)
			})
		}
	}
}

// piece is what was read at once, and when it is to arrive.
type piece struct {
	bytes []byte
	due   time.Time
}

func (l *slowLine) pass(from io.Reader, to io.Writer, there bool) {
	pieces, gone := make(chan piece, 1<<16), make(chan struct{})
	l.wg.Go(func() {
		defer close(gone)
		for p := range pieces {
			if pause(l.ctx, time.Until(p.due)) != nil {
				return
			}
			if _, err := to.Write(p.bytes); err != nil {
				return
			}
		}
	})
	defer close(pieces)
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case pieces <- piece{append([]byte(nil), buf[:n]...), l.due(n, there)}:
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}
