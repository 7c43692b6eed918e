package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/run"
)

func TestCommands(t *testing.T) {
	all := []string{"\n  serve     ", "\n  token     ", "\n  doctor    ", "\n  lag       ", "\n  hot       ", "\n  move      ", "\n  drain     ", "\n  replay    ", "\n  retention ", "--help lists the flags"}
	for _, tt := range []struct {
		args string
		want []string
		err  string
	}{
		{"", all, ""},
		{"help", all, ""},
		{"--help", all, ""},
		{"--version", []string{"playhead "}, run.ErrHelp.Error()},
		{"serve --help", []string{"Usage: playhead serve", "--token-secret-file"}, run.ErrHelp.Error()},
		{"replay erase --help", []string{"Usage: playhead replay erase <uid>"}, run.ErrHelp.Error()},
		{"server", nil, "unknown command server (playhead lists the commands)"},
		{"--nope", nil, "unknown flag --nope"},
		{"serve --nope", nil, "playhead serve --help lists the flags"},
	} {
		var out strings.Builder
		err := playhead(t.Context(), strings.Fields(tt.args), none, &out)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("playhead %s: got %v, want %q", tt.args, err, tt.err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("playhead %s: got\n%s\nwant %q in it", tt.args, out.String(), want)
			}
		}
		if (tt.err == run.ErrHelp.Error()) != errors.Is(err, run.ErrHelp) {
			t.Errorf("playhead %s: got %v, want %v", tt.args, err, run.ErrHelp)
		}
	}
}
