package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/playhead/backfill"
)

type copyFlags struct {
	Files               []string `arg:"" optional:"" help:"Files of old viewings, packed or not, or directories of them; - is standard input. The same as --from csv:FILE."`
	From                []string `sep:"none" placeholder:"SOURCE" help:"What to copy: csv:FILE or ndjson:FILE (forms are recognised by content), - for standard input, archive:DIR or cache:DIR for the data directory of an all-in-one that is not running, archive:TABLE@ZOOKEEPER for HBase, cache: for Redis, kafka:TOPIC@TIME or kafka:TOPIC@TIME..TIME for records that a topic carried then, dead: or dead:DIR for dead letters. May be given several times."`
	To                  string   `placeholder:"TARGET" help:"Where to: service (see --service), edge:URL, archive:DIR, archive:TABLE@ZOOKEEPER, ndjson:FILE, or none, which only reads." default:"service"`
	Rules               []string `sep:";" placeholder:"RULES" help:"Rules of types, as the services have them; for archive targets. A new archive keeps their classes, an existing one has its own."`
	OlderDeletesUnknown bool     `help:"Confirm that deletes older than the retention are unknown, and take rows that have expired nevertheless: into summaries, if the archive keeps these, and records that had expired when the retention became longer. What a forgotten delete hid comes back. Only --to archive:."`
	Cached              bool     `help:"The HBase table is in use: what its cache (--redis, --kafka) knows goes through it."`

	Beats  string   `help:"Reports of a viewing: none for its start and its end, or the time between two heartbeats, such as 15s for a load test." default:"none"`
	Since  string   `help:"Only what was played at or after this time, such as 2026-01-31 or 2026-01-31T12:00:00Z."`
	Until  string   `help:"Only what was played before this time."`
	UID    []string `name:"uid" help:"Only these users."`
	Type   []uint32 `help:"Only these types of objects."`
	Sample float64  `help:"Only this share of the users, such as 0.01; always the same ones."`

	Rejects    string        `help:"CSV file for the rows that cannot be read or are invalid, with file, line, column and reason." placeholder:"FILE"`
	MaxRejects *int64        `help:"End after more rejected rows than this; unlimited by default."`
	Checkpoint string        `help:"File that remembers how far the copy is, so that the same command goes on from there." placeholder:"FILE"`
	Report     string        `help:"JSON file for the number of rows by outcome." placeholder:"FILE"`
	Rate       float64       `help:"Rows per second at most; 0 is unlimited."`
	P99        time.Duration `name:"p99" help:"Slow down while answers of the target take longer than this, such as 50ms, or twice as long as the first ones, to leave room for players; 0 is full speed."`
	Parallel   int           `help:"Concurrent calls of the target." default:"16" positive:""`
	DryRun     bool          `help:"Read and count everything, and send nothing."`

	Secret   string        `name:"token-secret-file" help:"File with the secret that an edge's tokens are signed with." type:"existingfile"`
	Audience string        `help:"Audience that an edge's tokens must be made out to."`
	Patience time.Duration `help:"How long to go on when the target does not answer." default:"60s" positive:""`

	importFlags
	remote
	connect.Redis
	connect.Kafka
}

// Help returns the introduction to --help.
func (*copyFlags) Help() string {
	return `Copies old viewings into a history: each with its own times, and folded in, so that a row that comes twice counts once.

Exit codes: 0, everything is in the target. 1, it failed or was interrupted: run it again, with the same --checkpoint to go on. 3, it is
done, but some rows were rejected or are older than the retention. 4, more rows were rejected than --max-rejects.

Others: ` + "`playhead replay verify`" + ` compares, ` + "`audit`" + ` looks for losses for ever, ` + "`sniff FILE`" + ` shows how a file would be read, ` + "`dead`" + ` drives again what could not be archived, ` +
		"`segments UID`" + ` shows what of a user's history is in parts, ` + "`counts`" + ` compares totals of objects with the archive, ` + "`erase UID`" + ` removes everything of a user, and ` + "`rebase UID`" +
		` brings records of a clock that was ahead to the present.`
}

// Exit codes of copies.
const (
	exitIncomplete = 3
	exitRejects    = 4
)

