package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/playhead/backfill"
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
	Rules     []string `sep:";" placeholder:"RULES" help:"The rules of the processes, for the classes of types and their lifetimes; without them the classes stay."`
	Yes       bool     `help:"Delete what is older than a shorter retention."`

	retentionStore
}

// Help returns the introduction to --help.
func (*setRetentionFlags) Help() string {
	return `Changes how long the data keeps records, and the classes of types that have no data. Stop all processes first, and start them again with the same --retention and --rules. ` +
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
		var types []string
		for _, typ := range slices.Sorted(maps.Keys(r.Types)) {
			if r.Types[typ] == name {
				types = append(types, strconv.FormatUint(uint64(typ), 10))
			}
		}
		fmt.Fprintln(out, lived(fmt.Sprintf("records of the class %s, types %s,", name, cmp.Or(strings.Join(types, " and "), "none")), r.Classes[name]))
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
	if len(f.Rules) == 0 {
		rules.Adopt()
	} else if err := f.refuseMoved(ctx, rules); err != nil {
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

// refuseMoved fails if the rules move a type that has data to another class.
func (f *setRetentionFlags) refuseMoved(ctx context.Context, rules *history.Rulebook) (err error) {
	stores := &opened{ctx: ctx, flags: &copyFlags{Redis: f.Redis}}
	defer func() { err = errors.Join(err, stores.close()) }()
	var archive interface {
		backfill.ArchiveReader
		SummaryTTL(ctx context.Context) (int64, error)
	}
	name, sources := f.Data, backfill.Chain{}
	if f.HBase == "" {
		db, err := stores.dir(f.Data, true)
		if err != nil {
			return fmt.Errorf("--data: %w", err)
		}
		archive, sources = db.Archive(), append(sources, &backfill.FromCache{Store: db.Cache(), Dirty: true})
	} else {
		name = f.Table + "@" + f.HBase
		if archive, err = stores.table(name, true); err != nil {
			return err
		}
	}
	was := stores.rules
	if !rules.Moves(was.Retention()) {
		return nil
	}
	refused := func(what string) error {
		return fmt.Errorf("%s, and would not be where its class is: %s", what, history.CopyCommand(name))
	}
	if ttl, err := archive.SummaryTTL(ctx); err != nil || ttl > 0 {
		return cmp.Or(err, refused("the data has summaries, which may have any type"))
	}
	if f.HBase != "" {
		cache, err := stores.redis()
		if err != nil {
			return err
		}
		sources = append(sources, &backfill.FromCache{Store: cache})
	}
	for it, err := range append(sources, &backfill.FromArchive{Store: archive}).Items(ctx, "") {
		if err != nil {
			return err
		}
		if was.Home(it.Key) != rules.Home(it.Key) {
			return refused(fmt.Sprintf("the type %d has data", it.Key.Object.Type))
		}
	}
	return nil
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
