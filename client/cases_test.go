package client_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/playhead/playhead/client"
)

// TestOutboxCases takes the steps of testdata/outbox.json, which the JavaScript client passes too. Docs/clients.md
// explains them.
func TestOutboxCases(t *testing.T) {
	text, err := os.ReadFile("testdata/outbox.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name  string
		Queue int
		Steps []string
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("read %d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Queue == 0 {
				c.Queue = 500
			}
			m := client.NewMachine(c.Queue)
			for i, step := range c.Steps {
				does, told, _ := strings.Cut(step, " -> ")
				words := strings.Fields(does)
				want := strings.Fields(told)
				if words[0] == "send" {
					want = words[1:]
				}
				if got := m.Step(words[0], words[1:]); !slices.Equal(got, want) {
					t.Fatalf("step %d, %s: got %q, want %q", i, step, got, want)
				}
			}
		})
	}
}
