package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/memnet"
)

func TestConnectionsAndTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		go func() { // ends with Close
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(conn, conn) }() // ends with the connection
			}
		}()
		conn, err := l.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 2)
		if _, err := conn.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hi" {
			t.Errorf("got %q, %v", answer, err)
		}
		l.Cut()
		if _, err := conn.Read(answer); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("after the cut: %v", err)
		}
		_, _ = l.Close(), l.Close()
		if _, err := l.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestNobodyAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := memnet.Listen().Dial(ctx, "", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
