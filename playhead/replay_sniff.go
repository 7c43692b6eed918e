package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
	"github.com/playhead/playhead/internal/run"
)

// importFlags say what a file of old viewings does not.
type importFlags struct {
	Map       string `help:"Columns of CSV or NDJSON of no known form, such as user=1,object=video_id,time=4:s,type:=2."`
	Zone      string `help:"Time zone of times without an offset, such as Europe/Berlin or +02:00." default:"UTC"`
	Dates     string `help:"Order of day, month and year in dates of digits: dmy, mdy or ymd; found out by default."`
	Types     string `help:"Numbers of the types of objects." default:"video=1,episode=2,audio=3"`
	User      string `help:"User of all rows; by default the one that the file names."`
	Delimiter string `help:"Delimiter of columns; found out by default."`
}

func (f *importFlags) options() (o imports.Options, err error) {
	o = imports.Options{User: f.User, Delimiter: f.Delimiter}
	if o.Zone, err = history.ParseZone(f.Zone); err != nil {
		return o, fmt.Errorf("--zone: %w", err)
	}
	if o.Dates, err = imports.ParseDateOrder(f.Dates); err != nil {
		return o, fmt.Errorf("--dates: %w", err)
	}
	if o.Types, err = imports.ParseTypes(f.Types); err != nil {
		return o, fmt.Errorf("--types: %w", err)
	}
	if f.Map != "" {
		if o.Map, err = imports.ParseMap(f.Map); err != nil {
			return o, fmt.Errorf("--map: %w", err)
		}
	}
	return o, nil
}

type sniffFlags struct {
	File string `arg:"" help:"File of old viewings, packed or not; - is standard input."`
	importFlags
}

// Help returns the introduction to --help.
func (*sniffFlags) Help() string {
	return "Shows the form of a file, or its columns and a --map to paste, and the first rows as they would be stored. Nothing is sent."
}

// sniff prints how a file would be read.
func sniff(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f sniffFlags
	if err := run.Parse("playhead replay sniff", &f, args, getenv, out); err != nil {
		return err
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	found, err := imports.Sniff(ctx, o, f.File)
	printSniffed(out, found)
	return err
}

func printSniffed(out io.Writer, found *imports.Sniffed) {
	if found.Form != "" {
		fmt.Fprintf(out, "form: %s\n", found.Form)
	}
	for _, c := range found.Columns {
		fmt.Fprintf(out, "column %-20s %-12s e.g. %.60q\n", c.Name, c.Field, c.Sample)
	}
	if found.Map != "" {
		fmt.Fprintf(out, "--map '%s'\n", found.Map)
	}
	for i := range found.First {
		printItem(out, &found.First[i])
	}
}

func printItem(out io.Writer, i *imports.Item) {
	switch e := &i.Event; i.Outcome {
	case imports.Skipped:
		fmt.Fprintf(out, "%s: skipped: %s\n", i.Place, i.Reason)
	case imports.Rejected:
		fmt.Fprintf(out, "%s: rejected: %s\n", i.Place, i.Reason)
	default:
		fmt.Fprintf(out, "%s: %s", i.Place, stored(e))
	}
}

// stored describes the event of a row.
func stored(e *history.Event) string {
	var text strings.Builder
	fmt.Fprintf(&text, "object %s, %s at %s", e.Key.Object, e.Record().State, time.UnixMilli(e.At).UTC().Format(time.RFC3339))
	if e.Key.UID != "" {
		fmt.Fprintf(&text, ", user %s", e.Key.UID)
	}
	for _, part := range []struct {
		name string
		ms   int64
	}{{"position", e.Position}, {"duration", e.Duration}, {"watched", e.Watched}} {
		if part.ms > 0 {
			fmt.Fprintf(&text, ", %s %v", part.name, time.Duration(part.ms)*time.Millisecond)
		}
	}
	if title := e.Meta.Get("title"); title != "" {
		fmt.Fprintf(&text, ", title %.60q", title)
	}
	return text.String() + "\n"
}
