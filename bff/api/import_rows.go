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
	"time"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// importer takes rows over, a batch at a time.
type importer struct {
	*api
	rc     *http.ResponseController
	body   *bufio.Reader
	report imported
	line   int
	live   bool         // each row is told of
	told   bytes.Buffer // what is still to be

	beats []*historyv1.Heartbeat
	lines []int // of the beats
}

func (im *importer) batch(ctx context.Context, body *bufio.Reader) (more bool, err error) {
	_ = im.rc.SetReadDeadline(time.Now().Add(pagePatience)) // a connection without deadlines needs none
	_ = im.rc.SetWriteDeadline(time.Now().Add(2 * pagePatience))
	im.beats, im.lines = nil, im.lines[:0] // the service may still have those beats
	for more = true; more && len(im.beats) < codec.MaxHeartbeats; {
		if more, err = im.read(uidOf(ctx), body); err != nil {
			return false, err
		}
	}
	return more, im.store(ctx)
}

// read takes a line. The last one may lack its end.
func (im *importer) read(uid string, body *bufio.Reader) (more bool, err error) {
	line, err := body.ReadSlice('\n')
	im.line++
	switch {
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
	beat, wrong := codec.DecodeRow(uid, line)
	if wrong != nil {
		im.refuse(im.line, wrong)
		return
	}
	im.report.Rows++
	im.beats, im.lines = append(im.beats, beat), append(im.lines, im.line)
}

func (im *importer) refuse(line int, wrong *codec.FieldError) {
	im.report.Rows++
	im.count(line, codec.StatusName(historyv1.Status_STATUS_INVALID), wrong)
}

func (im *importer) count(line int, status string, wrong *codec.FieldError) {
	im.report.Statuses[status]++
	im.metrics.beats.WithLabelValues(status).Inc()
	if im.live {
		_ = json.NewEncoder(&im.told).Encode(toldRow{Line: line, Status: status, Error: wrong}) // never fails
		return
	}
	if (status == "invalid" || status == "expired") && len(im.report.Refused) < maxRefused {
		im.report.Refused = append(im.report.Refused, refusedRow{Line: line, Status: status, Error: wrong})
	}
}

func (im *importer) store(ctx context.Context) error {
	im.cfg.Limit.Spend(uidOf(ctx), float64(len(im.beats))/100)
	resp, err := im.apply(ctx, &codec.Batch{Heartbeats: im.beats})
	if err != nil {
		return err
	}
	if got := len(resp.GetStatuses()); got != len(im.beats) {
		return fmt.Errorf("%d statuses for %d heartbeats", got, len(im.beats))
	}
	refusals := make(map[int]*codec.FieldError)
	for _, r := range resp.GetRefusals() {
		refusals[int(r.Index)] = &codec.FieldError{Field: r.Field, Reason: r.Reason}
	}
	for i, status := range resp.GetStatuses() {
		if status == historyv1.Status_STATUS_UNAVAILABLE {
			return fmt.Errorf("import line %d: %w", im.lines[i], history.ErrUnavailable)
		}
		im.count(im.lines[i], codec.StatusName(status), refusals[i])
	}
	return nil
}
