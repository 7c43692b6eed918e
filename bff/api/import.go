package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
)

const (
	// maxImport bounds the body of an import, maxLine a line of it, in bytes.
	maxImport = 32 << 20
	maxLine   = 64 << 10
	// maxRefused is how many rows a report names.
	maxRefused = 1000
)

// imports registers the import, whose body is no JSON but lines of it.
func (a *api) imports(h huma.API) {
	op := operation(http.MethodPost, "/v1/import", "Take over records, one in each line, such as an export has them", codec.Record{})
	op.Metadata["media"] = ndjson
	op.Description = "A record is taken for the report that left it behind: what the history has newer stays, and rows that come twice count once. " +
		"So an import that was cut off is sent again, whole. Plays and the furthest position are not taken over. " +
		"Who accepts " + ndjson + " is told of each row while more are sent, {\"line\",\"status\",\"error\"}, and at the end {\"rows\",\"statuses\"}, " +
		"or {\"problem\"} where it had to stop; who does so reads while sending."
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[imported](), true, "")
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": {Schema: schema}, ndjson: {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[toldRow](), true, "")},
	}}}
	a.metrics.route(op.Method + " " + op.Path)
	huma.Register(h, op, func(ctx context.Context, in *upload) (*huma.StreamResponse, error) {
		im, more, err := a.begin(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &huma.StreamResponse{Body: func(huma.Context) { im.tell(ctx, in.w, more) }}, nil
	})
}

// begin takes the first rows over, or all where only the whole is told of: until it
// returns, an error can be said.
func (a *api) begin(ctx context.Context, in *upload) (im *importer, more bool, err error) {
	if err := checkMedia(in.r, ndjson); err != nil {
		return nil, false, err
	}
	im = &importer{
		api: a, rc: http.NewResponseController(in.w), live: strings.Contains(in.r.Header.Get("Accept"), ndjson),
		body:   bufio.NewReaderSize(http.MaxBytesReader(in.w, in.r.Body, maxImport), maxLine),
		report: imported{Statuses: make(map[string]int), Refused: []refusedRow{}},
	}
	for more = true; more; {
		if more, err = im.batch(ctx, im.body); err != nil || im.live {
			break
		}
	}
	return im, more, err
}

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
	last := toldRow{Rows: im.report.Rows, Statuses: im.report.Statuses}
	if err != nil {
		last.Problem = im.problem(ctx, err)
	}
	_ = json.NewEncoder(&im.told).Encode(last) // never fails
	im.send(w)
}

// send reports whether the reader still takes what it is told.
func (im *importer) send(w http.ResponseWriter) bool {
	defer im.told.Reset()
	_, err := w.Write(im.told.Bytes())
	return err == nil && im.rc.Flush() == nil
}
