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
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// Limits in bytes: maxImport for the body, maxLine for a line, and maxRecords for the encoded records of
	// one service call.
	maxImport  = 64 << 20
	maxLine    = 256 << 10
	maxRecords = 1 << 20
	// maxLines limits the lines. More would be mostly empty or invalid.
	maxLines = 1 << 20
	// maxRows limits the rows of a batch; many may hold no record.
	maxRows = 20_000
	// maxRefused limits the rows that a report names.
	maxRefused = 1000
)

// imports registers the import, whose body is NDJSON.
func (a *api) imports(h huma.API) {
	op := operation(http.MethodPost, "/v1/import", "Take over records, one in each line, such as an export has them", nil)
	op.Metadata = map[string]any{"body": map[string]*huma.MediaType{octets: lines(h.OpenAPI(), codec.ExportLine{}, codec.Record{})[octets]}}
	op.Description = "The body is " + ndjson + ", and may be called so; here it is " + octets + ", since generators take a type with json in its name for one object. " +
		"As " + octets + " it may also be a file of another program, such as a Trakt zip or a Netflix CSV: " + strings.Join(imports.Forms(), ", ") + ". " +
		"A record is folded into the history as if its reports came again: what the history has newer stays, and what it has already counts once. " +
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
	Restore bool   `query:"restore" doc:"Records that were deleted or cleared come back."`
	DryRun  bool   `query:"dry_run" doc:"Nothing is stored. Rows that can be read are readable, and the first ones are listed."`
	Dates   string `query:"dates" enum:"dmy,mdy,ymd" doc:"The order of day, month and year in the dates of a file, where it asks for it."`
	Zone    string `query:"zone" maxLength:"64" doc:"The time zone of a file's times without an offset, such as Europe/Berlin; UTC by default."`
	Map     string `query:"map" maxLength:"1024" doc:"The columns of CSV or NDJSON of no known form, such as object=id,time=at:s."`
	From    string `query:"from" maxLength:"256" doc:"The user of a file of several whose rows are imported; by default that of the first row."`
}

// begin imports the first batch, or everything if the client wants only a summary. Until it returns, an error
// can still set the status.
func (a *api) begin(ctx context.Context, in *importInput) (im *importer, more bool, err error) {
	if err := checkMedia(in.r, ndjson, octets); err != nil {
		return nil, false, err
	}
	if _, err := a.cfg.Limit.Take(importsOf(ctx), 1); err != nil {
		return nil, false, err
	}
	im = &importer{
		api: a, rc: http.NewResponseController(in.w), live: acceptsOnly(in.r, ndjson, "application/json"),
		body:   bufio.NewReaderSize(unpack(in.w, in.r, maxImport), maxLine), // a gzip reader is left to the garbage collector
		report: imported{Statuses: make(map[string]int), Refused: []refusedRow{}}, restore: in.Restore, dryRun: in.DryRun,
	}
	if head, _ := im.body.Peek(4 << 10); !isLines(in.r, head) {
		if err := im.openFile(ctx, in); err != nil {
			return nil, false, err
		}
	}
	for more = true; more; {
		if more, err = im.batch(ctx, im.body); err != nil || im.live {
			break
		}
	}
	if err != nil || !im.live {
		im.close()
	}
	return im, more, err
}

// close ends the reading of a file.
func (im *importer) close() {
	if im.file != nil {
		im.file.stop()
	}
}

// importsOf is the key of a separate rate limit for imports, which spares the user's players. No uid contains
// NUL.
func importsOf(ctx context.Context) string { return uidOf(ctx) + "\x00imports" }

// tell sends the summary, or a line per row while the import continues.
func (im *importer) tell(ctx context.Context, w http.ResponseWriter, more bool) {
	if !im.live {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(im.report) // an error only means that the client is gone
		return
	}
	w.Header().Set("Content-Type", ndjson)
	_ = im.rc.EnableFullDuplex() // HTTP/2 is always full duplex
	var err error
	for im.send(w) && more && err == nil {
		more, err = im.batch(ctx, im.body)
	}
	im.close()
	last := importRow{Rows: im.report.Rows, Statuses: im.report.Statuses}
	if err != nil {
		last.Problem = im.problem(ctx, err)
	}
	_ = json.NewEncoder(&im.rows).Encode(last) // never fails
	im.send(w)
}

// send reports whether the client still reads.
func (im *importer) send(w http.ResponseWriter) bool {
	defer im.rows.Reset()
	_, err := w.Write(im.rows.Bytes())
	return err == nil && im.rc.Flush() == nil
}

type importer struct {
	*api
	rc     *http.ResponseController
	body   *bufio.Reader
	report imported
	line   int
	live   bool         // one answer per row
	rows   bytes.Buffer // answers not sent yet

	restore bool        // bring back removed records
	dryRun  bool        // store nothing
	file    *importFile // nil for lines

	oldest, newest int64 // of a dry run, Unix milliseconds

	// Records not yet stored, and their line numbers.
	records []*historyv1.ImportedRecord
	lines   []int
	size    int // bytes of records
}

func (im *importer) batch(ctx context.Context, body *bufio.Reader) (more bool, err error) {
	_ = im.rc.SetReadDeadline(time.Now().Add(pagePatience)) // fails only for a connection without deadlines
	_ = im.rc.SetWriteDeadline(time.Now().Add(2 * pagePatience))
	held := im.cfg.Memory.Hold()
	defer held.Release()
	im.records, im.lines, im.size = nil, im.lines[:0], 0 // new records: the service may keep the old ones
	if im.file != nil {
		if err := held.Grow(ctx, fileMemory); err != nil {
			return false, err
		}
	}
	rows := im.report.Rows + maxRows
	for more = true; more && len(im.records) < codec.MaxHeartbeats && im.size < maxRecords && im.report.Rows < rows; {
		before := im.size
		if im.file != nil {
			more, err = im.readFile(uidOf(ctx))
		} else {
			more, err = im.read(uidOf(ctx), body)
		}
		if err != nil {
			return false, err
		}
		if err := held.Grow(ctx, im.size-before); err != nil {
			return false, err
		}
	}
	im.cfg.Limit.Spend(importsOf(ctx), float64(len(im.records))/100)
	return more, im.store(ctx)
}

// read reads one line. The last line may lack a newline.
func (im *importer) read(uid string, body *bufio.Reader) (more bool, err error) {
	line, err := body.ReadSlice('\n')
	im.line++
	if im.line == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff")) // byte order mark of some editors
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

// row imports one line and ignores empty ones.
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
	if err := json.Unmarshal(line, new(json.RawMessage)); err != nil { // a truncated line has other errors too
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
	if (status == "invalid" || status == "expired" || status == "skipped" && im.dryRun) && len(im.report.Refused) < maxRefused {
		im.report.Refused = append(im.report.Refused, refusedRow{Line: line, Status: status, Error: wrong})
	}
}

func (im *importer) store(ctx context.Context) error {
	if im.dryRun {
		im.preview()
		return nil
	}
	if len(im.records) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, im.cfg.ReadDeadline) // may read the archive
	defer cancel()
	counts(ctx, len(im.records))
	resp, err := im.cfg.Service.Import(ctx, &historyv1.ImportRequest{Uid: uidOf(ctx), Records: im.records, Restore: im.restore})
	if err != nil {
		return err
	}
	return im.decided(im.lines, resp)
}

// decided counts the results of a batch.
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
