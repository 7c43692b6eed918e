package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxUnpacked bounds the unpacked bytes of a file, and fileMemory what reading one holds.
	maxUnpacked = 1 << 30
	fileMemory  = 8 << 20
	// maxFirst and maxUsers limit the rows and users that a report lists.
	maxFirst = 5
	maxUsers = 20
)

// importFile is the file of another program, whose rows are pulled one by one.
type importFile struct {
	source *imports.Source
	next   func() (imports.Item, error, bool)
	stop   func()
	from   string // user of the file whose rows are taken
}

// isLines reports whether a body has lines of an export or rows, and is no file of another program.
func isLines(r *http.Request, head []byte) bool {
	if media := r.Header.Get("Content-Type"); media != octets {
		return true
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return len(head) == 0 || head[0] == '{' && bytes.Contains(line, []byte(`"object"`))
}

// openFile begins to read the body as a file.
func (im *importer) openFile(ctx context.Context, in *importInput) error {
	o := imports.Options{MaxBytes: maxUnpacked, From: in.From}
	var err error
	if o.Dates, err = imports.ParseDateOrder(in.Dates); err != nil {
		return history.Invalid("query.dates", err.Error())
	}
	if in.Zone != "" {
		if o.Zone, err = history.ParseZone(in.Zone); err != nil {
			return history.Invalid("query.zone", err.Error())
		}
	}
	if in.Map != "" {
		if o.Map, err = imports.ParseMap(in.Map); err != nil {
			return history.Invalid("query.map", err.Error())
		}
	}
	if in.Restore {
		return history.Invalid("query.restore", "want a file of an export: others cannot be restored")
	}
	im.file = &importFile{source: imports.FromReader(o, "file", im.body), from: in.From}
	im.file.next, im.file.stop = iter.Pull2(im.file.source.Items(ctx))
	return nil
}

// readFile takes one row of the file.
func (im *importer) readFile(uid string) (more bool, err error) {
	item, err, more := im.file.next()
	switch {
	case !more:
		im.report.Form = im.form()
		return false, nil
	case err != nil:
		return false, im.fileError(err)
	case im.report.Rows >= maxLines:
		return false, fmt.Errorf("body: %w: want at most %d rows", codec.ErrTooLarge, maxLines)
	}
	im.line = int(max(item.Place.Line, 1))
	im.report.Rows++
	switch item.Outcome {
	case imports.Skipped:
		im.count(im.line, "skipped", &codec.FieldError{Field: "row", Reason: item.Reason})
	case imports.Rejected:
		im.count(im.line, "invalid", &codec.FieldError{Field: "row", Reason: item.Reason})
	default:
		im.takeEvent(uid, &item.Event)
	}
	return true, nil
}

func (im *importer) form() string {
	for _, f := range im.file.source.Files() {
		if f.Form != "" {
			return f.Form
		}
	}
	return ""
}

func (im *importer) fileError(err error) error {
	switch {
	case errors.Is(err, imports.ErrDateOrder):
		return history.Invalid("query.dates", "the dates of the file have several meanings: want dmy, mdy or ymd")
	case errors.Is(err, imports.ErrUnknown):
		return history.Invalid("body", err.Error())
	}
	return err
}

// takeEvent adds a viewing of the one user of the file that is imported.
func (im *importer) takeEvent(uid string, e *history.Event) {
	if user := e.Key.UID; user != "" {
		if !slices.Contains(im.report.Users, user) && len(im.report.Users) < maxUsers {
			im.report.Users = append(im.report.Users, user)
		}
		if im.file.from == "" {
			im.file.from = user
		}
		if user != im.file.from {
			im.count(im.line, "invalid", &codec.FieldError{Field: "user", Reason: fmt.Sprintf("of another user of the file than %.64q; want from with the one to import", im.file.from)})
			return
		}
	}
	e.Key.UID = uid
	record, err := codec.NewImported(e)
	if err != nil {
		im.count(im.line, "invalid", &codec.FieldError{Field: "row", Reason: err.Error()})
		return
	}
	im.add(record)
}

// preview counts the records of a batch as readable, and lists the first.
func (im *importer) preview() {
	for i, record := range im.records {
		im.count(im.lines[i], "readable", nil)
		at := history.Version(record.GetRecord().GetVersion()).Time()
		if im.oldest == 0 || at < im.oldest {
			im.oldest, im.report.Oldest = at, codec.FormatTime(at)
		}
		if at > im.newest {
			im.newest, im.report.Newest = at, codec.FormatTime(at)
		}
		if len(im.report.First) < maxFirst {
			im.report.First = append(im.report.First, newFirst(im.lines[i], record))
		}
	}
}

func newFirst(line int, record *historyv1.ImportedRecord) firstRow {
	r := record.GetRecord()
	first := firstRow{
		Line: line, Object: codec.Object{ID: record.GetObject().GetId(), Type: record.GetObject().GetType()},
		EventTime: codec.FormatTime(history.Version(r.GetVersion()).Time()), State: history.State(r.GetState()).String(), //nolint:gosec // of few values
		PositionMS: r.GetPositionMs(), DurationMS: r.GetDurationMs(),
	}
	for _, e := range r.GetMeta() {
		if e.GetKey() == "title" {
			first.Title = e.GetValue()
		}
	}
	return first
}
