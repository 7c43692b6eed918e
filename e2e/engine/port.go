package engine

import (
	"context"
	"fmt"
	"net"
	"time"
)

// wantPorts are the ports to try first: those of an explicit base, else those
// of the last start, else those of the default base.
func wantPorts(base int, last, offsets []int) []int {
	if base == 0 && len(last) == len(offsets) {
		return last
	}
	if base == 0 {
		base = DefaultPortBase
	}
	ports := make([]int, len(offsets))
	for i, o := range offsets {
		ports[i] = base + o
	}
	return ports
}

// place moves every wanted port that somebody holds to the next free one a
// multiple of 100 away. Engines differ modulo 100 (see their offsets), so two
// of them starting side by side are never moved to the same port.
func place(ctx context.Context, want []int) ([]int, error) {
	ports := make([]int, len(want))
	for i, first := range want {
		p := first
		for p <= 65535 && !free(ctx, p) {
			p += 100
		}
		if p > 65535 {
			return nil, fmt.Errorf("no free port among %d, %d and so on", first, first+100)
		}
		ports[i] = p
	}
	return ports, nil
}

// released waits a moment for the ports of a process that was killed: the kernel
// closes them after the process has ceased to be seen. What is held for longer is
// somebody else's.
func released(ctx context.Context, ports []int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = until(ctx, func() (bool, error) {
		for _, p := range ports {
			if !free(ctx, p) {
				return false, fmt.Errorf("port %d is held", p)
			}
		}
		return true, nil
	})
}

func free(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
