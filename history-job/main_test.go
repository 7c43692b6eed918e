package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// unused returns a TCP address without a listener.
func unused(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestStartsWithoutEngines starts the job without Kafka and HBase. The job is live but not ready, names the
// missing engines, and stops on request.
func TestStartsWithoutEngines(t *testing.T) {
	admin := unused(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- work(ctx, []string{
			"--admin", admin, "--redis", miniredis.RunT(t).Addr(), "--kafka", unused(t), "--hbase", unused(t), "--drain", "2s",
		}, func(string) string { return "" }, io.Discard)
	}()
	failing := missing(t, admin)
	if want := []string{"dead letters", "hbase", "kafka"}; !slices.Equal(failing, want) {
		t.Errorf("/readyz misses %q, want %q", failing, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("job: %v", err)
	}
}

// TestReload changes the log level on SIGHUP. Rules need a restart.
func TestReload(t *testing.T) {
	lines, errOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lines.Close() })
	stderr := os.Stderr
	os.Stderr = errOut
	t.Cleanup(func() { os.Stderr = stderr })
	var hup atomic.Bool
	getenv := func(name string) string {
		changed := map[string]string{"PLAYHEAD_LOG_LEVEL": "warn", "PLAYHEAD_RULES": "done=95"}
		if !hup.Load() {
			return ""
		}
		return changed[name]
	}
	admin := unused(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- work(ctx, []string{"--admin", admin, "--redis", miniredis.RunT(t).Addr(), "--kafka", unused(t), "--hbase", unused(t), "--drain", "2s"}, getenv, io.Discard)
		_ = errOut.Close()
	}()
	missing(t, admin) // it runs
	hup.Store(true)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	reloaded := false
	for all := bufio.NewScanner(lines); all.Scan(); {
		switch line := all.Text(); {
		case strings.Contains(line, "settings reloaded"):
			if reloaded = true; !strings.Contains(line, "restart=[--rules]") {
				t.Errorf("%s, want --rules to need a restart", line)
			}
			cancel()
		case reloaded && strings.Contains(line, "level=INFO"):
			t.Errorf("after the level was warn: %s", line)
		}
	}
	if err := <-done; err != nil || !reloaded {
		t.Errorf("job: %v, reloaded %v", err, reloaded)
	}
}

// TestShortSummary rejects a short summary TTL by its flag's name, before connecting to an engine.
func TestShortSummary(t *testing.T) {
	err := work(t.Context(), []string{"--summary", "5h"}, func(string) string { return "" }, io.Discard)
	if err == nil || err.Error() != "--summary: want at least 2160h, for as long as there are records" {
		t.Errorf("got %v, want a line that names the flag", err)
	}
}

// TestTakenPort reports a taken port before connecting to an engine, whose error would hide it.
func TestTakenPort(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = work(t.Context(), []string{
		"--admin", taken.Addr().String(), "--redis", "nowhere:99999", "--kafka", unused(t), "--hbase", unused(t),
	}, func(string) string { return "" }, io.Discard)
	if err == nil || !strings.HasSuffix(err.Error(), "address already in use (choose another with --admin)") {
		t.Errorf("job: %v", err)
	}
}

// missing waits for an answer and returns the engines that readiness reports missing.
func missing(t *testing.T, admin string) []string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); ; {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			defer resp.Body.Close()
			var report struct{ Failing map[string]string }
			if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
				t.Fatal(err)
			}
			return slices.Sorted(maps.Keys(report.Failing))
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("no answer within 30s")
		}
	}
}
