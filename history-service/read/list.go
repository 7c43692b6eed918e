package read

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/text/unicode/norm"

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
	return r.lists.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.ListResponse, error) { return r.list(ctx, req) })
}

func (r *Reader) list(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	q, err := queryOf(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if req.GetSummaries() && r.cfg.Summaries != nil {
		ttl, err := r.cfg.Summaries.SummaryTTL(ctx)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if ttl > 0 {
			return r.listAll(ctx, req, q)
		}
	}
	p, err := r.pages(ctx, req.GetUid(), q, req.GetRecords())
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return r.listed(req, p)
}

// summaryMargin is how long before its end a record gives way to its summary where both are asked for: clocks differ.
const summaryMargin = time.Hour

// listAll reads a page of records, and behind the last of them the summaries of what is older. The side on which an object is
// depends on the time alone, and both stand in one order. So a page that begins behind the one before repeats nothing and passes over
// nothing, though records grow old in between: those come as summaries.
func (r *Reader) listAll(ctx context.Context, req *historyv1.ListRequest, q history.Query) (*historyv1.ListResponse, error) {
	border := r.cfg.Now().Add(summaryMargin).UnixMilli() - history.ArchiveTTL
	var p readerPage
	if behind := q.After != (history.Cursor{}) && q.After.Version.Time() < border; !behind && (q.Until == 0 || q.Until >= border) {
		recent := q
		recent.Since = max(q.Since, border)
		var err error
		if p, err = r.pages(ctx, req.GetUid(), recent, req.GetRecords()); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if p.more || q.Since >= border {
		return r.listed(req, p)
	}
	resp, err := r.listed(req, p)
	if err != nil {
		return nil, err
	}
	old, end := q, p.end
	if len(p.items) > 0 {
		end = endOf(p.items)
	}
	if old.Limit -= len(p.items); old.Until == 0 || old.Until >= border {
		old.Until = border - 1
	}
	found, err := r.summaries(ctx, req.GetUid(), old, border)
	if err != nil {
		return nil, fmt.Errorf("list: summaries: %w", err)
	}
	if resp.HasMore = len(found) > old.Limit; resp.HasMore {
		if found = found[:old.Limit]; old.Limit > 0 {
			end = found[old.Limit-1].Place()
		}
		resp.Cursor = encodeCursor(req, end)
	}
	for _, s := range found {
		resp.Summaries = append(resp.Summaries, view.Summary(s))
	}
	return resp, nil
}

// listed answers with a page of records.
func (r *Reader) listed(req *historyv1.ListRequest, p readerPage) (*historyv1.ListResponse, error) {
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
	return cursors.EncodeToString([]byte(strconv.FormatInt(int64(c.Version), 36) + "/" + listName(req) + "/" + c.Object.String()))
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
	if name != listName(req) {
		return history.Cursor{}, history.Invalid("cursor", "it is of another list: user, q, type, since and until stay the same from page to page")
	}
	o, err := history.ParseObject(object)
	if err != nil {
		return history.Cursor{}, bad
	}
	return history.Cursor{Version: history.Version(v), Object: o}, nil
}

// Bounds of a search.
const (
	// MaxSearch is the length of what is searched for, in characters.
	MaxSearch = 128
	// MaxSearched is about how many records one search looks at. A next one goes on from there.
	MaxSearched = 10_000
	// searchAtOnce is how many of them are in memory.
	searchAtOnce = 2000
)

// Search reads records of which the id or the metadata has all the words, newest first, from the cache
// and the archive. It may find fewer than there are, and none, and say that there is more: it looks at
// about [MaxSearched] records. When a store does not answer, neither does Search: nothing found is an answer of its own.
func (r *Reader) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return r.searches.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.SearchResponse, error) { return r.search(ctx, req) })
}

