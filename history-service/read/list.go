package read

import (
	"context"
	"fmt"
	"slices"
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

// Page sizes, in items.
const (
	MaxPage     = 100
	defaultPage = 20
	// recordsPage is the default with whole records, 40 KiB each at most: an edge takes 20 MiB. For each page the
	// archive reads all live records of the user.
	recordsPage = 400
)

// maxTime limits the times of a query, in Unix milliseconds. Later times do not fit into a version.
const maxTime = int64(1) << 50

// List returns a page, newest first, from the cache above the user's low watermark and from the archive below it.
// It fails if the archive is unavailable: a short page would mean the end of the list.
func (r *Reader) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	return r.lists.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.ListResponse, error) { return r.list(ctx, req) })
}

func (r *Reader) list(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	q, w, err := queryOf(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.begin(ctx, &w, req.GetUid(), req.GetSummaries(), req.GetRecords()); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	p, err := w.page(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return r.listed(req, p, &w)
}

// begin sets how a walk reads a user's list. A strict walk has no incomplete records.
func (r *Reader) begin(ctx context.Context, w *walk, uid string, summaries, strict bool) error { //nolint:revive // a walk, and what it reads
	var border int64 // summaries replace records before this time
	if summaries {
		ttl, err := r.summaryTTL(ctx)
		if err != nil {
			return err
		}
		if ttl > 0 {
			border = max(r.cfg.Rules.NamespaceExpired(uid, r.cfg.Horizon().Add(summaryMargin).UnixMilli()), 1)
		}
	}
	w.records = func(ctx context.Context, q history.Query) (readerPage, error) {
		q.Since = max(q.Since, border)
		return r.pages(ctx, uid, q, strict)
	}
	w.read = w.records
	if border > 0 {
		w.read = func(ctx context.Context, q history.Query) (readerPage, error) {
			return r.listAll(ctx, uid, q, w, border)
		}
	}
	return nil
}

// summaryMargin is how long before its expiry a record gives way to its summary, because clocks differ.
const summaryMargin = time.Hour

// listAll reads a page of records, followed by summaries of older objects. Time alone decides between record and
// summary, and both have one order. A page after a cursor therefore repeats and skips nothing when records expire
// in between: they appear as summaries.
func (r *Reader) listAll(ctx context.Context, uid string, q history.Query, w *walk, border int64) (p readerPage, err error) { //nolint:revive // a page, and where it divides
	if behind := q.After != (history.Cursor{}) && q.After.Version.Time() < border; !behind && (q.Until == 0 || q.Until >= border) {
		if p, err = w.records(ctx, q); err != nil {
			return p, err
		}
	}
	if p.more || q.Since >= border || w.since > 0 { // only records move past a reader
		return p, nil
	}
	if len(p.items) > 0 {
		p.end = endOf(p.items)
	}
	if q.Limit -= len(p.items); q.Until == 0 || q.Until >= border {
		q.Until = border - 1
	}
	found, err := r.summaries(ctx, uid, q, border)
	if err != nil {
		return p, fmt.Errorf("summaries: %w", err)
	}
	if p.more = len(found) > q.Limit; p.more {
		if found = found[:q.Limit]; q.Limit > 0 {
			p.end = found[q.Limit-1].Place()
		}
	}
	p.summaries, p.once = found, false
	return p, nil
}

// listed builds the response for a page.
func (r *Reader) listed(req *historyv1.ListRequest, p readerPage, w *walk) (*historyv1.ListResponse, error) {
	resp := &historyv1.ListResponse{HasMore: p.more}
	for _, it := range p.items {
		if req.GetBrief() {
			resp.Summaries = append(resp.Summaries, view.Summary(history.Summarize(it.Object, it.Record, r.cfg.Rules.Of(it.Object.Type))))
			continue
		}
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
	for _, s := range p.summaries {
		resp.Summaries = append(resp.Summaries, view.Summary(s))
	}
	if p.more {
		resp.Cursor = w.encode(req)
	}
	return resp, nil
}

func queryOf(req *historyv1.ListRequest) (history.Query, walk, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return history.Query{}, walk{}, err
	}
	if req.GetLimit() > MaxPage {
		return history.Query{}, walk{}, history.Invalid("limit", "want 1 to 100")
	}
	if req.GetSinceMs() < 0 || req.GetUntilMs() < 0 {
		return history.Query{}, walk{}, history.Invalid("since", "since and until want Unix milliseconds")
	}
	w, err := decodeWalk(req)
	limit := int(req.GetLimit())
	switch {
	case limit == 0 && req.GetRecords():
		limit = recordsPage
	case limit == 0:
		limit = defaultPage
	}
	return history.Query{
		Limit: limit, Type: req.GetType(), Since: min(req.GetSinceMs(), maxTime), Until: min(req.GetUntilMs(), maxTime),
	}, w, err
}

// Search limits.
const (
	// MaxSearch is the maximum length of a query, in characters.
	MaxSearch = 128
	// MaxSearched is the approximate number of records per search. The cursor continues after them.
	MaxSearched = 10_000
	// searchAtOnce is the number of records in memory.
	searchAtOnce = 2000
)

// Search returns records with all words in id or metadata, newest first, from cache and archive. Each call searches
// about [MaxSearched] records, so a response may be short or empty and still have more. It fails if a store is
// unavailable.
func (r *Reader) Search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	return r.searches.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.SearchResponse, error) { return r.search(ctx, req) })
}

