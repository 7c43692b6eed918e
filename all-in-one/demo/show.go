package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

type flags struct {
	Trace    string   `help:"Trace to replay, CSV or gzip." default:"testdata/kuairand/watch_events.csv.gz"`
	Limit    int      `help:"Replay at most this many heartbeats; 0 is all."`
	Streams  int      `help:"gRPC streams side by side." default:"16"`
	Batch    int      `help:"Heartbeats of a batch, at most 1000." default:"200"`
	Depth    int      `help:"Batches of a stream that may wait for their answer." default:"4"`
	Meta     int      `help:"Bytes of metadata with each heartbeat, about."`
	Data     string   `help:"Data directory to use and keep; a temporary one otherwise."`
	RPC      string   `help:"Address of the gRPC server." default:"127.0.0.1:0"`
	Listen   string   `help:"Address of the HTTP API." default:"127.0.0.1:0"`
	Counted  []string `name:"counted-types" help:"Types to count, or all; plays and viewers are compared too, after the trace was replayed once more."`
	Exit     bool     `help:"End after the check: status 1 when anything is missing or wrong."`
	JSON     bool     `name:"json" help:"Print the figures as one JSON object on the last line."`
	Profile  string   `help:"Write a CPU profile of the replay to this file."`
	LogLevel string   `help:"debug, info, warn or error." default:"warn"`
}

// Help is the introduction of --help.
func (*flags) Help() string {
	return `Starts Playhead in one process, replays a trace of real viewings, archives it, compares every record with a plain merge, ` +
		`prints what it measured, and goes on serving a page to look at.`
}

var errShown = errors.New("the show is over")

// figures are the demo's measurements, printed as a table or JSON.
type figures struct {
	Heartbeats         int     `json:"heartbeats"`
	Seconds            float64 `json:"seconds"` // until the last acknowledgement
	HeartbeatsPerS     float64 `json:"heartbeats_per_s"`
	ArchivedAfterS     float64 `json:"archived_after_s"` // after the last acknowledgement
	Viewings           int     `json:"viewings"`         // with a report
	Puts               int64   `json:"puts"`
	PutsPerViewing     float64 `json:"puts_per_viewing"`
	QueueMessages      int64   `json:"queue_messages"`
	QueueBytes         int64   `json:"queue_bytes"`
	Records            int     `json:"records"`
	Users              int     `json:"users"`
	Missing            int     `json:"missing"`
	Wrong              int     `json:"wrong"`
	CountedObjects     int     `json:"counted_objects"`
	CountsWrong        int     `json:"counts_wrong"`         // of them, after two replays
	CPUMicrosPerBeat   float64 `json:"cpu_us_per_heartbeat"` // of the whole process, until all was archived
	PeakResidentMemory int64   `json:"peak_rss_mib"`
}

// someUser is a user of the trace with a presentable history.
const someUser = "712"

// meter measures wall time and the process's CPU time.
type meter struct {
	began, acked, done time.Time
	cpu                time.Duration
}

func (m *meter) start() { m.began, m.cpu = time.Now(), cpuTime() }

func (m *meter) sent() { m.acked = time.Now() }

func (m *meter) archived() { m.done, m.cpu = time.Now(), cpuTime()-m.cpu }

func cpuTime() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func usage() (u syscall.Rusage) {
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return u
}

// profile starts a CPU profile, if path is set, and returns its stop.
func profile(path string) (func(), error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("write profile: %w", err)
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

func (s *show) figures(plan *replay.Plan, m *meter, r replay.Report) figures {
	n, seconds := plan.Len(), m.acked.Sub(m.began).Seconds()
	f := figures{
		Heartbeats: n, Seconds: seconds, HeartbeatsPerS: float64(n) / seconds,
		ArchivedAfterS: m.done.Sub(m.acked).Seconds(), Viewings: plan.Reported(), Puts: s.puts(),
		Records: r.Records, Users: r.Users, Missing: r.Missing, Wrong: r.Wrong,
		CPUMicrosPerBeat: float64(m.cpu.Microseconds()) / float64(n), PeakResidentMemory: usage().Maxrss / 1024,
	}
	f.PutsPerViewing = float64(f.Puts) / float64(f.Viewings)
	f.QueueMessages, f.QueueBytes = s.process.Queued()
	return f
}

// puts returns the job's counter of archived records, or -1 without one.
func (s *show) puts() int64 {
	families, err := s.registry.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		if f.GetName() == "playhead_job_puts_total" {
			return int64(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return -1
}

func (s *show) finish(ctx context.Context, f figures, r replay.Report) error {
	f.table(s.out)
	for _, e := range r.Examples {
		fmt.Fprintln(s.out, "  "+e)
	}
	if !s.flags.Exit {
		fmt.Fprintln(s.out)
		if err := invent(ctx, s.process.RPC()); err != nil {
			return err
		}
		close(s.checked)
		s.process.Greet(s.out, viewer)
		if err := s.whatNext(); err != nil {
			return err
		}
	}
	if s.flags.JSON {
		line, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("print figures: %w", err)
		}
		fmt.Fprintln(s.out, string(line))
	}
	switch {
	case f.CountsWrong > 0:
		return fmt.Errorf("counts of %d objects wrong of %d", f.CountsWrong, f.CountedObjects)
	case !r.OK():
		return fmt.Errorf("%d records missing and %d wrong of %d", r.Missing, r.Wrong, r.Records)
	case s.flags.Exit:
		return errShown
	}
	return nil
}

func (s *show) whatNext() error {
	token, err := s.process.Token(someUser, time.Hour)
	if err != nil {
		return err
	}
	flow, err := s.flowLink()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, `
What to try next:

  - See it happen, stop a part of it, and watch nothing get lost: %[3]s
  - Open your page in two windows, play something in one, and watch it move in the other.
  - See what ada watched, per day: curl -H "Authorization: Bearer $TOKEN" 'http://%[1]s/v1/stats?by=day'
  - Look at a user of the trace, whose viewings were real: http://%[1]s/#token=%[2]s
  - Start an empty one that keeps its data (make run), end it with kill -9 while something plays, and start it again.
`, s.process.HTTP(), token, flow)
	return nil
}

// flowLink returns the address of /flow with the viewer's token.
func (s *show) flowLink() (string, error) {
	token, err := s.process.Token(viewer, time.Hour)
	return fmt.Sprintf("http://%s/flow#token=%s", s.process.HTTP(), token), err
}

func (f figures) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\t\n", append([]any{name}, args...)...)
	}
	fmt.Fprintln(w, strings.Repeat("-", 24)+"\t"+strings.Repeat("-", 14)+"\t")
	row("heartbeats", "%d", f.Heartbeats)
	row("seconds", "%.2f", f.Seconds)
	row("heartbeats/s", "%.0f", f.HeartbeatsPerS)
	row("archived after, s", "%.2f", f.ArchivedAfterS)
	row("viewings", "%d", f.Viewings)
	row("archive puts", "%d", f.Puts)
	row("puts per viewing", "%.3f", f.PutsPerViewing)
	row("queue messages", "%d", f.QueueMessages)
	row("queue bytes", "%d", f.QueueBytes)
	row("CPU us per heartbeat", "%.1f", f.CPUMicrosPerBeat)
	row("peak memory, MiB", "%d", f.PeakResidentMemory)
	row("records", "%d", f.Records)
	row("users", "%d", f.Users)
	row("missing", "%d", f.Missing)
	row("wrong", "%d", f.Wrong)
	if f.CountedObjects > 0 {
		row("counted objects", "%d", f.CountedObjects)
		row("counted wrong", "%d", f.CountsWrong)
	}
	_ = w.Flush() // like standard output, errors are ignored
}