// copyCommand copies a source to a target.
func copyCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f copyFlags
	if err := run.Parse("playhead replay copy", &f, args, getenv, out); err != nil {
		return err
	}
	if f.OlderDeletesUnknown {
		if !strings.HasPrefix(f.To, "archive:") {
			return fmt.Errorf("--older-deletes-unknown: want --to archive:DIR or archive:TABLE@ZOOKEEPER, got %q", f.To)
		}
		logAction("copy with older deletes unknown to "+f.To, 0, nil)
	}
	report, err := f.report(ctx, out, f.target)
	return f.verdict(report, err)
}

type verifyFlags struct {
	Repair bool          `help:"Copy what is missing or different."`
	Wait   time.Duration `help:"How long what is not there may be on its way, before it counts as missing." default:"2s"`

	copyFlags
}

// Help returns the introduction to --help.
func (*verifyFlags) Help() string {
	return `Compares: everything of the source must be in the target, which may have more. What was deleted later, or is older than the
retention, is no difference. What comes while it runs is moved.

Exit codes: 0, everything is there. 1, something is missing or different, or it failed. 3, some rows were rejected.`
}

// verifyCommand compares a source with a target.
func verifyCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f verifyFlags
	if err := run.Parse("playhead replay verify", &f, args, getenv, out); err != nil {
		return err
	}
	if f.OlderDeletesUnknown {
		return errors.New("--older-deletes-unknown is for copy: verify takes what has expired for no difference")
	}
	report, err := f.report(ctx, out, func(stores *opened) (backfill.Target, func(), error) {
		t, closing, err := f.target(stores)
		if err != nil {
			return nil, nil, err
		}
		v := &backfill.Verifier{Rules: stores.rules, Wait: f.Wait, Out: out}
		if f.Repair {
			v.Repair = t
		}
		switch t := t.(type) {
		case *backfill.Service:
			v.Reader = backfill.ServiceReader{Service: t}
		case *backfill.Archive:
			if v.Reader = t.Store; t.Cache != nil {
				v.Reader = backfill.Both{Archive: t.Store, Cache: t.Cache}
			}
		default:
			return nil, nil, fmt.Errorf("--to: want service, archive:DIR or archive:TABLE@ZOOKEEPER to compare with, got %q", f.To)
		}
		return v, closing, nil
	})
	if report != nil {
		delete(report.Outcomes, "expired") // no difference
	}
	return f.verdict(report, err)
}

// Memory of a copy, in bytes: it keeps below 256 MiB. Most of the heap are batches.
const (
	heapOfCopy  = 208 << 20
	storeOfCopy = 512 << 20 // as [pebble.Config.Memory]: it takes a third
)

// report copies the source to the target, and prints and returns the report.
func (f *copyFlags) report(ctx context.Context, out io.Writer, target func(*opened) (backfill.Target, func(), error)) (*backfill.Report, error) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(min(debug.SetMemoryLimit(-1), heapOfCopy)))
	stores := &opened{ctx: ctx, flags: f}
	c, closing, err := f.copy(stores, target)
	if err != nil {
		return nil, errors.Join(err, stores.close())
	}
	done := progress(os.Stderr, c)
	report, err := c.Run(ctx)
	done()
	closing()
	err = errors.Join(err, stores.close())
	printReport(out, &report)
	if f.Report != "" {
		err = errors.Join(err, writeReport(f.Report, &report))
	}
	return &report, err
}

// verdict returns the error of a copy with its exit code.
func (f *copyFlags) verdict(r *backfill.Report, err error) error {
	switch {
	case r == nil:
		return err
	case errors.Is(err, backfill.ErrRejects):
		return &run.ExitError{Code: exitRejects, Err: err}
	case err != nil && f.Checkpoint != "":
		return fmt.Errorf("ended after %d rows; the same command goes on from its last checkpoint: %w", r.Rows, err)
	case err != nil:
		return fmt.Errorf("ended after %d rows: %w", r.Rows, err)
	case r.Outcomes["missing"]+r.Outcomes["different"] > 0:
		return fmt.Errorf("%d rows are missing and %d are different", r.Outcomes["missing"], r.Outcomes["different"])
	}
	return f.left(r)
}

