package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/run"
)

// replayCommand copies histories, or runs one of the commands for a running server. Without a command it copies files.
func replayCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "copy":
			return copyCommand(ctx, args[1:], getenv, out)
		case "verify":
			return verifyCommand(ctx, args[1:], getenv, out)
		case "sniff":
			return sniff(ctx, args[1:], getenv, out)
		case "audit":
			return auditCommand(ctx, args[1:], getenv, out)
		case "dead":
			return dead(ctx, args[1:], getenv, out)
		case "user":
			return user(ctx, args[1:], getenv, out)
		case "counts":
			return countsCommand(ctx, args[1:], getenv, out)
		case "segments":
			return segments(ctx, args[1:], getenv, out)
		case "erase":
			return erase(ctx, args[1:], getenv, out)
		case "rebase":
			return rebase(ctx, args[1:], getenv, out)
		}
	}
	return copyCommand(ctx, args, getenv, out)
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

// namespaceLister is a store with namespaces of users.
type namespaceLister interface {
	Namespaces(ctx context.Context, uid string) ([]string, error)
}

// namespaces inspects the user's own namespace and every class namespace.
func (f *segmentsFlags) namespaces(ctx context.Context, s namespaceLister, a inspector) (all []inspected, err error) {
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
	db, err := openData(f.Data, pebble.Config{})
	if err != nil {
		return nil, err
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
