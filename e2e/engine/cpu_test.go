package engine_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

func TestCPUIsWhatTheKernelCharges(t *testing.T) {
	for engineTime(t) < 50*time.Millisecond { // until there is something to compare
		_ = time.Now()
	}
	before := charged(t)
	got := engineTime(t)
	after := charged(t)
	if slack := 30 * time.Millisecond; got < before-slack || got > after+slack {
		t.Errorf("CPU is %v, want between %v and %v", got, before, after)
	}
}

func TestCPUOfNoProcess(t *testing.T) {
	if d, err := engine.CPU(1 << 30); err == nil {
		t.Errorf("CPU of a process that does not exist is %v, want an error", d)
	}
}

func engineTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := engine.CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// charged is the processor time of this process and its children.
func charged(t *testing.T) time.Duration {
	t.Helper()
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}
