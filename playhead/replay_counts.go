package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/run"
)

type countsFlags struct {
	Objects      []string `arg:"" optional:"" help:"Objects to look at, as id_type, such as 100_1; all by default."`
	CountedTypes []string `help:"Types to count, with commas between, or all: those of the server, which knows them itself if it runs." default:"all"`
	Verify       bool     `help:"Compare only, and end with an error if anything is missing or wrong."`
	Data         string   `help:"Data directory of an all-in-one." default:"playhead-data"`
	Admin        string   `help:"Address of the admin port of the all-in-one, if it runs." default:"127.0.0.1:7071"`
	HBase        string   `name:"hbase" help:"ZooKeeper quorum of HBase, host:port with commas between: count there, not in a directory."`
	Table        string   `name:"hbase-table" help:"Table of the archive in HBase." default:"history"`
	Rules        []string `sep:";" placeholder:"RULES" help:"Rules of types, as the server has them."`
}

// Help returns the introduction to --help.
func (*countsFlags) Help() string {
	return `Compares the totals of objects with the archive, and counts what they lack: what was archived before --counted-types was set, or after messages were lost. ` +
		`Nothing need be stopped; a record that is archived meanwhile may be reported as missing.`
}

// countsCommand recounts an archive.
func countsCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) (err error) {
	var f countsFlags
	if err := run.Parse("playhead replay counts", &f, args, getenv, out); err != nil {
		return err
	}
	r := counts.Recount{Verify: f.Verify, Now: time.Now}
	if r.Types, err = count.ParseTypes(f.CountedTypes); err != nil {
		return fmt.Errorf("--counted-types: %w", err)
	}
	if err := r.Only(f.Objects); err != nil {
		return err
	}
	if r.Rules, err = history.ParseRules("", f.Rules); err != nil {
		return fmt.Errorf("--%w", err)
	}
	var found counts.Found
	switch closing, err := f.open(ctx, &r); {
	case errors.Is(err, history.ErrLocked):
		found, err = f.ask(ctx)
		if err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		found, err = r.Run(ctx)
		if err := errors.Join(err, closing()); err != nil {
			return err
		}
	}
	return f.print(out, found)
}

// ask has the running process recount.
func (f *countsFlags) ask(ctx context.Context) (found counts.Found, err error) {
	data, err := filepath.Abs(f.Data)
	if err != nil {
		return found, err
	}
	form := url.Values{"data": {data}, "object": f.Objects, "verify": {strconv.FormatBool(f.Verify)}}
	err = askOwner(ctx, f.Admin, "/recount", form, &found)
	return found, err
}

func (f *countsFlags) open(ctx context.Context, r *counts.Recount) (closing func() error, err error) {
	if f.HBase != "" {
		a, err := hbase.Open(ctx, hbase.Config{ZooKeeper: f.HBase, Table: f.Table, Existing: true, Counts: true, Rules: r.Rules})
		if err != nil {
			return nil, err
		}
		r.Archive, r.Counters = a, a.Counters()
		return a.Close, nil
	}
	db, err := openData(f.Data, pebble.Config{Rules: r.Rules})
	if err != nil {
		return nil, err
	}
	r.Archive, r.Counters = db.Archive(), db.Counters()
	return db.Close, nil
}

func (f *countsFlags) print(out io.Writer, found counts.Found) error {
	what := "counted now"
	if f.Verify {
		what = "missing"
	}
	fmt.Fprintf(out, "%d records with plays or watched time: %d %s, %d counted wrong\n", found.Records, found.Missing, what, found.Wrong)
	for _, o := range found.Low {
		fmt.Fprintf(out, "%s has lower totals than its viewers\n", o)
	}
	if found.Wrong > 0 || len(found.Low) > 0 || f.Verify && found.Missing > 0 {
		return errors.New("the counters differ from the archive")
	}
	return nil
}
