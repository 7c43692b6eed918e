package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type replayFlags struct {
	Trace    string        `arg:"" help:"CSV file, gzip if it ends in .gz, with the columns user_id, video_id, time_ms, play_time_ms, duration_ms."`
	Edge     string        `help:"Address of an edge, such as http://127.0.0.1:8080: go through it as the players would, over a WebSocket of each user. --speed, --streams and --batch are for the service only."`
	Secret   string        `name:"token-secret-file" help:"File with the secret that the edge's tokens are signed with." type:"existingfile"`
	Audience string        `help:"Audience that the edge's tokens must be made out to."`
	Users    int           `help:"Users side by side at the edge." default:"64" positive:""`
	Shift    bool          `help:"Move the trace so that its last heartbeat is now, as for a load or a demonstration; each run moves it anew."`
	Speed    float64       `help:"So many times faster than the trace's own time; 0 is as fast as the service takes it."`
	Limit    int           `help:"Send at most this many heartbeats, of whole viewings; 0 is all."`
	Streams  int           `help:"gRPC streams side by side." default:"16" positive:""`
	Batch    int           `help:"Heartbeats of a batch, at most 1000." default:"200"`
	Patience time.Duration `help:"How long to go on when nothing is answered." default:"60s"`

	remote
}

// Help returns the introduction to --help.
func (*replayFlags) Help() string {
	return `Sends viewings of a trace as heartbeats, to a service or through an edge.

` + "`playhead replay sniff FILE`" + ` shows how a file of old viewings would be read.

` + "`playhead replay dead`" + ` drives again what could not be archived, from the topic of dead letters; ` + "`playhead replay dead --help`" + ` lists its flags.

` + "`playhead replay segments UID`" + ` shows what of a user's history is in parts.

` + "`playhead replay erase UID`" + ` removes everything of a user, through a service that runs.

` + "`playhead replay rebase UID`" + ` brings records of a clock that was ahead to the present, through a service that runs.`
}

// replayCommand sends the viewings of a file, or runs one of the commands for a running server.
func replayCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "sniff":
			return sniff(ctx, args[1:], getenv, out)
		case "dead":
			return dead(ctx, args[1:], getenv, out)
		case "segments":
			return segments(ctx, args[1:], getenv, out)
		case "erase":
			return erase(ctx, args[1:], getenv, out)
		case "rebase":
			return rebase(ctx, args[1:], getenv, out)
		}
	}
	return send(ctx, args, getenv, out)
}

func send(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f replayFlags
	if err := run.Parse("playhead replay", &f, args, getenv, out); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	vs, err := replay.ReadFile(f.Trace)
	if err != nil {
		return err
	}
	plan := replay.Expand(vs, f.Limit)
	if f.Shift {
		plan.EndAt(time.Now().UnixMilli())
	}
	d, closing, err := f.driver()
	if err != nil {
		return err
	}
	defer closing()
	began := time.Now()
	done := replay.Progress(os.Stderr, plan.Len(), d)
	err = d.Run(ctx, plan)
	done()
	report(out, d, time.Since(began))
	if err != nil {
		return fmt.Errorf("ended after %d of %d heartbeats: %w", d.Acked(), plan.Len(), err)
	}
	return nil
}

func (f *replayFlags) check() error {
	if f.Batch < 1 || f.Batch > 1000 {
		return fmt.Errorf("--batch: want 1 to 1000, got %d", f.Batch)
	}
	if f.Edge != "" {
		return nil
	}
	return f.remote.check()
}

type driver interface {
	Run(ctx context.Context, p *replay.Plan) error
	Acked() int64
	Statuses() map[historyv1.Status]int64
}

func (f *replayFlags) driver() (d driver, closing func(), err error) {
	if f.Edge != "" {
		d, err = f.edge()
		return d, func() {}, err
	}
	conn, err := f.dial()
	if err != nil {
		return nil, nil, err
	}
	return &replay.Driver{Conn: conn, Streams: f.Streams, Batch: f.Batch, Speed: f.Speed, Patience: f.Patience}, func() { _ = conn.Close() }, nil
}

func (f *replayFlags) edge() (driver, error) {
	if f.Secret == "" {
		return nil, errors.New("--edge needs --token-secret-file")
	}
	secret, err := token.ReadSecret(f.Secret)
	if err != nil {
		return nil, fmt.Errorf("--token-secret-file: %w", err)
	}
	mint := func(uid string) (string, error) { return token.Mint(secret, uid, f.Audience, time.Hour) }
	return &replay.Edge{URL: f.Edge, Token: mint, Users: f.Users, Patience: f.Patience}, nil
}

