package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/playhead/playhead/internal/run"
)

type partsFlags struct {
	UID    string `arg:"" help:"User whose history is looked at."`
	Data   string `help:"Data directory of an all-in-one that is not running." default:"playhead-data" type:"existingdir"`
	Verify bool   `help:"Read all of it and compare it with its checksums and lists."`
}

// Help is what --help begins with.
func (*partsFlags) Help() string {
	return `Shows what the archive has of a user: how many records are live, and which chunks the parts consist of. ` +
		`With --verify it ends with an error if anything is wrong.`
}

// parts shows what of a user's history is in parts.
func parts(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f partsFlags
	if err := run.Parse("replay parts", &f, args, getenv, out); err != nil {
		return err
	}
	found, err := inspect(ctx, f.Data, f.UID, f.Verify)
	if err != nil {
		return err
	}
	records, superseded, size := 0, 0, 0
	for _, c := range found.Parts.Chunks {
		records, superseded, size = records+c.Count, superseded+len(c.Superseded), size+c.Bytes
	}
	fmt.Fprintf(out, "%d live records\n%d records in %d chunks of %d bytes, version %d, %d of them superseded\n",
		found.Live, records, len(found.Parts.Chunks), size, found.Parts.Version, superseded)
	for _, c := range found.Parts.Chunks {
		fmt.Fprintf(out, "  %-20s %s to %s  %5d records %5d superseded %7d bytes\n", c.Name, moment(c.Newest.Time()), moment(c.Oldest.Time()), c.Count, len(c.Superseded), c.Bytes)
	}
	if len(found.Unlisted) > 0 {
		fmt.Fprintf(out, "not listed, so that nobody reads them: %s\n", strings.Join(found.Unlisted, ", "))
	}
	if f.Verify && len(found.Wrong) == 0 {
		fmt.Fprintf(out, "all chunks are whole; %d live records have a later or earlier one in parts\n", found.Both)
	}
	return errors.Join(found.Wrong...)
}

func moment(at int64) string { return time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05Z") }
