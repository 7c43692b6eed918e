package read

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Sizes of a page.
const (
	MaxPage     = 100
	defaultPage = 20
)

// maxTime bounds the times of a query, in Unix milliseconds: no event is as late, and the
// versions of later ones could not be told.
const maxTime = int64(1) << 50

// List reads a page, newest first: from the cache down to the user's floor, below
// it from the archive. When that does not answer, neither does List: a short page
// would say that there is no more.
func (r *Reader) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	q, err := queryOf(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	p, err := r.readPage(ctx, req.GetUid(), q, req.GetRecords())
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	resp := &historyv1.ListResponse{HasMore: p.more}
	for _, it := range p.items {
		resp.Items = append(resp.Items, view.Item(it.Object, it.Record, r.cfg.Rules))
		if !req.GetRecords() {
			continue
		}
		whole, err := view.Whole(it.Record)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", it.Object, err)
		}
		resp.Records = append(resp.Records, whole)
	}
	if p.more {
		resp.Cursor = encodeCursor(req, p.end)
	}
	return resp, nil
}

func queryOf(req *historyv1.ListRequest) (history.Query, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return history.Query{}, err
	}
	if req.GetLimit() > MaxPage {
		return history.Query{}, history.Invalid("limit", "want 1 to 100")
	}
	if req.GetSinceMs() < 0 || req.GetUntilMs() < 0 {
		return history.Query{}, history.Invalid("since", "since and until want Unix milliseconds")
	}
	after, err := decodeCursor(req)
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultPage
	}
	return history.Query{
		After: after, Limit: limit, Type: req.GetType(),
		Since: min(req.GetSinceMs(), maxTime), Until: min(req.GetUntilMs(), maxTime),
	}, err
}

// cursors are opaque to clients: version, list and object, in base64.
var cursors = base64.RawURLEncoding

func encodeCursor(req *historyv1.ListRequest, c history.Cursor) string {
	return cursors.EncodeToString([]byte(strconv.FormatInt(int64(c.Version), 36) + "/" + list(req) + "/" + c.Object.String()))
}

// list names what a request lists: with a cursor of another user, type or time it would go
// on in the middle of nowhere.
func list(req *historyv1.ListRequest) string {
	name := fmt.Sprint(req.GetUid(), "/", req.GetType(), "/", req.GetSinceMs(), "/", req.GetUntilMs())
	return strconv.FormatUint(xxhash.Sum64String(name)>>32, 36)
}

// decodeCursor is the inverse; no text is the place before the newest. It fails
// with [history.ErrInvalid].
func decodeCursor(req *historyv1.ListRequest) (history.Cursor, error) {
	s := req.GetCursor()
	if s == "" {
		return history.Cursor{}, nil
	}
	bad := history.Invalid("cursor", "want one that a page came with")
	raw, err := cursors.DecodeString(s)
	if err != nil {
		return history.Cursor{}, bad
	}
	version, rest, _ := strings.Cut(string(raw), "/")
	name, object, _ := strings.Cut(rest, "/")
	v, err := strconv.ParseInt(version, 36, 64)
	if err != nil || v <= 0 {
		return history.Cursor{}, bad
	}
	if name != list(req) {
		return history.Cursor{}, history.Invalid("cursor", "it is of another list: user, type, since and until stay the same from page to page")
	}
	o, err := history.ParseObject(object)
	if err != nil {
		return history.Cursor{}, bad
	}
	return history.Cursor{Version: history.Version(v), Object: o}, nil
}