func report(out io.Writer, d driver, took time.Duration) {
	fmt.Fprintf(out, "%d heartbeats acknowledged in %.2f s, %.0f/s\n", d.Acked(), took.Seconds(), float64(d.Acked())/took.Seconds())
	statuses := d.Statuses()
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Fprintf(out, "  %-12s %d\n", replay.StatusName(s), statuses[s])
	}
}

type segmentsFlags struct {
	UID    string `arg:"" help:"User whose history is looked at."`
	Data   string `help:"Data directory of an all-in-one that is not running." default:"playhead-data"`
	HBase  string `name:"hbase" help:"ZooKeeper quorum of HBase, host:port with commas between: look there, not into a directory."`
	Table  string `name:"hbase-table" help:"Table of the archive in HBase." default:"history"`
	Verify bool   `help:"Read all of it and compare it with its checksums and lists."`
}

// Help returns the introduction to --help.
func (*segmentsFlags) Help() string {
	return `Shows what the archive has of a user: how many records are live, and which chunks the segments consist of. ` +
		`With --verify it ends with an error if anything is wrong.`
}

func segments(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f segmentsFlags
	if err := run.Parse("playhead replay segments", &f, args, getenv, out); err != nil {
		return err
	}
	look := f.inspect
	if f.HBase != "" {
		look = f.inspectHBase
	}
	all, err := look(ctx)
	if err != nil {
		return err
	}
	var wrong []error
	for _, s := range all {
		if _, class := history.UserOf(s.uid); class != "" {
			fmt.Fprintf(out, "class %s:\n", class)
		}
		f.printSegments(out, s.found)
		wrong = append(wrong, s.found.Wrong...)
	}
	return errors.Join(wrong...)
}

func (f *segmentsFlags) printSegments(out io.Writer, found segment.Inspection) {
	records, superseded, size := 0, 0, 0
	for _, c := range found.Segments.Chunks {
		records, superseded, size = records+c.Count, superseded+len(c.Superseded), size+c.Bytes
	}
	fmt.Fprintf(out, "%d live records\n%d records in %d chunks of %d bytes, version %d, %d of them superseded\n",
		found.Live, records, len(found.Segments.Chunks), size, found.Segments.Version, superseded)
	for _, c := range found.Segments.Chunks {
		fmt.Fprintf(out, "  %-20s %s to %s  %5d records %5d superseded %7d bytes\n", c.Name, moment(c.Newest.Time()), moment(c.Oldest.Time()), c.Count, len(c.Superseded), c.Bytes)
	}
	if len(found.Unlisted) > 0 {
		fmt.Fprintf(out, "not listed, so that nobody reads them: %s\n", strings.Join(found.Unlisted, ", "))
	}
	if f.Verify && len(found.Wrong) == 0 {
		fmt.Fprintf(out, "all chunks are whole; %d live records have a later or earlier one in segments\n", found.Both)
	}
}

// inspected is the archive's content for a user, or for one class namespace of the user.
type inspected struct {
	uid   string
	found segment.Inspection
}

type inspector interface {
	Inspect(ctx context.Context, uid string, verify bool) (segment.Inspection, error)
}

// namespaces inspects the user's own namespace and every class namespace.
func (f *segmentsFlags) namespaces(ctx context.Context, s history.NamespaceLister, a inspector) (all []inspected, err error) {
	classes, err := s.Namespaces(ctx, f.UID)
	if err != nil {
		return nil, err
	}
	for _, uid := range append([]string{f.UID}, classes...) {
		found, err := a.Inspect(ctx, uid, f.Verify)
		if err != nil {
			return nil, err
		}
		all = append(all, inspected{uid, found})
	}
	return all, nil
}

// inspect reads the archive in an embedded store. No other process may have the store open.
func (f *segmentsFlags) inspect(ctx context.Context) (all []inspected, err error) {
	switch files, err := os.ReadDir(f.Data); { // Open would create a missing store
	case err != nil:
		return nil, fmt.Errorf("--data: %w", err)
	case len(files) == 0:
		return nil, fmt.Errorf("--data: %s is empty", f.Data)
	}
	db, err := pebble.Open(f.Data, pebble.Config{})
	if err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return f.namespaces(ctx, db, db.Archive())
}

// inspectHBase reads the archive in HBase. Services and jobs may be running.
func (f *segmentsFlags) inspectHBase(ctx context.Context) (all []inspected, err error) {
	a, err := hbase.Open(ctx, hbase.Config{ZooKeeper: f.HBase, Table: f.Table, Existing: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return f.namespaces(ctx, a, a)
}
