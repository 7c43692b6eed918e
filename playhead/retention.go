package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
)

// retentionStore locates the data.
type retentionStore struct {
	Data     string        `help:"Data directory of a stopped all-in-one." default:"playhead-data"`
	HBase    string        `name:"hbase" help:"ZooKeeper quorum of HBase, host:port with commas between, instead of a data directory."`
	Table    string        `name:"hbase-table" help:"Table of the archive." default:"history"`
	Patience time.Duration `help:"How long it may take. A longer retention compacts the tables of HBase first." default:"24h"`
	LogLevel string        `help:"debug, info, warn or error." default:"warn"`

	connect.Redis
}

type retentionFlags struct{ retentionStore }

// Help returns the introduction to --help.
func (*retentionFlags) Help() string {
	return `Prints how long the data keeps records after they were last played. playhead retention set DURATION changes it.`
}

type setRetentionFlags struct {
	Retention string   `arg:"" help:"How long records shall live, such as 90d, 36h or forever."`
	Rules     []string `sep:";" placeholder:"RULES" help:"The rules of the processes, for the lifetimes of their classes."`
	Yes       bool     `help:"Delete what is older than a shorter retention."`

	retentionStore
}

// Help returns the introduction to --help.
func (*setRetentionFlags) Help() string {
	return `Changes how long the data keeps records. Stop all processes first, and start them again with the same --retention and --rules. ` +
		`What has expired stays expired: a longer retention holds for what is still there, and for reports from then on. ` +
		`A shorter one deletes what is older, and wants --yes. May be repeated, also after it was interrupted.`
}

func retention(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) > 0 && args[0] == "set" {
		var f setRetentionFlags
		if err := run.Parse("playhead retention set", &f, args[1:], getenv, out); err != nil {
			return err
		}
		err := f.set(ctx, out)
		logAction("retention "+f.Retention, 0, err)
		return err
	}
	var f retentionFlags
	if err := run.Parse("playhead retention", &f, args, getenv, out); err != nil {
		return err
	}
	return f.print(ctx, out)
}

func (f *retentionStore) print(ctx context.Context, out io.Writer) error {
	if f.HBase == "" {
		db, err := openData(f.Data, pebble.Config{})
		if err != nil {
			return err
		}
		printRetention(out, db.Retention())
		return db.Close()
	}
	a, err := hbase.Open(ctx, hbase.Config{ZooKeeper: f.HBase, Table: f.Table, Existing: true})
	if err != nil {
		return err
	}
	defer a.Close()
	r, err := a.Retention(ctx)
	if err == nil {
		printRetention(out, r)
	}
	return err
}

func printRetention(out io.Writer, r history.Retention) {
	fmt.Fprintln(out, lived("records", r.Life))
	for _, name := range slices.Sorted(maps.Keys(r.Classes)) {
		fmt.Fprintln(out, lived("records of the class "+name, r.Classes[name]))
	}
}

func lived(what string, l history.Life) string {
	text := fmt.Sprintf("%s live %s", what, history.FormatRetention(l.Keep))
	if l.Since > 0 {
		text += ", expired before " + moment(l.Since)
	}
	return text
}

func (f *setRetentionFlags) set(ctx context.Context, out io.Writer) error {
	rules, err := history.ParseRules(f.Retention, f.Rules)
	if err != nil {
		return err
	}
	if f.HBase != "" {
		return f.setEngines(ctx, rules, out)
	}
	db, err := openData(f.Data, pebble.Config{Rules: rules, Change: f.confirm})
	if err != nil {
		return err
	}
	printRetention(out, db.Retention())
	return db.Close()
}

// confirm refuses to delete records without --yes.
func (f *setRetentionFlags) confirm(was, next history.Retention) error {
	if !next.Shortens(was) || f.Yes {
		return nil
	}
	return fmt.Errorf("a retention of %s instead of %s deletes for good all records last played before %s, or earlier than their class keeps them: repeat it with --yes",
		next, was, moment(time.Now().UnixMilli()-next.Keep))
}

// setEngines changes the tables of HBase, then the copy in Redis, which ends processes that differ.
func (f *setRetentionFlags) setEngines(ctx context.Context, rules *history.Rulebook, out io.Writer) error {
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, "text")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	cache, err := f.Connect(&connect.Engines{Log: log, Rules: rules})
	if err != nil {
		return err
	}
	defer cache.Close()
	at, err := cache.Time(ctx)
	if err != nil {
		return err
	}
	ahead := max(time.Until(at), 0)
	now := func() time.Time { return time.Now().Add(ahead) } // not before what Redis has warmed
	a, err := hbase.New(hbase.Config{ZooKeeper: f.HBase, Table: f.Table, Existing: true, Rules: rules, Now: now, Logger: log})
	if err != nil {
		return err
	}
	defer a.Close()
	next, err := a.SetRetention(ctx, f.confirm)
	if err == nil {
		err = cache.SaveRetention(ctx, next)
	}
	if err != nil {
		return errors.Join(err, errors.New("repeat the command"))
	}
	printRetention(out, next)
	return nil
}
