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

// walk is a reader on the way through the pages of a list. A record that is played meanwhile moves to the top, past the
// reader. So a walk makes several passes: behind the oldest page of one it looks for what is newer than the newest record was when the
// pass began, and another pass lists that. So the walk misses nothing, and a record that was played meanwhile may come
// twice. All that it has to remember is in the cursor.
//
// A report that comes late, with a time from before the pass began, may move a record past the reader too. It is told by [Reader.Changes].
type walk struct {
	after history.Cursor
	since int64 // of this pass, in Unix milliseconds; 0 in the first one
	top   int64 // the time of the newest record when this pass began
	atTop int64 // how many records of that time this pass has listed

	// read reads a page, records one without summaries.
	read, records func(context.Context, history.Query) (readerPage, error)
}

// page reads the next page, and moves the walk behind it.
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

// maxMoved bounds how many records are looked at behind the oldest page. Where more have moved, another pass lists them in pages.
const maxMoved = 1000

// missed returns since when there are records that may have moved past the reader in this pass, 0 for none. It looks again where
// what it has read is not of one moment: once nothing is newer than it was, nothing has moved in between either.
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

// timeOf returns the time of the first item, 0 without any.
func timeOf(items []history.Item) int64 {
	if len(items) == 0 {
		return 0
	}
	return items[0].Record.Version.Time()
}

// cursors are opaque to clients: a place, what else a walk remembers, and the name of the list, in base64.
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

// listName names what a request lists: with a cursor of another user, type or time it would go
// on in the middle of nowhere.
func listName(req *historyv1.ListRequest) string {
	name := fmt.Sprint(req.GetUid(), "/", req.GetType(), "/", req.GetSinceMs(), "/", req.GetUntilMs())
	if req.GetSummaries() {
		name += "/summaries"
	}
	return strconv.FormatUint(xxhash.Sum64String(name)>>32, 36)
}

// decodeWalk is the inverse; no text is the place before the newest. It fails
// with [history.ErrInvalid].
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
	if parts[5] == "" && w.after.Version == 0 && w.since > 0 { // a further pass begins
		return w, nil
	}
	if w.after.Object, err = history.ParseObject(parts[5]); err != nil || w.after.Version == 0 {
		return w, bad
	}
	return w, nil
}
