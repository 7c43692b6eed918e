package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxImport bounds the body of an import, maxLine a line of it, and maxRecords the encoded
	// records of one call to the service, in bytes.
	maxImport  = 64 << 20
	maxLine    = 256 << 10
	maxRecords = 1 << 20
	// maxLines bounds the lines, most of which are empty or wrong where there are more.
	maxLines = 1 << 20
	// maxRefused is how many rows a report names.
	maxRefused = 1000
)

// imports registers the import, whose body is lines of JSON.
func (a *api) imports(h huma.API) {
	op := operation(http.MethodPost, "/v1/import", "Take over records, one in each line, such as an export has them", nil)
	op.Metadata = map[string]any{"body": map[string]*huma.MediaType{octets: lines(h.OpenAPI(), codec.ExportLine{}, codec.Record{})[octets]}}
	op.Description = "The body is " + ndjson + ", and may be called so; here it is " + octets + ", since generators take a type with json in its name for one object. A record is folded into the history as if its reports came again: what the history has newer stays, and what it has already counts once. " +
		"So an import that was cut off is sent again, whole, and a backup may be imported into a history that went on. " +
		"A record that was deleted or cleared later is answered with cleared and stays removed, unless restore is true: then it comes back, as of the moment after the removal. " +
		"A line without version has the fields of a record in a list, of which object and event_time are enough: without state it was finished, unless position_ms is below 90 % of duration_ms or plays is 0. Without plays each row that was completed is a play, two of different times are two. It restores nothing. " +
		"A client that accepts " + ndjson + ", and no application/json, gets an answer for each row while more are sent, {\"line\",\"status\",\"error\"}, and at the end {\"rows\",\"statuses\"}, " +
		"or {\"problem\"} where it had to stop; it must read while it sends."
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[imported](), true, "")
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: schema}, ndjson: lines(h.OpenAPI(), importRow{})[ndjson],
	}}}
	a.metrics.route(op.Method + " " + op.Path)
	huma.Register(h, op, func(ctx context.Context, in *importInput) (*huma.StreamResponse, error) {
		im, more, err := a.begin(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &huma.StreamResponse{Body: func(huma.Context) { im.tell(ctx, in.w, more) }}, nil
	})
}

type importInput struct {
	upload
	Restore bool `query:"restore" doc:"Records that were deleted or cleared come back."`
}

// begin takes the first rows over, or all where only the whole is told of: until it
// returns, an error can be said.
func (a *api) begin(ctx context.Context, in *importInput) (im *importer, more bool, err error) {
	if err := checkMedia(in.r, ndjson, octets); err != nil {
		return nil, false, err
	}
	if _, err := a.cfg.Limit.Take(importsOf(ctx), 1); err != nil {
		return nil, false, err
	}
	im = &importer{
		api: a, rc: http.NewResponseController(in.w), live: acceptsOnly(in.r, ndjson, "application/json"),
		body:   bufio.NewReaderSize(unpack(in.w, in.r, maxImport), maxLine), // a packed one is left to the collector
		report: imported{Statuses: make(map[string]int), Refused: []refusedRow{}}, restore: in.Restore,
	}
	for more = true; more; {
		if more, err = im.batch(ctx, im.body); err != nil || im.live {
			break
		}
	}
	return im, more, err
}

// importsOf names a budget of its own, so that what a user imports takes nothing from the user's players. NUL is in no uid.
func importsOf(ctx context.Context) string { return uidOf(ctx) + "\x00imports" }

// tell answers: with the whole, or with each row while more are taken over.
func (im *importer) tell(ctx context.Context, w http.ResponseWriter, more bool) {
	if !im.live {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(im.report) // an error is the reader's
		return
	}
	w.Header().Set("Content-Type", ndjson)
	_ = im.rc.EnableFullDuplex() // others have no more than that already
	var err error
	for im.send(w) && more && err == nil {
		more, err = im.batch(ctx, im.body)
	}
	last := importRow{Rows: im.report.Rows, Statuses: im.report.Statuses}
	if err != nil {
		last.Problem = im.problem(ctx, err)
	}
	_ = json.NewEncoder(&im.rows).Encode(last) // never fails
	im.send(w)
}

// send reports whether the reader still takes what it is told.
func (im *importer) send(w http.ResponseWriter) bool {
	defer im.rows.Reset()
	_, err := w.Write(im.rows.Bytes())
	return err == nil && im.rc.Flush() == nil
}

// importer takes rows over, a batch at a time.
type importer struct {
	*api
	rc     *http.ResponseController
	body   *bufio.Reader
	report imported
	line   int
	live   bool         // each row is told of
	rows   bytes.Buffer // answers that are not sent yet

	restore bool // what was removed comes back

	// Records that are read and not stored yet, and the lines that they are of.
	records []*historyv1.ImportedRecord
	lines   []int
	size    int // of both, in bytes
}

