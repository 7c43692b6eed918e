package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/history"
)

// Result is what one case cost.
type Result struct {
	Case         string    `json:"case"`
	Load         string    `json:"load"`
	Fault        string    `json:"fault"`
	Acknowledged int       `json:"acknowledged"` // heartbeats, deletes and clears
	Keys         int       `json:"keys"`
	Lost         int       `json:"lost"`
	Resurrected  int       `json:"resurrected"`
	Reads        int       `json:"reads"`    // while things broke, of one object each
	Short        int       `json:"short"`    // of these, that showed less than was acknowledged before
	QuietMS      int64     `json:"quiet_ms"` // from the last acknowledgement until all was archived
	Seed         uint64    `json:"seed"`
	Slow         []SlowRow `json:"slow,omitempty"`
	Notes        []string  `json:"notes,omitempty"`
	Examples     []string  `json:"examples,omitempty"` // of what is wrong
	Error        string    `json:"error,omitempty"`    // why the case could not run, or what it wanted else
}

// OK reports whether nothing was lost or came back and the case has run.
func (r *Result) OK() bool { return r.Lost == 0 && r.Resurrected == 0 && r.Short == 0 && r.Error == "" }

// maxExamples bounds how many differences are told.
const maxExamples = 5

// count notes what is wrong with a key.
func (r *Result) count(k history.Key, where string, f *fault) {
	if f.resurrected {
		r.Resurrected++
	} else {
		r.Lost++
	}
	r.example(k, where, f)
}

func (r *Result) example(k history.Key, where string, f *fault) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf("%s: %s %s", where, k, f.why))
	}
}

// read notes what a reader was shown while things broke; a nil fault is none. One goroutine
// at a time may call it.
func (r *Result) read(k history.Key, where string, f *fault) {
	r.Reads++
	if f != nil {
		r.Short++
		r.example(k, where, f)
	}
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Print writes the results as a table, and below it what is to be said of each.
func Print(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tLOAD\tFAULT\tACKNOWLEDGED\tLOST\tRESURRECTED\tREADS\tSHORT\tQUIET AFTER")
	for _, r := range results {
		lost, risen := fmt.Sprint(r.Lost), fmt.Sprint(r.Resurrected)
		if r.Error != "" {
			lost, risen = "failed", "failed"
		}
		quiet := time.Duration(r.QuietMS) * time.Millisecond
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", r.Case, r.Load, r.Fault, r.Acknowledged, lost, risen, r.Reads, r.Short, quiet.Round(100*time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		r.remarks(out)
	}
	return printSlow(out, results)
}

func (r *Result) remarks(out io.Writer) {
	for _, n := range r.Notes {
		fmt.Fprintf(out, "%s: %s\n", r.Case, n)
	}
	for _, e := range r.Examples {
		fmt.Fprintf(out, "%s: WRONG: %s\n", r.Case, e)
	}
	if r.Error != "" {
		fmt.Fprintf(out, "%s: FAILED: %s\n", r.Case, strings.ReplaceAll(r.Error, "\n", "\n    "))
	}
}

// PrintJSON writes one JSON object per result, one line each.
func PrintJSON(out io.Writer, results []Result) error {
	enc := json.NewEncoder(out)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