// left returns an error if rows are not in the target.
func (f *copyFlags) left(r *backfill.Report) error {
	var parts []string
	if n := r.Outcomes["expired"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d rows are older than the retention", n))
		if strings.HasPrefix(f.To, "archive:") && !f.OlderDeletesUnknown {
			parts[0] += " (--older-deletes-unknown brings them into summaries)"
		}
	}
	if n := r.Outcomes["rejected"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d rows were rejected", n))
		if r.Rejected != "" {
			parts = append(parts, "the first is "+r.Rejected)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return &run.ExitError{Code: exitIncomplete, Err: errors.New("done, but " + strings.Join(parts, "; "))}
}

// copy returns the copy that the flags describe. The caller calls closing.
func (f *copyFlags) copy(stores *opened, target func(*opened) (backfill.Target, func(), error)) (c *backfill.Copy, closing func(), err error) {
	if err := stores.parseRules(false); err != nil {
		return nil, nil, err
	}
	c = &backfill.Copy{Lanes: f.Parallel, Rate: f.Rate, P99: f.P99, Checkpoint: f.Checkpoint, Rejects: f.Rejects, MaxRejects: -1}
	if f.MaxRejects != nil {
		c.MaxRejects = *f.MaxRejects
	}
	if c.Filter, err = f.filter(); err != nil {
		return nil, nil, err
	}
	if c.Source, err = f.source(stores); err != nil {
		return nil, nil, fmt.Errorf("--from: %w", err)
	}
	c.Settings = f.settings()
	if f.DryRun {
		c.Target = backfill.Discard{}
		return c, func() {}, nil
	}
	c.Target, closing, err = target(stores)
	return c, closing, err
}

// settings returns the flags that change what a row is.
func (f *copyFlags) settings() string {
	plain := []any{f.To, f.Service, f.Beats, f.Since, f.Until, f.UID, f.Type, f.Sample, f.importFlags, f.DryRun}
	if f.OlderDeletesUnknown { // absent from checkpoints of older versions
		plain = append(plain, "older deletes unknown")
	}
	b, _ := json.Marshal(plain)
	return string(b)
}

func (f *copyFlags) filter() (filter backfill.Filter, err error) {
	filter.Sample = f.Sample
	if filter.Since, err = moments(f.Since); err != nil {
		return filter, fmt.Errorf("--since: %w", err)
	}
	if filter.Until, err = moments(f.Until); err != nil {
		return filter, fmt.Errorf("--until: %w", err)
	}
	if filter.Until > 0 {
		filter.Until--
	}
	if f.Sample > 1 {
		return filter, fmt.Errorf("--sample: want a share such as 0.01, got %v", f.Sample)
	}
	filter.Users, filter.Types = setOf(f.UID), setOf(f.Type)
	return filter, nil
}

func setOf[T comparable](all []T) map[T]bool {
	set := make(map[T]bool, len(all))
	for _, one := range all {
		set[one] = true
	}
	return set
}

// moments parses a day or a time, in Unix milliseconds; 0 for none.
func moments(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return 0, fmt.Errorf("want a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z, got %q", text)
	}
	return t.UnixMilli(), nil
}

// source returns the source of --from and the arguments.
func (f *copyFlags) source(stores *opened) (backfill.Source, error) {
	var all backfill.Chain
	paths := slices.Clone(f.Files)
	for _, from := range f.From {
		kind, where, named := strings.Cut(from, ":")
		switch {
		case from == "-":
			paths = append(paths, from)
		case named && (kind == "archive" || kind == "cache" || kind == "kafka" || kind == "dead"):
			s, err := stores.fromStore(kind, where)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		case named && where != "" && (kind == "csv" || kind == "ndjson"):
			paths = append(paths, where)
		default:
			return nil, fmt.Errorf("want csv:FILE, ndjson:FILE, archive:DIR, archive:TABLE@ZOOKEEPER, cache:, kafka:TOPIC@TIME, dead: or -, got %q", from)
		}
	}
	var files []string
	for _, path := range paths {
		if _, err := os.Stat(path); path != "-" && err != nil {
			return nil, err
		}
		if path != "-" && backfill.IsLines(path) {
			all = append(all, &backfill.FromLines{Path: path})
		} else {
			files = append(files, path)
		}
	}
	if len(files) > 0 {
		o, err := f.options()
		if err != nil {
			return nil, err
		}
		all = append(all, &backfill.Files{Options: o, Paths: files})
	}
	if len(all) == 0 {
		return nil, errors.New("want a file")
	}
	return all, nil
}

// target returns the target of --to.
func (f *copyFlags) target(stores *opened) (t backfill.Target, closing func(), err error) {
	period := time.Duration(0)
	if f.Beats != "none" {
		if period, err = time.ParseDuration(f.Beats); err != nil || period < time.Second {
			return nil, nil, fmt.Errorf("--beats: want none, or 1s or more, got %q", f.Beats)
		}
	}
	kind, where, _ := strings.Cut(f.To, ":")
	switch {
	case f.To == "none":
		return backfill.Discard{}, func() {}, nil
	case f.To == "service":
		if err := f.check(); err != nil {
			return nil, nil, err
		}
		conn, err := f.dial()
		if err != nil {
			return nil, nil, err
		}
		warnUnreachable(stores.ctx, conn, f.Patience, os.Stderr)
		s := backfill.NewService(conn, f.Parallel)
		s.Period, s.Patience = period, f.Patience
		return s, func() { s.Close(); _ = conn.Close() }, nil
	case kind == "archive" && where != "":
		t, err := stores.toArchive(where)
		if err != nil {
			err = fmt.Errorf("--to: %w", err)
		}
		return t, func() {}, err
	case kind == "ndjson" && where != "":
		t, err := backfill.Create(where, f.Checkpoint != "")
		if err == nil {
			stores.closers = append(stores.closers, t.Close)
		}
		return t, func() {}, err
	case kind == "edge" && where != "":
		t, err := f.edge(where, period)
		return t, func() {}, err
	}
	return nil, nil, fmt.Errorf("--to: want service, edge:URL, archive:DIR, archive:TABLE@ZOOKEEPER, ndjson:FILE or none, got %q", f.To)
}

func (f *copyFlags) edge(url string, period time.Duration) (*backfill.Edge, error) {
	if f.Secret == "" {
		return nil, errors.New("--to edge:URL needs --token-secret-file")
	}
	secret, err := token.ReadSecret(f.Secret)
	if err != nil {
		return nil, fmt.Errorf("--token-secret-file: %w", err)
	}
	mint := func(uid string) (string, error) { return token.Mint(secret, uid, f.Audience, time.Hour) }
	return &backfill.Edge{URL: url, Token: mint, Period: period, Patience: f.Patience}, nil
}

func printReport(out io.Writer, r *backfill.Report) {
	fmt.Fprintf(out, "%d rows in %.1f s, %.0f/s", r.Rows, r.Seconds, r.PerSec)
	if r.Resumed > 0 {
		fmt.Fprintf(out, ", %d of them by earlier runs", r.Resumed)
	}
	fmt.Fprintln(out)
	for o := backfill.New; o <= backfill.Readable; o++ {
		if n := r.Outcomes[o.String()]; n > 0 {
			fmt.Fprintf(out, "  %-10s %d\n", o, n)
		}
	}
}

func writeReport(path string, r *backfill.Report) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(b, '\n'), 0o644) //nolint:gosec // counts are no secret
	}
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// progress shows how far a copy is until the caller calls done. A terminal has one line, other outputs a line of JSON
// every 10 s.
func progress(out *os.File, c *backfill.Copy) (done func()) {
	show, every := func(p *backfill.Progress) { _ = json.NewEncoder(out).Encode(p) }, 10*time.Second
	end := func() {}
	if term.IsTerminal(int(out.Fd())) { //nolint:gosec // a file descriptor
		show, every = func(p *backfill.Progress) { fmt.Fprintf(out, "\r\033[K%s", p) }, 200*time.Millisecond
		end = func() { fmt.Fprint(out, "\r\033[K") }
	}
	stop := run.Beside(every, func() {
		if p := c.Progress(); p != nil {
			show(p)
		}
	})
	return func() {
		stop()
		end()
	}
}
