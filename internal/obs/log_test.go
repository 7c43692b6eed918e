package obs_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/obs"
)

func TestNewLogger(t *testing.T) {
	tests := []struct{ level, format, want string }{ // want: the lowest line written, without its time
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

// wordy is an error that says more in another form.
type wordy struct{}

func (wordy) Error() string { return "disk is gone" }

func (wordy) Format(s fmt.State, verb rune) {
	text := "disk is gone"
	if verb == 'v' && s.Flag('+') {
		text += "\nattached stack trace\n  -- stack trace: main.main"
	}
	_, _ = io.WriteString(s, text)
}

// TestErrorsAreShort logs no stack with an error, in either format.
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
