// Package replay sends a load of known content, and drives dead letters again. It reads a trace of viewings, expands
// each into a player's heartbeats, and sends these to history-service in order of time. A plain in-memory merge
// predicts the content of the stores. For old histories see package backfill.
package replay

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Period is the time between two heartbeats of a viewing, in milliseconds.
const Period = 15_000

// Plan is the heartbeats of a trace, in order of time.
type Plan struct {
	Viewings []Viewing
	// Shift is added to every time of the trace, in milliseconds.
	Shift int64
	beats []beat
	meta  map[history.Object]map[string]string
}

// beat is one heartbeat. It is small: a plan keeps all of them in memory.
type beat struct {
	at      int64
	viewing int32
	played  uint32 // milliseconds; thirty days overflow an int32
	kind    history.Kind
}

// Expand turns each viewing into a start, a heartbeat every 15 s, and a stop. It skips viewings of 0 ms. A limit
// bounds the heartbeats: Expand stops before the first viewing that exceeds it; 0 is unlimited.
func Expand(vs []Viewing, limit int) *Plan {
	p := &Plan{Viewings: vs}
	for i, v := range vs {
		if v.Played == 0 {
			continue
		}
		if limit > 0 && len(p.beats)+beatsOf(v) > limit {
			break
		}
		p.add(i, 0, history.KindStart)
		for t := int64(Period); t <= v.Played; t += Period {
			p.add(i, t, history.KindProgress)
		}
		p.add(i, v.Played, history.KindStop)
	}
	slices.SortStableFunc(p.beats, func(a, b beat) int { return cmp.Compare(a.at, b.at) })
	return p
}

func beatsOf(v Viewing) int { return 2 + int(v.Played/Period) }

func (p *Plan) add(viewing int, played int64, kind history.Kind) {
	p.beats = append(p.beats, beat{
		at:      p.Viewings[viewing].At + played,
		viewing: int32(viewing), played: uint32(played), kind: kind, //nolint:gosec // a trace has fewer rows, a viewing fewer days
	})
}

// EndAt shifts the plan to end at a Unix millisecond.
func (p *Plan) EndAt(ms int64) {
	if n := len(p.beats); n > 0 {
		p.Shift = ms - p.beats[n-1].at
	}
}

// AddMeta gives each object metadata of about that many bytes; every heartbeat reports it.
func (p *Plan) AddMeta(bytes int) {
	p.meta = make(map[history.Object]map[string]string)
	for i := range p.Viewings {
		if o := p.Viewings[i].Object; p.meta[o] == nil {
			p.meta[o] = map[string]string{"title": "The title of " + o.ID, "poster": "/p/" + o.ID + ".jpg", "series": strings.Repeat("s", max(bytes-50, 1))}
		}
	}
}

// Len returns the number of heartbeats.
func (p *Plan) Len() int { return len(p.beats) }

// Reported returns the number of viewings with heartbeats.
func (p *Plan) Reported() int {
	seen := make([]bool, len(p.Viewings))
	n := 0
	for _, b := range p.beats {
		if !seen[b.viewing] {
			seen[b.viewing] = true
			n++
		}
	}
	return n
}

// Event returns heartbeat i.
func (p *Plan) Event(i int) history.Event {
	e := p.event(i)
	e.Meta = history.NewMeta(p.meta[e.Key.Object])
	return e
}

func (p *Plan) event(i int) history.Event {
	b := &p.beats[i]
	v := &p.Viewings[b.viewing]
	return history.Event{
		Key: history.Key{UID: v.UID, Object: v.Object}, Kind: b.kind, At: b.at + p.Shift,
		Position: int64(b.played), Duration: v.Duration, Session: Session(v), Device: "replay",
	}
}

// Session names a viewing by its original start. A repeated row, or a replay with another shift, is the same
// viewing.
func Session(v *Viewing) string { return strconv.FormatInt(v.At, 36) }

// Viewing is one row of a trace: a user played an object for a while.
type Viewing struct {
	UID      string
	Object   history.Object
	At       int64 // start, Unix milliseconds
	Played   int64 // milliseconds; a loop exceeds the duration
	Duration int64 // milliseconds; 0 is unknown
}

// columns are the required columns of a trace, in any order.
var columns = []string{"user_id", "video_id", "time_ms", "play_time_ms", "duration_ms"}

var errEmpty = fmt.Errorf("it is empty, without even a header: want %s", strings.Join(columns, ", "))

// ReadFile reads a trace: plain or gzipped CSV with a header. See [Read].
func ReadFile(path string) ([]Viewing, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); errors.Is(err, io.EOF) {
			err = errEmpty
		}
		if err != nil {
			return nil, fmt.Errorf("read trace %s: %w", path, err)
		}
	}
	vs, err := Read(r)
	if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", path, err)
	}
	return vs, nil
}

