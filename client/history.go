// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Limits of a request.
const (
	maxObjects  = 1000
	maxLookup   = 100
	maxImported = 1 << 20 // bytes of lines
)

// Filter selects records; zero values select all.
type Filter struct {
	Type         uint32
	Since, Until time.Time // inclusive
}

func (f Filter) since() string { return timeText(f.Since) }
func (f Filter) until() string { return timeText(f.Until) }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return rfc3339(t.UnixMilli())
}

func typeText(t uint32) string {
	if t == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(t), 10)
}

// Point returns the record of an object, which says where the user stopped; nil without one. Like all reads and
// decisions it needs no Run, tries once, waits for Patience at most and fails with an [Error].
func (c *Client) Point(ctx context.Context, object *messagev1.Object) (*messagev1.Item, error) {
	var record map[string]any
	if err := c.call(ctx, get(pathOf(object)), &record); err != nil {
		return nil, noRecordIsNone("point", err)
	}
	return itemOf(record)
}

// Lookup returns the records of objects in order, nil for those without one.
func (c *Client) Lookup(ctx context.Context, objects ...*messagev1.Object) ([]*messagev1.Item, error) {
	var found []*messagev1.Item
	for part := range slices.Chunk(objects, maxLookup) {
		var page struct {
			Items []struct{ Record map[string]any }
		}
		if err := c.call(ctx, post("/v1/history/lookup", map[string]any{"objects": objectsOf(part)}), &page); err != nil {
			return nil, fmt.Errorf("lookup: %w", err)
		}
		records := make([]map[string]any, len(page.Items))
		for i, entry := range page.Items {
			records[i] = entry.Record
		}
		items, err := itemsOf(records)
		if err != nil {
			return nil, fmt.Errorf("lookup: %w", err)
		}
		found = append(found, items...)
	}
	return found, nil
}

// List yields all records, newest first, read page by page. What is played meanwhile comes last, if it has not
// come before. An error ends it.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[*messagev1.Item, error] {
	return c.walk(ctx, get("/v1/history", "limit", "100", "type", typeText(f.Type), "since", f.since(), "until", f.until()))
}

// Search yields records with all words of a text in id or metadata, newest first. Type 0 means all.
func (c *Client) Search(ctx context.Context, text string, typ uint32) iter.Seq2[*messagev1.Item, error] {
	return c.walk(ctx, get("/v1/history/search", "limit", "100", "q", text, "type", typeText(typ)))
}

// walk yields the records of all pages, each object once.
func (c *Client) walk(ctx context.Context, r request) iter.Seq2[*messagev1.Item, error] {
	return func(yield func(*messagev1.Item, error) bool) {
		r.query = maps.Clone(r.query) // each walk begins at the first page
		told := make(map[object]bool)
		for more := true; more; {
			var page struct {
				Items   []map[string]any
				Cursor  string
				HasMore bool `json:"has_more"`
			}
			err := c.call(ctx, r, &page)
			items, wrong := itemsOf(page.Items)
			if err = cmp.Or(err, wrong); err != nil {
				yield(nil, fmt.Errorf("list: %w", err))
				return
			}
			for _, it := range items {
				name := object{it.GetObject().GetId(), it.GetObject().GetType()}
				if !told[name] && !yield(it, nil) {
					return
				}
				told[name] = true
			}
			more = page.HasMore
			r.query.Set("cursor", page.Cursor)
		}
	}
}

// ContinueWatching returns what is begun and unfinished, newest first, one record per series. Limit is 1 to 100;
// 0 means 20, and type 0 all.
func (c *Client) ContinueWatching(ctx context.Context, limit int, typ uint32) ([]*messagev1.Item, error) {
	var page struct{ Items []map[string]any }
	if limit == 0 {
		limit = 20
	}
	if err := c.call(ctx, get("/v1/continue", "limit", strconv.Itoa(limit), "type", typeText(typ)), &page); err != nil {
		return nil, fmt.Errorf("continue watching: %w", err)
	}
	return itemsOf(page.Items)
}

// StatsQuery selects what to add up; zero values select everything per day in UTC.
type StatsQuery struct {
	By           string    // "day", "type" or "object"
	Since, Until time.Time // inclusive
	Zone         string    // such as Europe/Berlin or +02:00
	Limit        int       // objects, 1 to 100; 0 means 20
}

// StatsSum is the sums of a history or a part of it. Watched is as reported, of each viewing at most its length.
type StatsSum struct {
	WatchedMs int64 `json:"watched_ms"`
	Plays     int64 `json:"plays"`
	Viewings  int64 `json:"viewings"`
}

// StatsBucket is the sums of a day such as 2026-11-21, a type or an object.
type StatsBucket struct {
	Day    string            `json:"day"`
	Type   uint32            `json:"type"`
	Object *messagev1.Object `json:"object"`
	StatsSum
}

// Stats are days and types ascending, or objects most watched first. Undated is the part of Total without a day.
type Stats struct {
	Buckets        []StatsBucket `json:"buckets"`
	Total, Undated StatsSum
	Streak         struct { // by day only
		LongestDays int `json:"longest_days"`
		CurrentDays int `json:"current_days"`
	} `json:"streak"`
}