func (r *Reader) search(ctx context.Context, req *historyv1.SearchRequest) (*historyv1.SearchResponse, error) {
	words := strings.Fields(folded(req.GetText()))
	if len(words) == 0 || utf8.RuneCountInString(req.GetText()) > MaxSearch {
		return nil, history.Invalid("q", fmt.Sprintf("want 1 to %d characters with a word", MaxSearch))
	}
	listed := &historyv1.ListRequest{Uid: req.GetUid(), Limit: req.GetLimit(), Type: req.GetType(), Cursor: req.GetCursor(), SinceMs: nameOf(words)}
	q, w, err := queryOf(listed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	q.Since = 0
	resp := &historyv1.SearchResponse{}
	w.records = func(ctx context.Context, q history.Query) (readerPage, error) {
		p, searched, err := r.searchOn(ctx, req.GetUid(), q, words)
		resp.Searched += searched
		return p, err
	}
	w.read = func(ctx context.Context, q history.Query) (readerPage, error) {
		var top int64
		if q.After == (history.Cursor{}) {
			newest, err := r.pages(ctx, req.GetUid(), history.Query{Type: q.Type, Since: q.Since, Limit: 1}, false)
			if err != nil {
				return newest, err
			}
			top = timeOf(newest.items)
		}
		p, err := w.records(ctx, q)
		p.top = top
		return p, err
	}
	p, err := w.page(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	for _, it := range p.items {
		resp.Items = append(resp.Items, view.Item(it.Object, it.Record, r.cfg.Rules))
	}
	if resp.HasMore = p.more; p.more {
		resp.Cursor = w.encode(listed)
	}
	return resp, nil
}

// searchOn searches until it has q.Limit results or has searched [MaxSearched] records.
func (r *Reader) searchOn(ctx context.Context, uid string, q history.Query, words []string) (p readerPage, all uint32, err error) {
	limit := q.Limit
	q.Limit = searchAtOnce
	for p.more, p.once = true, true; p.more && len(p.items) < limit && all < MaxSearched; {
		var searched atomic.Uint32
		search := func(ctx context.Context, namespace string, q history.Query) (readerPage, error) {
			found, n, err := r.searchPart(ctx, namespace, q, words)
			searched.Add(uint32(n)) //nolint:gosec // some thousands
			return found, err
		}
		found, err := r.searched(ctx, uid, q, search)
		if err != nil {
			return p, all, err
		}
		p.once = found.once && all == 0
		all += searched.Load()
		p.more, p.end = found.more, found.end
		if n := limit - len(p.items); len(found.items) > n {
			found.items, p.more = found.items[:n], true
			p.end = endOf(found.items)
		}
		p.items = append(p.items, found.items...)
		q.After = p.end
	}
	return p, all, nil
}

// searched reads one step of a search, in all namespaces of the query.
func (r *Reader) searched(ctx context.Context, uid string, q history.Query, search func(context.Context, string, history.Query) (readerPage, error)) (readerPage, error) {
	if !r.divided() {
		return search(ctx, uid, q)
	}
	return r.pageOfNamespaces(ctx, uid, q, search)
}

// nameOf hashes the words for the list name in a cursor.
func nameOf(words []string) int64 {
	return int64(xxhash.Sum64String(strings.Join(words, " ")) >> 16) //nolint:gosec // of 48 bits
}

// searchPart searches the records of a query and returns the number searched.
func (r *Reader) searchPart(ctx context.Context, uid string, q history.Query, words []string) (p readerPage, searched int, err error) {
	listed, err := r.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return p, 0, err
	}
	match := func(it history.Item) bool { return view.Incomplete(it.Record) || has(it, words) }
	s := interval{reader: r, uid: uid, query: q, listed: listed, match: match}
	p.once = true
	if r.sure(listed, q) {
		p.more, p.end = listed.More, endOf(listed.Items)
		listed.Items = s.matching(slices.Clone(listed.Items), nil)
		p.items, err = r.completed(ctx, uid, listed, true)
		p.items = wanted(p.items, &listed.User, q)
	} else {
		err = s.read(ctx)
		p.items, p.more, p.end = s.items, s.cached || s.archived, s.end
	}
	p.items = slices.DeleteFunc(p.items, func(it history.Item) bool { return !has(it, words) }) // again, after completing
	return p, s.looked, err
}

// has reports whether a record's id or metadata has all the folded words.
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

// folded folds case, width and accents, so "amelie" finds Amélie. Letters such as ł, without a Unicode
// decomposition, fold as in ICU and Lucene.
func folded(text string) string {
	plain, ascii := make([]byte, 0, 2*len(text)), true
	for _, r := range norm.NFKD.String(text) {
		switch {
		case r < utf8.RuneSelf:
			plain = append(plain, byte(unicode.ToLower(r)))
			continue
		case r >= '\u0300' && r <= '\u036f': // Unicode's combining diacritical marks; the marks of other scripts form different letters
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

// contains reports whether text contains a folded word. ASCII texts, the most common, need no copy.
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