func (im *importer) batch(ctx context.Context, body *bufio.Reader) (more bool, err error) {
	_ = im.rc.SetReadDeadline(time.Now().Add(pagePatience)) // a connection without deadlines needs none
	_ = im.rc.SetWriteDeadline(time.Now().Add(2 * pagePatience))
	held := im.cfg.Memory.Hold()
	defer held.Release()
	im.records, im.lines, im.size = nil, im.lines[:0], 0 // the service may still have those records
	for more = true; more && len(im.records) < codec.MaxHeartbeats && im.size < maxRecords; {
		before := im.size
		if more, err = im.read(uidOf(ctx), body); err != nil {
			return false, err
		}
		if err := held.Grow(ctx, im.size-before); err != nil {
			return false, err
		}
	}
	im.cfg.Limit.Spend(importsOf(ctx), float64(len(im.records))/100)
	return more, im.store(ctx)
}

// read takes a line. The last one may lack its end.
func (im *importer) read(uid string, body *bufio.Reader) (more bool, err error) {
	line, err := body.ReadSlice('\n')
	im.line++
	if im.line == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // with which some editors begin a file
	}
	switch {
	case im.line > maxLines:
		return false, fmt.Errorf("body: %w: want at most %d lines", codec.ErrTooLarge, maxLines)
	case errors.Is(err, bufio.ErrBufferFull):
		im.refuse(im.line, &codec.FieldError{Field: "body", Reason: fmt.Sprintf("longer than %d bytes", maxLine)})
		return skip(body)
	case err == nil || errors.Is(err, io.EOF):
		im.row(uid, line)
		return err == nil, nil
	}
	return false, broken(err, maxImport)
}

// skip reads to the end of a line.
func skip(body *bufio.Reader) (more bool, err error) {
	for {
		switch _, err := body.ReadSlice('\n'); {
		case err == nil:
			return true, nil
		case errors.Is(err, io.EOF):
			return false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return false, broken(err, maxImport)
		}
	}
}

// row passes empty lines by.
func (im *importer) row(uid string, line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	switch wrong := im.take(uid, line); {
	case wrong != nil:
		im.refuse(im.line, wrong)
	default:
		im.report.Rows++
	}
}

func (im *importer) take(uid string, line []byte) *codec.FieldError {
	if err := json.Unmarshal(line, new(json.RawMessage)); err != nil { // one that is cut off has other faults too
		return &codec.FieldError{Field: "body", Reason: err.Error()}
	}
	if codec.IsExportLine(line) {
		record, wrong := codec.DecodeExportLine(uid, line)
		if wrong != nil {
			return wrong
		}
		im.add(record)
		return nil
	}
	record, wrong := codec.DecodeRow(line)
	switch {
	case wrong != nil:
		return wrong
	case im.restore:
		return &codec.FieldError{Field: "version", Reason: "want a line of an export, which has one: others cannot be restored"}
	}
	im.add(record)
	return nil
}

func (im *importer) add(record *historyv1.ImportedRecord) {
	im.records, im.lines = append(im.records, record), append(im.lines, im.line)
	im.size += proto.Size(record)
}

func (im *importer) refuse(line int, wrong *codec.FieldError) {
	im.report.Rows++
	im.count(line, codec.StatusName(historyv1.Status_STATUS_INVALID), wrong)
}

func (im *importer) count(line int, status string, wrong *codec.FieldError) {
	im.report.Statuses[status]++
	im.metrics.beats.WithLabelValues(status).Inc()
	if im.live {
		_ = json.NewEncoder(&im.rows).Encode(importRow{Line: line, Status: status, Error: wrong}) // never fails
		return
	}
	if (status == "invalid" || status == "expired") && len(im.report.Refused) < maxRefused {
		im.report.Refused = append(im.report.Refused, refusedRow{Line: line, Status: status, Error: wrong})
	}
}

func (im *importer) store(ctx context.Context) error {
	if len(im.records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, im.cfg.ReadDeadline) // it may have to read the archive
	defer cancel()
	resp, err := im.cfg.Service.Import(ctx, &historyv1.ImportRequest{Uid: uidOf(ctx), Records: im.records, Restore: im.restore})
	if err != nil {
		return err
	}
	return im.decided(im.lines, resp)
}

// decided counts what became of some lines.
func (im *importer) decided(lines []int, resp interface {
	GetStatuses() []historyv1.Status
	GetRefusals() []*historyv1.Refusal
},
) error {
	if got := len(resp.GetStatuses()); got != len(lines) {
		return fmt.Errorf("%d statuses for %d rows", got, len(lines))
	}
	refusals := make(map[int]*codec.FieldError)
	for _, r := range resp.GetRefusals() {
		refusals[int(r.Index)] = &codec.FieldError{Field: r.Field, Reason: r.Reason}
	}
	for i, status := range resp.GetStatuses() {
		if status == historyv1.Status_STATUS_UNAVAILABLE {
			return fmt.Errorf("import line %d: %w", lines[i], history.ErrUnavailable)
		}
		im.count(lines[i], codec.StatusName(status), refusals[i])
	}
	return nil
}
