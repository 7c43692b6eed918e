package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/playhead/backfill"
)

// opened are the stores of a copy, each opened once.
type opened struct {
	ctx     context.Context
	flags   *copyFlags
	rules   *history.Rulebook
	dirs    map[string]*pebble.DB
	closers []func() error
}

func (o *opened) close() error {
	var errs []error
	for _, c := range slices.Backward(o.closers) {
		errs = append(errs, c())
	}
	o.closers = nil
	return errors.Join(errs...)
}

// parseRules parses the rules again for the next store, whose retention they take over. A source, and a target without
// --rules, has the classes of its data. In the end the rules are those of the target.
func (o *opened) parseRules(source bool) (err error) {
	if o.rules = new(history.Rulebook); source || len(o.flags.Rules) == 0 {
		return nil
	}
	if o.rules, err = history.ParseRules("", o.flags.Rules); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// dir opens the data directory of an all-in-one. No other process may have it open.
func (o *opened) dir(path string, existing bool) (*pebble.DB, error) {
	if db := o.dirs[path]; db != nil {
		return db, nil
	}
	if existing {
		if err := hasStore(path); err != nil {
			return nil, err
		}
	}
	if err := o.parseRules(existing); err != nil {
		return nil, err
	}
	db, err := pebble.Open(path, pebble.Config{Rules: o.rules, Memory: storeOfCopy})
	if err != nil {
		return nil, err
	}
	if o.dirs == nil {
		o.dirs = make(map[string]*pebble.DB)
	}
	o.dirs[path] = db
	o.closers = append(o.closers, db.Close)
	return db, nil
}

// table opens an archive in HBase, given as TABLE@QUORUM.
func (o *opened) table(name string, existing bool) (*hbase.Archive, error) {
	table, quorum, _ := strings.Cut(name, "@")
	if quorum == "" {
		return nil, fmt.Errorf("want TABLE@ZOOKEEPER, such as history@127.0.0.1:2181, or a directory, got %q", name)
	}
	if err := o.parseRules(existing); err != nil {
		return nil, err
	}
	a, err := hbase.Open(o.ctx, hbase.Config{ZooKeeper: quorum, Table: table, Existing: existing, Rules: o.rules, Bulk: true})
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, a.Close)
	return a, nil
}

// redis opens the cache of --redis.
func (o *opened) redis() (*redis.Cache, error) {
	engines, err := o.engines()
	if err != nil {
		return nil, err
	}
	cache, err := o.flags.Redis.Connect(engines)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, cache.Close)
	return cache, engines.All(o.ctx)
}

func (o *opened) engines() (*connect.Engines, error) {
	log, err := obs.NewLogger(os.Stderr, "warn", "text")
	return &connect.Engines{Log: log, Rules: o.rules}, err
}

// fromStore returns the source of archive: or cache:.
func (o *opened) fromStore(kind, where string) (backfill.Source, error) {
	isTable := strings.Contains(where, "@")
	switch {
	case kind == "archive" && isTable:
		a, err := o.table(where, true)
		return &backfill.FromArchive{Name: where, Store: a}, err
	case kind == "archive" && where != "":
		db, err := o.dir(where, true)
		if err != nil {
			return nil, err
		}
		return backfill.Chain{ // what the archive does not have yet goes first
			&backfill.FromCache{Name: where, Store: db.Cache(), Dirty: true}, &backfill.FromArchive{Name: where, Store: db.Archive()},
		}, nil
	case kind == "kafka":
		return o.queue(where)
	case kind == "dead" && where == "":
		return o.letters()
	case kind == "dead":
		return &backfill.FromDead{All: func(_ context.Context, use func(history.Dead) error) error {
			return allinone.ReadDead(where, use)
		}}, hasStore(where)
	case kind == "cache" && where == "":
		if err := o.parseRules(true); err != nil {
			return nil, err
		}
		cache, err := o.redis()
		return &backfill.FromCache{Name: strings.Join(o.flags.Addrs, ","), Store: cache, Live: true}, err
	case kind == "cache":
		db, err := o.dir(where, true)
		if err != nil {
			return nil, err
		}
		return &backfill.FromCache{Name: where, Store: db.Cache()}, nil
	}
	return nil, fmt.Errorf("want archive:DIR or archive:TABLE@ZOOKEEPER, got %q", kind+":"+where)
}

// queue returns the source of kafka:TOPIC@TIME or kafka:TOPIC@TIME..TIME.
func (o *opened) queue(where string) (backfill.Source, error) {
	topic, at, _ := strings.Cut(where, "@")
	from, to, ranged := strings.Cut(at, "..")
	since, err := moments(from)
	until, wrong := moments(to)
	if err = cmp.Or(err, wrong); err != nil || since == 0 || ranged && until <= since {
		return nil, fmt.Errorf("want kafka:TOPIC@TIME or kafka:TOPIC@TIME..TIME, such as kafka:history.flush@2026-01-31T12:00:00Z, got %q", "kafka:"+where)
	}
	engines, err := o.engines()
	if err != nil {
		return nil, err
	}
	k := o.flags.Kafka
	k.Topic = cmp.Or(topic, k.Topic)
	q, err := k.Connect(engines)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, q.Close)
	source := &backfill.FromQueue{Queue: q, Since: time.UnixMilli(since)}
	if ranged {
		source.Until = time.UnixMilli(until)
	}
	return source, engines.All(o.ctx)
}

// letters returns the source of dead:.
func (o *opened) letters() (backfill.Source, error) {
	engines, err := o.engines()
	if err != nil {
		return nil, err
	}
	dead, err := o.flags.ConnectDead(engines)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, dead.Close)
	return &backfill.FromDead{All: dead.All}, engines.All(o.ctx)
}

// toArchive returns the target of archive:.
func (o *opened) toArchive(where string) (backfill.Target, error) {
	t := &backfill.Archive{OlderDeletesUnknown: o.flags.OlderDeletesUnknown}
	if !strings.Contains(where, "@") {
		db, err := o.dir(where, false)
		if err != nil {
			return nil, err
		}
		t.Rules, t.Store, t.Cache = o.rules, db.Archive(), db.Cache()
		t.Through = through(db.Cache(), unannounced{})
		return t, nil
	}
	a, err := o.table(where, false)
	t.Rules = o.rules
	if err != nil || !o.flags.Cached {
		t.Store = a
		return t, err
	}
	cache, err := o.redis()
	if err != nil {
		return nil, err
	}
	engines, err := o.engines()
	if err != nil {
		return nil, err
	}
	queue, err := o.flags.Kafka.Connect(engines)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, queue.Close)
	t.Store, t.Cache, t.Through = a, cache, through(cache, queue)
	return t, engines.All(o.ctx)
}

// through writes records to a cache, and announces them to the jobs.
func through(cache history.Cache, queue history.Publisher) func(context.Context, history.Key, *history.Record) error {
	r := replay.Redriver{Cache: cache, Queue: queue}
	return func(ctx context.Context, k history.Key, record *history.Record) error {
		return r.Drive(ctx, history.Dead{Key: k, Record: record})
	}
}

// unannounced is the queue of an all-in-one that is not running. It drops announcements: the next start finds the dirty
// marks.
type unannounced struct{}

// Publish implements [history.Publisher].
func (unannounced) Publish(context.Context, []history.Announcement) ([]history.Announcement, error) {
	return nil, nil
}
