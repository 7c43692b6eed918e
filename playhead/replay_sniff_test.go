package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSniff pastes the map that a first run proposes into a second one.
func TestSniff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "views.csv")
	if err := os.WriteFile(path, []byte("who;video_id;at;name\nu;x;1700000000;The X\nu;y;soon;The Y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want []string
		fail string
	}{
		{[]string{path}, []string{"column who", `e.g. "u"`}, "no known form"},
		{[]string{path, "--map", "user=who,object=video_id,time=at:s,title=name"}, []string{"form: CSV", "views.csv:2: object x_1, finished at 2023-11-14T22:13:20Z, user u, title \"The X\"", "views.csv:3:5: rejected: time: \"soon\""}, ""},
		{[]string{path, "--zone", "Mars"}, nil, "--zone: zone: want a zone"},
		{[]string{path + "x"}, nil, "no such file"},
	} {
		var out strings.Builder
		err := replayCommand(t.Context(), append([]string{"sniff"}, tt.args...), none, &out)
		if tt.fail == "" && err != nil || tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.fail)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: got\n%s\nwant %q in it", tt.args, out.String(), want)
			}
		}
	}
}
