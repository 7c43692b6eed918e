package faults

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// SlowRow is what something slow cost the players: those whom it touched, and the others.
type SlowRow struct {
	What      string   `json:"what"`
	Services  int      `json:"services"`
	Players   int      `json:"players"`
	Touched   Share    `json:"touched"`
	Others    Share    `json:"others"`
	RefusedMS int64    `json:"refused_ms"` // the latest answer without success to those touched
	LastedMS  int64    `json:"lasted_ms"`  // from the beginning until the last such answer
	BackMS    int64    `json:"back_ms"`    // from the end until the last report that failed was sent, 0 if before
	Resyncs   int      `json:"resyncs"`    // of the watcher that was told the most
	Edge      Weight   `json:"edge"`
	Missed    []string `json:"missed,omitempty"` // the figures that were not held

	began, ended time.Time
}

// Share is how the reports of some players were answered while something was slow; of
// several times the worst.
type Share struct {
	Players  int   `json:"players"`
	Sent     int   `json:"sent"`
	InTime   int   `json:"in_time"` // stored, within the time that the edge has
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

func (s *Share) add(e exchange) {
	s.Sent++
	if e.ok {
		s.InTime++
	}
	s.LatestMS = max(s.LatestMS, e.took.Milliseconds())
}

func (s *Share) worst(other Share) {
	latest, players := max(s.LatestMS, other.LatestMS), max(s.Players, other.Players)
	if s.Sent == 0 || other.share() < s.share() {
		*s = other
	}
	s.LatestMS, s.Players = latest, players
}

// worst takes over what of another time was worse.
func (r *SlowRow) worst(other SlowRow) {
	r.Players = other.Players
	r.Touched.worst(other.Touched)
	r.Others.worst(other.Others)
	r.RefusedMS, r.LastedMS = max(r.RefusedMS, other.RefusedMS), max(r.LastedMS, other.LastedMS)
	r.BackMS, r.Resyncs = max(r.BackMS, other.BackMS), max(r.Resyncs, other.Resyncs)
	r.Edge.Before, r.Edge.Most = cmp.Or(r.Edge.Before, other.Edge.Before), max(r.Edge.Most, other.Edge.Most)
}

// want notes a figure that is not held.
func (r *SlowRow) want(held bool, format string, args ...any) {
	if !held {
		r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
	}
}

// printSlow writes the rows of all results as a table that a document can take over.
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
