// Package obs is what an operator sees of a process: its log, its metrics, and the admin port with health, readiness
// and profiles.
package obs

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewLogger returns a logger that writes to out from level on. The level is debug, info, warn or error, in any case,
// and "" is info; the format is text or json, and "" is text. Anything else is an error
// that names the flag and the choices.
func NewLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); level != "" && err != nil {
		return nil, fmt.Errorf("--log-level: want debug, info, warn or error, got %q", level)
	}
	options := &slog.HandlerOptions{Level: l, ReplaceAttr: short}
	switch format {
	case "", "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	}
	return nil, fmt.Errorf("--log-format: want text or json, got %q", format)
}

// short leaves out of an error what it has beside its message: some write the stack of where they come from.
func short(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(err.Error())
		}
	}
	return a
}

// NewRegistry returns a registry that holds the metrics every process has: the Go runtime, the process and the build.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return reg
}