func (r *Reader) search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	words := strings.Fields(folded(req.GetText()))
	if len(words) == 0 || utf8.RuneCountInString(req.GetText()) > MaxSearch {
		return nil, history.Invalid("q", fmt.Sprintf("want 1 to %d characters with a word", MaxSearch))
	}
	listed := &historyv1.ListRequest{Uid: req.GetUid(), Limit: req.GetLimit(), Type: req.GetType(), Cursor: req.GetCursor(), SinceMs: nameOf(words)}
	q, err := queryOf(listed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	limit := q.Limit
	q.Since, q.Limit = 0, searchAtOnce
	resp := &historyv1.SearchResponse{}
	for resp.HasMore = true; resp.HasMore && len(resp.Items) < limit && resp.Searched < MaxSearched; {
		var searched atomic.Uint32
		search := func(ctx context.Context, section string, q history.Query) (readerPage, error) {
			found, n, err := r.searchPart(ctx, section, q, words)
			searched.Add(uint32(n)) //nolint:gosec // some thousands
			return found, err
		}
		found, err := r.searched(ctx, req.GetUid(), q, search)
		if err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
		found.items = slices.DeleteFunc(found.items, func(it history.Item) bool { return !has(it, words) }) // also of what another section names
		resp.Searched += searched.Load()
		resp.HasMore, q.After = found.more, found.end
		if n := limit - len(resp.Items); len(found.items) > n {
			found.items, resp.HasMore = found.items[:n], true
			q.After = endOf(found.items)
		}
		for _, it := range found.items {
			resp.Items = append(resp.Items, view.Item(it.Object, it.Record, r.cfg.Rules))
		}
	}
	if resp.HasMore {
		resp.Cursor = encodeCursor(listed, q.After)
	}
	return resp, nil
}

// searched is one part of a search: of all sections of the query, where there are classes.
func (r *Reader) searched(ctx context.Context, uid string, q history.Query, search func(context.Context, string, history.Query) (readerPage, error)) (readerPage, error) {
	if !r.divided() {
		return search(ctx, uid, q)
	}
	return r.pageOfSections(ctx, uid, q, search)
}

// nameOf stands for words in the name of a list, to which a cursor is bound.
func nameOf(words []string) int64 {
	return int64(xxhash.Sum64String(strings.Join(words, " ")) >> 16) //nolint:gosec // of 48 bits
}

// searchPart searches the records of a query, and returns how many it looked at. While types are being moved another section may
// know the metadata of an object of which the latest report here has none: such records are found, too.
func (r *Reader) searchPart(ctx context.Context, uid string, q history.Query, words []string) (p readerPage, searched int, err error) {
	listed, err := r.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return p, 0, err
	}
	moving := r.cfg.Rules.Moving(r.nowMS())
	found := func(it history.Item) bool {
		return has(it, words) || moving && it.Record != nil && it.Record.MetaVersion < it.Record.Version
	}
	match := func(it history.Item) bool { return view.Incomplete(it.Record) || found(it) }
	s := stretch{reader: r, uid: uid, query: q, listed: listed, match: match}
	if r.sure(listed, q) {
		p.more, p.end = listed.More, endOf(listed.Items)
		listed.Items = s.matching(slices.Clone(listed.Items), nil)
		p.items, err = r.completed(ctx, uid, listed, true)
		p.items = wanted(p.items, &listed.User, q)
	} else {
		err = s.read(ctx)
		p.items, p.more, p.end = s.items, s.cached || s.archived, s.end
	}
	p.items = slices.DeleteFunc(p.items, func(it history.Item) bool { return !found(it) }) // also of what was incomplete
	return p, s.looked, err
}

// has reports whether the id or the metadata of a record has all the words, which are folded.
func has(it history.Item, words []string) bool {
	if it.Record == nil {
		return false
	}
	for _, word := range words {
		if !contains(it.Object.ID, word) && !metaHas(it.Record.Meta, word) {
			return false
		}
	}
	return true
}

func metaHas(meta history.Meta, word string) bool {
	for _, text := range meta.All() {
		if contains(text, word) {
			return true
		}
	}
	return false
}

// folded returns a text in which letters that differ in case, in width or in an accent are the same: few who search for Amélie
// or Łódź write them so. Letters that are no accented ones in Unicode have the plain ones that ICU's and Lucene's foldings have.
func folded(text string) string {
	plain, ascii := make([]byte, 0, 2*len(text)), true
	for _, r := range norm.NFKD.String(text) {
		switch {
		case r < utf8.RuneSelf:
			plain = append(plain, byte(unicode.ToLower(r)))
			continue
		case r >= '\u0300' && r <= '\u036f': // Unicode's combining diacritical marks; those of other scripts make other letters
			continue
		}
		r = unicode.ToLower(unicode.ToUpper(r))
		if letters, ok := unaccented[r]; ok {
			plain = append(plain, letters...)
			continue
		}
		plain, ascii = utf8.AppendRune(plain, r), false
	}
	if ascii {
		return string(plain)
	}
	return norm.NFC.String(string(plain))
}

var unaccented = map[rune]string{'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th"}

// contains reports whether a text, in whatever letters, has a word that is folded. Most texts have no
// other letters than those of ASCII, and need no copy.
func contains(text, word string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return strings.Contains(folded(text), word)
		}
	}
	for i := range len(text) - len(word) + 1 {
		if text[i]|0x20 == word[0]|0x20 && strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
