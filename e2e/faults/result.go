package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/playhead/playhead/history"
)

// Result is the outcome of one case.
type Result struct {
	Case         string    `json:"case"`
	Load         string    `json:"load"`
	Fault        string    `json:"fault"`
	Acknowledged int       `json:"acknowledged"` // heartbeats, deletes and clears
	Keys         int       `json:"keys"`
	Lost         int       `json:"lost"`
	Resurrected  int       `json:"resurrected"`
	Reads        int       `json:"reads"`    // during the faults, of one object each
	Short        int       `json:"short"`    // reads that showed less than was acknowledged before
	QuietMS      int64     `json:"quiet_ms"` // from the last acknowledgement until everything was archived
	Seed         uint64    `json:"seed"`
	Slow         []SlowRow `json:"slow,omitempty"`
	Notes        []string  `json:"notes,omitempty"`
	Examples     []string  `json:"examples,omitempty"` // differences
	Error        string    `json:"error,omitempty"`    // why the case could not run, or a missed expectation
}

// OK reports whether the case has run without a loss or a resurrection.
func (r *Result) OK() bool { return r.Lost == 0 && r.Resurrected == 0 && r.Short == 0 && r.Error == "" }

const maxExamples = 5

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

// read counts a read during the faults; a nil fault is none. It is not safe for concurrent use.
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

// Print writes the results as a table, and the notes of each below.
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

// PrintJSON writes one JSON object per result and line.
func PrintJSON(out io.Writer, results []Result) error {
	enc := json.NewEncoder(out)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// SlowRow is the effect of something slow on the affected players, and on the others.
type SlowRow struct {
	What      string   `json:"what"`
	Services  int      `json:"services"`
	Players   int      `json:"players"`
	Touched   Share    `json:"touched"`
	Others    Share    `json:"others"`
	RefusedMS int64    `json:"refused_ms"` // Latest failed answer to an affected player.
	LastedMS  int64    `json:"lasted_ms"`  // From the beginning until the last such answer.
	BackMS    int64    `json:"back_ms"`    // From the end until the last failed report was sent; 0 if before.
	Resyncs   int      `json:"resyncs"`    // Maximum per watcher.
	Edge      Weight   `json:"edge"`
	Missed    []string `json:"missed,omitempty"` // missed targets

	began, ended time.Time
}

// Share is the answers to some players' reports while something was slow; the worst of several times.
type Share struct {
	Players  int   `json:"players"`
	Sent     int   `json:"sent"`
	InTime   int   `json:"in_time"` // stored within the edge's deadline
	LatestMS int64 `json:"latest_ms"`
}

// Weight is the resident memory of the edge, MiB.
type Weight struct {
	Before int64 `json:"before_mib"`
	Most   int64 `json:"most_mib"`
}

func (s Share) share() float64 {
	if s.Sent == 0 {
		return 1
	}
	return float64(s.InTime) / float64(s.Sent)
}

func (s *Share) worst(other Share) {
	latest, players := max(s.LatestMS, other.LatestMS), max(s.Players, other.Players)
	if s.Sent == 0 || other.share() < s.share() {
		*s = other
	}
	s.LatestMS, s.Players = latest, players
}

// worst merges another row, keeping the worse of each figure.
func (r *SlowRow) worst(other SlowRow) {
	r.Players = other.Players
	r.Touched.worst(other.Touched)
	r.Others.worst(other.Others)
	r.RefusedMS, r.LastedMS = max(r.RefusedMS, other.RefusedMS), max(r.LastedMS, other.LastedMS)
	r.BackMS, r.Resyncs = max(r.BackMS, other.BackMS), max(r.Resyncs, other.Resyncs)
	r.Edge.Before, r.Edge.Most = cmp.Or(r.Edge.Before, other.Edge.Before), max(r.Edge.Most, other.Edge.Most)
}

func (r *SlowRow) want(held bool, format string, args ...any) {
	if !held {
		r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
	}
}

// wantOthers notes a miss if unaffected players wait too.
func (r *SlowRow) wantOthers() {
	r.want(r.Others.share() >= mostInTime, "of the others' reports %.1f %% are answered in time", 100*r.Others.share())
}

// wantBack notes a miss if the effect outlasts the fault.
func (r *SlowRow) wantBack() {
	r.want(r.BackMS <= backWithin.Milliseconds(), "the last failure is %d ms after the return", r.BackMS)
}

func printSlow(out io.Writer, results []Result) error {
	var rows []SlowRow
	for _, r := range results {
		rows = append(rows, r.Slow...)
	}
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	heads := []string{"slow", "services", "players touched", "of their reports in time", "refused within", "for", "well after", "others' reports in time", "their latest", "resyncs", "edge, MiB"}
	fmt.Fprintln(w, "| "+strings.Join(heads, "\t| ")+"\t|")
	fmt.Fprintln(w, strings.Repeat("|---\t", len(heads))+"|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s\t| %d\t| %s\t|\n", r.What, r.Services, strings.Join(r.cells(), "\t| "))
	}
	return w.Flush()
}

func (r SlowRow) cells() []string {
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	of := func(s Share) string {
		if s.Players == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*s.share())
	}
	return []string{
		fmt.Sprintf("%d of %d", r.Touched.Players, r.Players), of(r.Touched), ms(r.RefusedMS), ms(r.LastedMS), ms(r.BackMS),
		of(r.Others), ms(r.Others.LatestMS), fmt.Sprint(r.Resyncs), fmt.Sprintf("%d to %d", r.Edge.Before, r.Edge.Most),
	}
}