// Read reads a trace from UTF-8 CSV whose header names at least user_id, video_id, time_ms, play_time_ms and
// duration_ms. Every object has type 1. It returns all rows or none: the first invalid row fails with its line
// and column. A truncated last row fails too, unless it is still valid.
func Read(r io.Reader) ([]Viewing, error) {
	rows := csv.NewReader(withoutBOM(r))
	rows.ReuseRecord = true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	at, err := locate(header)
	if err != nil {
		return nil, err
	}
	var vs []Viewing
	for n := 1; ; n++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return vs, nil
		}
		if err != nil {
			return nil, rowError(rows, row, n, err)
		}
		v, err := viewing(row, at)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		vs = append(vs, v)
	}
}

// withoutBOM skips the byte order mark that spreadsheets write before UTF-8.
func withoutBOM(r io.Reader) io.Reader {
	const mark = "\ufeff"
	b := bufio.NewReader(r)
	if start, _ := b.Peek(len(mark)); string(start) == mark {
		_, _ = b.Discard(len(mark)) // Peek has buffered them
	}
	return b
}

// rowError adds the location to the error of row n. Syntax errors already have it.
func rowError(rows *csv.Reader, row []string, n int, err error) error {
	if _, ok := errors.AsType[*csv.ParseError](err); !ok { // read error
		return fmt.Errorf("after row %d: %w", n-1, err)
	}
	if !errors.Is(err, csv.ErrFieldCount) {
		return err
	}
	line, _ := rows.FieldPos(0)
	return fmt.Errorf("line %d: %d columns, want %d", line, len(row), rows.FieldsPerRecord)
}

func locate(header []string) ([]int, error) {
	at := make([]int, len(columns))
	for i, name := range columns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, fmt.Errorf("no column %q; want %s", name, strings.Join(columns, ", "))
		}
	}
	return at, nil
}

func viewing(row []string, at []int) (Viewing, error) {
	v := Viewing{UID: strings.Clone(row[at[0]]), Object: history.Object{ID: strings.Clone(row[at[1]]), Type: 1}}
	for i, n := range []*int64{&v.At, &v.Played, &v.Duration} {
		column, text := columns[2+i], row[at[2+i]]
		var err error
		if *n, err = strconv.ParseInt(text, 10, 64); err != nil {
			return Viewing{}, history.Invalid(column, fmt.Sprintf("%q is not a number of milliseconds", text))
		}
	}
	return v, v.validate()
}

var fields = map[string]string{
	"uid": "user_id", "object.id": "video_id", "event_time": "time_ms", "position_ms": "play_time_ms", "duration_ms": "duration_ms",
}

// validate applies the service's own validation, so that it refuses nothing in the middle of a replay.
func (v *Viewing) validate() error {
	e := history.Event{
		Key: history.Key{UID: v.UID, Object: v.Object}, Kind: history.KindStop,
		At: v.At, Position: v.Played, Duration: v.Duration,
	}
	err := e.Validate()
	if bad, ok := errors.AsType[*history.FieldError](err); ok {
		return history.Invalid(fields[bad.Field], bad.Reason)
	}
	return err
}

// syntheticStart is the start of the first synthetic viewing; any time will do.
const syntheticStart = 1_700_000_000_000

// Synthetic returns long viewings: a number of viewers, viewings per viewer, and heartbeats per viewing (at least
// 2). Every viewing plays another object and lasts twice its duration. The viewers' phases are evenly spread: the
// load is steady at any speed.
func Synthetic(viewers, viewings, beats int) []Viewing {
	played := int64(max(beats-2, 0))*Period + Period/2
	cycle := played + Period/2
	vs := make([]Viewing, 0, viewers*viewings)
	for i := range viewings {
		for v := range viewers {
			vs = append(vs, Viewing{
				UID:      strconv.Itoa(1_000_000 + v),
				Object:   history.Object{ID: strconv.Itoa(1_000_000 + (v*viewings+i)%1_000_000), Type: 1},
				At:       syntheticStart + int64(i)*cycle + int64(v)*cycle/int64(viewers),
				Played:   played,
				Duration: 2 * played,
			})
		}
	}
	return vs
}

func (p *Plan) heartbeat(i int, hb *historyv1.Heartbeat) {
	e := p.event(i)
	Fill(hb, &e, p.meta[e.Key.Object])
}

// Fill sets hb to the report of an event with that metadata. It leaves the fields that a plan's events lack.
func Fill(hb *historyv1.Heartbeat, e *history.Event, meta map[string]string) {
	hb.Uid, hb.ObjectId, hb.ObjectType = e.Key.UID, e.Key.Object.ID, e.Key.Object.Type
	hb.Kind, hb.EventTimeMs = historyv1.Kind(e.Kind), e.At
	hb.PositionMs, hb.DurationMs = e.Position, e.Duration
	hb.Session, hb.Device, hb.Meta = e.Session, e.Device, meta
}