// Stats returns time watched, plays and viewings per day, type or object.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (*Stats, error) {
	limit := ""
	if q.Limit != 0 {
		limit = strconv.Itoa(q.Limit)
	}
	stats := new(Stats)
	if err := c.call(ctx, get("/v1/stats", "by", q.By, "since", timeText(q.Since), "until", timeText(q.Until), "zone", q.Zone, "limit", limit), stats); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	return stats, nil
}

// Delete removes objects and returns how many had a record. After an error some may be removed.
func (c *Client) Delete(ctx context.Context, objects ...*messagev1.Object) (int, error) {
	return c.each(ctx, "/v1/history/delete", map[string]any{}, objects)
}

// Dismiss takes objects out of [Client.ContinueWatching] until they are played again, or back. It returns how
// many had a record.
func (c *Client) Dismiss(ctx context.Context, dismissed bool, objects ...*messagev1.Object) (int, error) {
	return c.each(ctx, "/v1/continue/dismiss", map[string]any{"dismissed": dismissed}, objects)
}

func (c *Client) each(ctx context.Context, path string, body map[string]any, objects []*messagev1.Object) (sum int, err error) {
	for part := range slices.Chunk(objects, maxObjects) {
		var answer struct{ Deleted, Found int }
		body["objects"] = objectsOf(part)
		if err := c.call(ctx, post(path, body), &answer); err != nil {
			return sum, fmt.Errorf("post %s: %w", path, err)
		}
		sum += answer.Deleted + answer.Found
	}
	return sum, nil
}

// Clear removes everything until a time, by default now, of one type or with 0 of all.
func (c *Client) Clear(ctx context.Context, until time.Time, typ uint32) error {
	r := get("/v1/history", "until", timeText(until), "type", typeText(typ))
	r.method = http.MethodDelete
	if err := c.call(ctx, r, &struct{}{}); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}

// Recording reports whether what is played is kept.
func (c *Client) Recording(ctx context.Context) (bool, error) {
	return c.recording(ctx, get("/v1/settings"))
}

// SetRecording switches whether what is played is kept.
func (c *Client) SetRecording(ctx context.Context, on bool) (bool, error) {
	return c.recording(ctx, request{method: http.MethodPut, path: "/v1/settings", body: map[string]any{"recording": on}})
}

func (c *Client) recording(ctx context.Context, r request) (bool, error) {
	var settings struct{ Recording bool }
	if err := c.call(ctx, r, &settings); err != nil {
		return false, fmt.Errorf("recording: %w", err)
	}
	return settings.Recording, nil
}

// Export writes all of the history as lines of NDJSON. After an error they are no backup. Only ctx bounds it.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	body, err := c.open(ctx, get("/v1/export"))
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("export: %w", noAnswer(ctx, err))
	}
	return nil
}

// Imported is what became of imported lines.
type Imported struct {
	Rows     int
	Statuses map[string]int
	// Refused has the first refused lines.
	Refused []RefusedLine
}

// RefusedLine is an imported line that was not valid.
type RefusedLine struct {
	Line          int // from 1
	Field, Reason string
}

// ImportLines folds exported lines in. They count once, however often that is done. Restore brings removed
// records back. After an error some lines may be in.
func (c *Client) ImportLines(ctx context.Context, lines io.Reader, restore bool) (*Imported, error) {
	total, before, text := &Imported{Statuses: make(map[string]int)}, 0, bufio.NewReader(lines)
	for {
		part, n, err := nextLines(text)
		if err != nil {
			return total, fmt.Errorf("import: %w", err)
		}
		if n == 0 {
			return total, nil
		}
		r := get("/v1/import")
		if r.method, r.lines = http.MethodPost, bytes.NewReader(part); restore {
			r.query.Set("restore", "true")
		}
		var answer Imported
		if err := c.call(ctx, r, &answer); err != nil {
			return total, fmt.Errorf("import: %w", err)
		}
		total.add(answer, before)
		before += n
	}
}

func (i *Imported) add(part Imported, before int) {
	i.Rows += part.Rows
	for status, n := range part.Statuses {
		i.Statuses[status] += n
	}
	for _, line := range part.Refused {
		line.Line += before
		i.Refused = append(i.Refused, line)
	}
}

// nextLines returns the next lines of a request, one at least, and their number.
func nextLines(r *bufio.Reader) (part []byte, n int, err error) {
	for len(part) < maxImported {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			part, n = append(part, line...), n+1
		}
		if errors.Is(err, io.EOF) {
			return part, n, nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return part, n, nil
}

// Follow calls back with changes of the history, on a connection of its own, until ctx is done. The first one
// of each connection is a resync: read again what is shown. Reports of this client are changes too.
func (c *Client) Follow(ctx context.Context, changed func(*messagev1.Change)) error {
	cfg := c.cfg
	cfg.Changed, cfg.Answered, cfg.Day = changed, nil, nil
	other, err := New(cfg)
	if err != nil {
		return err
	}
	return other.Run(ctx)
}

func objectsOf(objects []*messagev1.Object) []map[string]any {
	named := make([]map[string]any, len(objects))
	for i, o := range objects {
		named[i] = map[string]any{"id": o.GetId(), "type": o.GetType()}
	}
	return named
}

// itemsOf converts records of the HTTP API; absent ones are nil.
func itemsOf(records []map[string]any) ([]*messagev1.Item, error) {
	items := make([]*messagev1.Item, len(records))
	for i, r := range records {
		if r == nil {
			continue
		}
		var err error
		if items[i], err = itemOf(r); err != nil {
			return nil, err
		}
	}
	return items, nil
}
