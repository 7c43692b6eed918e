package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	CountedTypes []string `help:"Types to count, with commas between, or all: those of the server." default:"all"`
	Verify       bool     `help:"Compare only, and end with an error if anything is missing or wrong."`
	Data         string   `help:"Data directory of an all-in-one that is not running." default:"playhead-data"`
	HBase        string   `name:"hbase" help:"ZooKeeper quorum of HBase, host:port with commas between: count there, not in a directory."`
	Table        string   `name:"hbase-table" help:"Table of the archive in HBase." default:"history"`
	Rules        []string `sep:";" placeholder:"RULES" help:"Rules of types, as the server has them."`
}

// Help returns the introduction to --help.
func (*countsFlags) Help() string {
	return `Compares the totals of objects with the archive, and counts what they lack: what was archived before --counted-types was set, or after messages were lost. ` +
		`With HBase nothing need be stopped; a record that is archived meanwhile may be reported as missing.`
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
	for _, text := range f.Objects {
		o, err := history.ParseObject(text)
		if err != nil {
			return err
		}
		r.Objects = append(r.Objects, o)
	}
	if r.Rules, err = history.ParseRules("", f.Rules); err != nil {
		return fmt.Errorf("--%w", err)
	}
	closing, err := f.open(ctx, &r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	found, err := r.Run(ctx)
	if err != nil {
		return err
	}
	return f.print(out, found)
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