// show replays, waits, checks and prints.
type show struct {
	flags    flags
	process  *allinone.Process
	registry prometheus.Gatherer
	out      io.Writer
	checked  chan struct{} // closed once the stores are compared
}

// watched runs the crowd for viewers of /flow. Before the comparison they see the replay.
func (s *show) watched(ctx context.Context) {
	select {
	case <-s.checked:
		play(ctx, s.process)
	case <-ctx.Done():
	}
}

func (s *show) run(ctx context.Context) error {
	vs, err := replay.ReadFile(s.flags.Trace)
	if err != nil {
		return err
	}
	plan := replay.Expand(vs, s.flags.Limit)
	if plan.Len() == 0 {
		return fmt.Errorf("%s has no viewing of at most %d heartbeats (--limit)", s.flags.Trace, s.flags.Limit)
	}
	plan.EndAt(time.Now().UnixMilli())
	if s.flags.Meta > 0 {
		plan.AddMeta(s.flags.Meta)
	}
	stop, err := profile(s.flags.Profile)
	if err != nil {
		return err
	}
	if err := s.announce(); err != nil {
		return err
	}
	m := &meter{}
	m.start()
	if err := s.replay(ctx, plan); err != nil {
		return err
	}
	m.sent()
	if err := s.clean(ctx); err != nil {
		return err
	}
	m.archived()
	stop()
	report, err := s.check(ctx, plan)
	if err != nil {
		return err
	}
	f := s.figures(plan, m, report)
	if f.CountedObjects, f.CountsWrong, err = s.checkCounts(ctx, plan); err != nil {
		return err
	}
	if err := s.finish(ctx, f, report); err != nil {
		return err
	}
	watch(ctx, s.process)
	return nil
}

// announce prints the address of /flow for a human.
func (s *show) announce() error {
	if s.flags.Exit {
		return nil
	}
	flow, err := s.flowLink()
	if err == nil {
		fmt.Fprintf(s.out, "See it happen: %s\n\n", flow)
	}
	return err
}

// replay sends the plan through the gRPC server.
func (s *show) replay(ctx context.Context, plan *replay.Plan) error {
	conn, err := connect(s.process.RPC())
	if err != nil {
		return err
	}
	defer conn.Close()
	d := &replay.Driver{Conn: conn, Streams: s.flags.Streams, Batch: s.flags.Batch, Depth: s.flags.Depth}
	done := replay.Progress(os.Stderr, plan.Len(), d)
	defer done()
	return d.Run(ctx, plan)
}

// clean waits until no dirty mark is left.
func (s *show) clean(ctx context.Context) error {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		left, err := s.process.Cache().Overdue(ctx, history.AllBuckets(), 0, 1)
		if err != nil {
			return fmt.Errorf("wait for the archive: %w", err)
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkCounts replays the plan once more, which counts nothing, and compares the totals with the model.
func (s *show) checkCounts(ctx context.Context, plan *replay.Plan) (all, wrong int, err error) {
	if len(s.flags.Counted) == 0 {
		return 0, 0, nil
	}
	if err := s.replay(ctx, plan); err != nil {
		return 0, 0, err
	}
	if err := s.clean(ctx); err != nil {
		return 0, 0, err
	}
	return replay.CheckCounts(ctx, replay.Model(plan), s.process.Counters().Totals)
}

func (s *show) check(ctx context.Context, plan *replay.Plan) (replay.Report, error) {
	return replay.Check(ctx, replay.Model(plan), map[string]replay.Reader{
		"cache": replay.FromCache(s.process.Cache()), "archive": replay.FromArchive(s.process.Archive()),
	})
}
