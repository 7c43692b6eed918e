package obs_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/internal/obs"
)

func TestNewLogger(t *testing.T) {
	tests := []struct{ level, format, want string }{ // want: lowest line written, without its time
		{"", "", "level=INFO msg=state part=edge"},
		{"info", "text", "level=INFO msg=state part=edge"},
		{"debug", "text", "level=DEBUG msg=state part=edge"},
		{"WARN", "json", `"level":"WARN","msg":"state","part":"edge"}`},
		{"error", "json", `"level":"ERROR","msg":"state","part":"edge"}`},
	}
	for _, tt := range tests {
		t.Run(tt.level+" "+tt.format, func(t *testing.T) {
			var out bytes.Buffer
			log, err := obs.NewLogger(&out, tt.level, tt.format)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				log.Log(t.Context(), l, "state", "part", "edge")
			}
			if first, _, _ := strings.Cut(out.String(), "\n"); !strings.HasSuffix(first, tt.want) {
				t.Errorf("NewLogger(%q, %q) wrote %q first, want %q", tt.level, tt.format, first, tt.want)
			}
		})
	}
}

// wordy is an error with a longer text in another format.
type wordy struct{}

func (wordy) Error() string { return "disk is gone" }

func (wordy) Format(s fmt.State, verb rune) {
	text := "disk is gone"
	if verb == 'v' && s.Flag('+') {
		text += "\nattached stack trace\n  -- stack trace: main.main"
	}
	_, _ = io.WriteString(s, text)
}

// TestErrorsAreShort: neither format logs an error's stack.
func TestErrorsAreShort(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := obs.NewLogger(&out, "", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Error("store failed", "error", wordy{})
		if got := out.String(); strings.Contains(got, "stack") || !strings.Contains(got, "disk is gone") {
			t.Errorf("%s: got %q", format, got)
		}
	}
}

// TestDurationsHaveAUnit in both formats.
func TestDurationsHaveAUnit(t *testing.T) {
	for format, want := range map[string]string{"text": "took=1.5s", "json": `"took":"1.5s"`} {
		var out bytes.Buffer
		log, err := obs.NewLogger(&out, "", format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("component stopped", "took", 1500*time.Millisecond)
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %s", format, got, want)
		}
	}
}

func TestNewLoggerNamesTheChoices(t *testing.T) {
	tests := []struct{ level, format, want string }{
		{"loud", "text", `--log-level: want debug, info, warn or error, got "loud"`},
		{"info", "xml", `--log-format: want text or json, got "xml"`},
	}
	for _, tt := range tests {
		if _, err := obs.NewLogger(nil, tt.level, tt.format); err == nil || err.Error() != tt.want {
			t.Errorf("NewLogger(%q, %q): %v, want %s", tt.level, tt.format, err, tt.want)
		}
	}
}

// TestALogThatNobodyReads: unread output blocks no caller; lines beyond the buffer are dropped and counted.
func TestALogThatNobodyReads(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		synctest.Test(t, func(t *testing.T) {
			reads, writes := io.Pipe()
			log, err := obs.NewLogger(writes, "", format)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			log.Info("first", "n", 1)
			for n := range 20 {
				log.Info("later", "n", n, "pad", strings.Repeat("x", 100<<10))
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s: logging took %v while nobody reads", format, took)
			}
			var got []string
			go func() {
				lines := bufio.NewScanner(reads)
				lines.Buffer(nil, 1<<20)
				for lines.Scan() {
					got = append(got, lines.Text())
				}
			}()
			synctest.Wait()
			log.Info("last")
			synctest.Wait()
			if len(got) != 13 || !strings.Contains(got[0], "first") || !strings.Contains(got[10], "later") || !strings.Contains(got[12], "last") {
				t.Errorf("%s: got %d lines", format, len(got))
			} else if want := map[string]string{"text": "lost_lines=10", "json": `"lost_lines":10`}[format]; !strings.HasSuffix(strings.TrimSuffix(got[11], "}"), want) {
				t.Errorf("%s: got %q, want %s", format, got[11], want)
			}
			_ = writes.Close()
		})
	}
}

// TestSparing: a fault that each request meets does not fill the log.
func TestSparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := obs.NewLogger(&out, "", "")
		if err != nil {
			t.Fatal(err)
		}
		storm := func() {
			for i := range 100 {
				log.With("n", i).Warn("record not decoded")
				log.Error(fmt.Sprintf("http: TLS handshake error from 192.0.2.%d", i)) //nolint:sloglint // as net/http does
				log.Info("audit", "n", i)
				log.With("engine", []string{"redis", "kafka"}[i%2]).Warn("engine unavailable")
				log.Warn("engine unavailable", "engine", "hbase")
			}
		}
		count := func(what string, want int) {
			t.Helper()
			if got := strings.Count(out.String(), what); got != want {
				t.Errorf("%q is there %d times, want %d", what, got, want)
			}
		}
		storm()
		count("record not decoded", 3)
		count("TLS handshake", 3)
		count("msg=audit", 100)
		count("left_out", 0)
		for _, engine := range []string{"redis", "kafka", "hbase"} {
			count("engine="+engine, 3)
		}
		time.Sleep(time.Minute)
		log.Warn("record not decoded")
		storm()
		count("record not decoded", 6)
		count("left_out=97", 3) // with HBase's
	})
}
