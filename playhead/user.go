package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
)

type userFlags struct {
	UID   string        `arg:"" help:"User whose history is shown."`
	Data  string        `help:"Data directory of an all-in-one that is not running: look there, not at the engines."`
	Limit int           `help:"Newest records of each place." default:"100" positive:""`
	Since time.Duration `help:"How long ago a message of Kafka may be." default:"1h"`

	connect.Flags
}

// Help returns the introduction to --help.
func (*userFlags) Help() string {
	return `Shows what cache, queue and archive have of a user, side by side, newest first. It changes nothing; services and jobs may be running. ` +
		`It ends with an error if cache and archive differ in a record that no job has yet to archive.`
}

// places are the stores of a user's history.
type places struct {
	cache      history.Cache
	archive    history.Archive
	namespaces namespaceLister
	// announced returns how often the queue has had each key; nil without a queue.
	announced func(ctx context.Context, uid string) (map[history.Key]int, error)
}

func user(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f userFlags
	if err := run.Parse("playhead replay user", &f, args, getenv, out); err != nil {
		return err
	}
	if err := history.ValidateUID(f.UID); err != nil {
		return err
	}
	fmt.Fprintf(out, "in logs: %s\n", history.Pseudonym(f.UID))
	look := f.lookAtEngines
	if f.Data != "" {
		look = f.lookAtData
	}
	return look(ctx, func(p places) error { return f.show(ctx, p, out) })
}

// lookAtData opens an embedded store. No other process may have it open.
func (f *userFlags) lookAtData(_ context.Context, show func(places) error) error {
	db, err := openData(f.Data, pebble.Config{})
	if err != nil {
		return err
	}
	return errors.Join(show(places{cache: db.Cache(), archive: db.Archive(), namespaces: db}), db.Close())
}

func (f *userFlags) lookAtEngines(ctx context.Context, show func(places) error) error {
	engines := &connect.Engines{Log: slog.New(slog.DiscardHandler)}
	cache, err := f.Redis.Connect(engines)
	if err != nil {
		return err
	}
	defer cache.Close()
	topics, err := f.Topics(engines.Log)
	if err != nil {
		return err
	}
	for _, t := range topics {
		defer t.Close()
	}
	if err := engines.All(ctx); err != nil {
		return err
	}
	archive, err := hbase.Open(ctx, hbase.Config{ZooKeeper: f.ZooKeeper, Table: f.Table, Existing: true})
	if err != nil {
		return err
	}
	defer archive.Close()
	announced := func(ctx context.Context, uid string) (map[history.Key]int, error) {
		found := make(map[history.Key]int)
		err := topics[0].Reread(ctx, []history.Bucket{history.BucketOf(uid)}, time.Now().Add(-f.Since), func(_ context.Context, all []history.Announcement) error {
			for _, a := range all {
				if a.Key.UID == uid {
					found[a.Key]++
				}
			}
			return nil
		})
		return found, err
	}
	return show(places{cache, archive, archive, announced})
}

// show prints the user's own namespace and those of classes.
func (f *userFlags) show(ctx context.Context, p places, out io.Writer) error {
	classes, err := p.namespaces.Namespaces(ctx, f.UID)
	if err != nil {
		return err
	}
	differing := 0
	for _, uid := range append([]string{f.UID}, classes...) {
		n, err := f.showNamespace(ctx, p, uid, out)
		if err != nil {
			return err
		}
		differing += n
	}
	if differing > 0 {
		return fmt.Errorf("%d records differ that no job has yet to archive", differing)
	}
	return nil
}

// sides is an object in each place.
type sides struct {
	object           history.Object
	cached, archived *history.Record
}

func (f *userFlags) showNamespace(ctx context.Context, p places, uid string, out io.Writer) (differing int, err error) {
	state := p.cache.Load(ctx, []history.Key{history.UserKey(uid)})[0]
	if state.Err != nil {
		return 0, state.Err
	}
	cached, err := p.cache.List(ctx, uid, history.Query{Limit: f.Limit})
	if err != nil {
		return 0, err
	}
	archived, err := p.archive.Page(ctx, uid, history.Query{Limit: f.Limit})
	if err != nil {
		return 0, err
	}
	announced := map[history.Key]int{}
	if p.announced != nil {
		if announced, err = p.announced(ctx, uid); err != nil {
			return 0, err
		}
	}
	fmt.Fprintf(out, "%s: %s\n%-20s %-34s %-6s %-34s %s\n", uid, warmth(&state.User), "object", "cache", "queue", "archive", "")
	for _, s := range join(cached.Items, archived.Items) {
		verdict := s.verdict(&state.User)
		if verdict == differ {
			differing++
		}
		queued := ""
		if n := announced[history.Key{UID: uid, Object: s.object}]; n > 0 {
			queued = fmt.Sprintf("%d x", n)
		}
		fmt.Fprintf(out, "%-20s %-34s %-6s %-34s %s\n", s.object, brief(s.cached), queued, brief(s.archived), verdict)
	}
	for _, d := range archived.Damaged {
		fmt.Fprintf(out, "%-20s damaged in the archive: %v\n", d.Object, d.Err)
	}
	return differing, nil
}

func warmth(u *history.User) string {
	switch {
	case !u.Warm:
		return "cold, the cache does not know what the archive has"
	case u.Complete():
		return "warm, the cache has everything"
	}
	return "warm, the cache has everything since " + moment(u.LowWatermark.Time())
}

// join returns the objects of both places, newest first.
func join(cached, archived []history.Item) (all []sides) {
	at := make(map[history.Object]int)
	side := func(o history.Object) *sides {
		if _, known := at[o]; !known {
			at[o] = len(all)
			all = append(all, sides{object: o})
		}
		return &all[at[o]]
	}
	for _, i := range cached {
		side(i.Object).cached = i.Record
	}
	for _, i := range archived {
		side(i.Object).archived = i.Record
	}
	slices.SortStableFunc(all, func(a, b sides) int { return b.newest().Compare(a.newest()) })
	return all
}

func (s sides) newest() time.Time {
	var newest int64
	for _, r := range []*history.Record{s.cached, s.archived} {
		if r != nil {
			newest = max(newest, r.Version.Time())
		}
	}
	return time.UnixMilli(newest)
}

func brief(r *history.Record) string {
	if r == nil {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %d s", moment(r.Version.Time()), r.State, r.Position/1000))
}

const differ = "they differ"

// verdict compares the places. A deleted or old record may be in the archive only.
func (s sides) verdict(u *history.User) string {
	switch {
	case s.cached == nil:
		return "archive only"
	case !s.cached.Clean():
		return "waits for the archive"
	case s.archived == nil || s.archived.Version != s.cached.Version || s.archived.Position != s.cached.Position:
		if !u.Warm || s.cached.Partial {
			return "part of it in the cache"
		}
		return differ
	}
	return "archived"
}
