package read

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// walk is the state of a reader paging through a list. A record played meanwhile moves to the top, past the reader.
// After the last page, the walk therefore looks for records newer than top, and lists them in another pass. Nothing
// is missed; a moved record may appear twice. The cursor has the whole state.
//
// A late report, timed before the pass, may also move a record past the reader. Only [Reader.Changes] returns it.
type walk struct {
	after history.Cursor
	since int64 // lower bound, Unix ms; 0 in the first pass
	top   int64 // newest record at the start of the pass
	atTop int64 // listed records of time top

	// read reads a page; records does the same without summaries.
	read, records func(context.Context, history.Query) (readerPage, error)
}

// page reads the next page and advances the walk.
func (w *walk) page(ctx context.Context, q history.Query) (readerPage, error) {
	for {
		pass, first := q, w.after == history.Cursor{}
		pass.After, pass.Since = w.after, max(q.Since, w.since)
		p, err := w.read(ctx, pass)
		if err != nil {
			return p, err
		}
		if first {
			w.top = max(p.top, timeOf(p.items), 1)
		}
		w.atTop += w.countAtTop(p.items)
		if w.after = p.end; p.more || first && p.once {
			return p, nil
		}
		since, err := w.missed(ctx, q)
		if p.more = since > 0; err != nil || !p.more {
			return p, err
		}
		w.after, w.since, w.top, w.atTop = history.Cursor{}, since, 0, 0
		if len(p.items)+len(p.summaries) > 0 {
			return p, nil
		}
	}
}

// maxMoved limits the check after the last page. If more records have moved, another pass lists them in pages.
const maxMoved = 1000

// missed returns the time from which records may have moved past the reader in this pass, 0 for none. After an
// inconsistent read it checks again: if nothing is newer than top, nothing moved in between.
func (w *walk) missed(ctx context.Context, q history.Query) (since int64, err error) {
	q.Since, q.Limit = max(q.Since, w.top), maxMoved
	p, err := w.records(ctx, q)
	switch {
	case err != nil:
		return 0, err
	case w.countAtTop(p.items) > w.atTop:
		return w.top, nil
	case timeOf(p.items) > w.top:
		return w.top + 1, nil
	case p.once:
		return 0, nil
	}
	q.Limit = 1
	newest, err := w.records(ctx, q)
	if timeOf(newest.items) > w.top {
		since = w.top + 1
	}
	return since, err
}

func (w *walk) countAtTop(items []history.Item) (n int64) {
	for _, it := range items {
		if it.Record.Version.Time() == w.top {
			n++
		}
	}
	return n
}

// timeOf returns the time of the first item, 0 for an empty list.
func timeOf(items []history.Item) int64 {
	if len(items) == 0 {
		return 0
	}
	return items[0].Record.Version.Time()
}

// Cursors are opaque to clients: the position, the walk's state and the list name, in base64.
var cursors = base64.RawURLEncoding

func (w *walk) encode(req *historyv1.ListRequest) string {
	text := strconv.AppendInt(nil, int64(w.after.Version), 36)
	text = append(append(append(text, '/'), listName(req)...), '/')
	text = append(strconv.AppendInt(text, w.since, 36), '/')
	text = append(strconv.AppendInt(text, w.top, 36), '/')
	text = append(strconv.AppendInt(text, w.atTop, 36), '/')
	if w.after != (history.Cursor{}) {
		text = append(text, w.after.Object.String()...)
	}
	return cursors.EncodeToString(text)
}

// listName hashes the parameters of a list. A cursor of another user, type or time range would continue at an
// arbitrary place.
func listName(req *historyv1.ListRequest) string {
	name := fmt.Sprint(req.GetUid(), "/", req.GetType(), "/", req.GetSinceMs(), "/", req.GetUntilMs())
	if req.GetSummaries() {
		name += "/summaries"
	}
	return strconv.FormatUint(xxhash.Sum64String(name)>>32, 36)
}

// decodeWalk decodes the cursor of a request; an empty one starts at the top. It fails with [history.ErrInvalid].
func decodeWalk(req *historyv1.ListRequest) (w walk, err error) {
	if req.GetCursor() == "" {
		return w, nil
	}
	bad := history.Invalid("cursor", "want one that a page came with")
	raw, err := cursors.DecodeString(req.GetCursor())
	parts := strings.SplitN(string(raw), "/", 6)
	if err != nil || len(parts) != 6 {
		return w, bad
	}
	var numbers [4]int64
	for i, at := range [...]int{0, 2, 3, 4} {
		if numbers[i], err = strconv.ParseInt(parts[at], 36, 64); err != nil || numbers[i] < 0 {
			return w, bad
		}
	}
	w.after.Version, w.since, w.top, w.atTop = history.Version(numbers[0]), min(numbers[1], maxTime), min(numbers[2], maxTime), numbers[3]
	if parts[1] != listName(req) {
		return w, history.Invalid("cursor", "it is of another list: user, q, type, since and until stay the same from page to page")
	}
	if parts[5] == "" && w.after.Version == 0 && w.since > 0 { // start of a later pass
		return w, nil
	}
	if w.after.Object, err = history.ParseObject(parts[5]); err != nil || w.after.Version == 0 {
		return w, bad
	}
	return w, nil
}
