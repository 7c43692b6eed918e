package ws_test

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkMessage measures a heartbeat and its answer over loopback with 500 concurrent players. The service
// stores nothing; the CPU time covers both ends.
func BenchmarkMessage(b *testing.B) {
	const players = 500
	addr, bearer := listen(b), mint(b, "u1", time.Hour)
	conns := make([]net.Conn, players)
	for i := range conns {
		conns[i] = bare(b, addr, bearer)
		b.Cleanup(func() { _ = conns[i].Close() })
	}
	b.ReportAllocs()
	before := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() { report(b, conn, (b.N+i)/players) })
	}
	wg.Wait()
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
}

func report(b *testing.B, conn net.Conn, n int) {
	text, answer := frame(), make([]byte, answerSize)
	for range n {
		if _, err := conn.Write(text); err != nil {
			b.Error(err)
			return
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkConnect measures a reconnect: connection, handshake, first heartbeat and close.
func BenchmarkConnect(b *testing.B) {
	addr, bearer := listen(b), mint(b, "u1", time.Hour)
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		_ = bare(b, addr, bearer).Close() // never fails
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
