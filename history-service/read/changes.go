package read

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxChanges limits the objects per response.
const maxChanges = 100

// Changes returns the objects changed and removed since a token, in the order of the cache's log: see
// docs/adr/0015. It reads the log before the contents, so a concurrent change may appear now and again with the
// next token.
func (r *Reader) Changes(ctx context.Context, req *historyv1.ChangesRequest) (*historyv1.ChangesResponse, error) {
	limit := int(req.GetLimit())
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if limit > maxChanges {
		return nil, history.Invalid("limit", "want 1 to 100")
	}
	if limit == 0 {
		limit = maxChanges
	}
	since, err := r.decodeTokens(req.GetUid(), req.GetSince())
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	resp, err := r.allChanges(ctx, req.GetUid(), since, limit)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	return resp, nil
}

// changes reads the changes of one namespace. The clear marks in cleared hold in all namespaces.
func (r *Reader) changes(ctx context.Context, uid string, since token, limit int, cleared map[uint32]int64) (*historyv1.ChangesResponse, error) { //nolint:revive // what is the same for all namespaces is read once
	epoch, err := r.epochOfCache(ctx) // before the log: a token must not have a later epoch than its log
	if err != nil {
		return nil, err
	}
	if since.log == 0 || since.epoch != epoch && !slices.Contains(r.cfg.Epochs, since.epoch) {
		return r.resync(ctx, uid, epoch)
	}
	since.epoch = epoch
	log, err := r.cfg.Cache.Changes(ctx, uid, since.place, limit)
	if err != nil {
		return nil, err
	}
	if !since.within(log) {
		return r.resync(ctx, uid, epoch)
	}
	keys, entries, clean, err := r.changed(ctx, uid, log)
	if err != nil {
		return nil, err
	}
	resp := &historyv1.ChangesResponse{Settings: Settings(entries[0].User.Pause)}
	for i, k := range keys[1:] {
		if !clean[i+1] {
			since.changesOn(log.Entries[i].Place)
		}
		e := entries[i+1]
		e.User.MergeCleared(cleared)
		if slices.ContainsFunc(log.Entries[i+1:], func(e history.LogEntry) bool { return e.Object == k.Object }) {
			continue // a later entry has the same object
		}
		if rec := e.Record.Visible(k.Object, &e.User); rec != nil && !r.expired(history.Item{Object: k.Object, Record: rec}) {
			resp.Items = append(resp.Items, view.Item(k.Object, rec, r.cfg.Rules))
		} else {
			resp.Removed = append(resp.Removed, &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
		}
	}
	resp.HasMore = len(log.Entries) == limit && log.Entries[limit-1].Place < log.Last
	since.next(log, resp.HasMore)
	resp.Token = since.encode()
	return resp, nil
}

// changed loads the user's state and the objects of a log from both stores. clean reports whether the cached
// content was clean or absent.
func (r *Reader) changed(ctx context.Context, uid string, log history.Changes) (keys []history.Key, entries []history.Entry, clean []bool, err error) {
	keys = []history.Key{history.UserKey(uid)}
	for _, e := range log.Entries {
		keys = append(keys, history.Key{UID: uid, Object: e.Object})
	}
	if entries, err = r.known(ctx, keys); err != nil {
		return nil, nil, nil, err
	}
	clean = make([]bool, len(entries))
	for i, e := range entries {
		clean[i] = e.Record == nil || e.Record.Clean()
	}
	return keys, entries, clean, r.foldWhole(ctx, keys, entries)
}

// resync returns a resync response and a new token. The token points before the first log entry with content that
// is not clean.
func (r *Reader) resync(ctx context.Context, uid, epoch string) (*historyv1.ChangesResponse, error) {
	u, err := r.Namespace(ctx, uid) // a warm-up may start a new log
	if err != nil {
		return nil, err
	}
	resp := &historyv1.ChangesResponse{Resync: true, Settings: Settings(u.Pause)}
	t := token{epoch: epoch}
	for {
		log, err := r.cfg.Cache.Changes(ctx, uid, t.place, resyncStep)
		if err != nil {
			return nil, err
		}
		if t.log != log.Log {
			if t.log != 0 { // the log ended during the loop
				t = token{epoch: epoch}
				continue
			}
			t.log = log.Log
		}
		keys := make([]history.Key, len(log.Entries))
		for i, e := range log.Entries {
			keys[i] = history.Key{UID: uid, Object: e.Object}
		}
		entries, err := r.entries(ctx, keys)
		if err != nil {
			return nil, err
		}
		for i, e := range entries {
			if e.Record != nil && !e.Record.Clean() {
				t.place = log.Entries[i].Place - 1
				resp.Token = t.encode()
				return resp, nil
			}
		}
		if len(entries) < resyncStep {
			t.place = log.Last
			resp.Token = t.encode()
			return resp, nil
		}
		t.place = log.Entries[resyncStep-1].Place
	}
}

// allChanges reads the changes of all namespaces, one after the other.
func (r *Reader) allChanges(ctx context.Context, uid string, since tokens, limit int) (*historyv1.ChangesResponse, error) {
	if len(since.namespaces) == 1 {
		if !since.known {
			since.each[0] = token{}
		}
		return r.changes(ctx, uid, since.each[0], limit, nil)
	}
	owner, err := r.Namespace(ctx, uid)
	if err != nil {
		return nil, err
	}
	all := &historyv1.ChangesResponse{Settings: Settings(owner.Pause)}
	for n := since.next; n < len(since.namespaces) && since.known; n++ {
		if limit == 0 {
			since.next, all.HasMore = n, true
			break
		}
		one, err := r.changes(ctx, since.namespaces[n], since.each[n], limit, owner.Cleared)
		if err != nil {
			return nil, err
		}
		if one.GetResync() {
			since.known = false
			break
		}
		all.Items = append(all.Items, one.GetItems()...)
		all.Removed = append(all.Removed, one.GetRemoved()...)
		limit = max(limit-len(one.GetItems())-len(one.GetRemoved()), 0)
		if since.each[n], err = decodeToken(one.GetToken()); err != nil {
			return nil, err
		}
		if since.next = 0; one.GetHasMore() {
			since.next, all.HasMore = n, true
			break
		}
	}
	if !since.known {
		return r.resyncAll(ctx, since, all.GetSettings())
	}
	all.Token = since.encode()
	return all, nil
}

// resyncAll returns a resync response with a token for all namespaces.
func (r *Reader) resyncAll(ctx context.Context, t tokens, settings *historyv1.Settings) (*historyv1.ChangesResponse, error) {
	epoch, err := r.epochOfCache(ctx)
	if err != nil {
		return nil, err
	}
	for i, namespace := range t.namespaces {
		one, err := r.resync(ctx, namespace, epoch)
		if err != nil {
			return nil, err
		}
		if t.each[i], err = decodeToken(one.GetToken()); err != nil {
			return nil, err
		}
	}
	t.next = 0
	return &historyv1.ChangesResponse{Resync: true, Settings: settings, Token: t.encode()}, nil
}

// resyncStep is the number of log entries per read when resync looks for content that is not clean.
const resyncStep = 256

const (
	// epochFor is how long a cached epoch is valid. A token of an epoch that ended in this time is refused after
	// the next lookup.
	epochFor = time.Second
	// unnamedFor is how long reads use the last epoch after a failed lookup. One silent cache server fails the
	// lookup and must not delay the users of all others.
	unnamedFor = 10 * time.Second
)

// epochOfCache returns the hashed epoch of the cache, or the last known one while the lookup fails.
func (r *Reader) epochOfCache(ctx context.Context) (string, error) {
	if n := len(r.cfg.Epochs); n > 0 {
		return r.cfg.Epochs[n-1], nil
	}
	if r.cfg.Epoch == nil {
		return "0", nil
	}
	name, answer := r.askEpoch(ctx)
	if answer == nil {
		return name, nil
	}
	select {
	case <-answer:
	case <-ctx.Done():
		return "", fmt.Errorf("epoch of the cache: %w: %w", history.ErrUnavailable, ctx.Err())
	}
	l := &r.epoch
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == "" {
		return "", fmt.Errorf("epoch of the cache: %w", l.err)
	}
	return l.name, nil
}

// askEpoch returns the cached epoch, or a channel that is closed when the lookup ends. It starts a lookup if the
// cached epoch is too old, one at a time.
func (r *Reader) askEpoch(ctx context.Context) (name string, answer chan struct{}) {
	l := &r.epoch
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer == nil {
		if l.name != "" && time.Since(l.asked) < epochFor {
			return l.name, nil
		}
		l.answer, l.asked = make(chan struct{}), time.Now()
		go r.nameEpoch(context.WithoutCancel(ctx)) // ends at the deadline
	}
	if l.name != "" && time.Since(l.failed) < unnamedFor {
		return l.name, nil
	}
	return "", l.answer
}

func (r *Reader) nameEpoch(ctx context.Context) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	name, err := "", fmt.Errorf("%w: panic", history.ErrUnavailable)
	l := &r.epoch
	defer func() {
		if v := recover(); v != nil { // a panic in this goroutine would end the process
			r.cfg.Logger.Error("lookup of the cache epoch panicked", "panic", v, "stack", string(debug.Stack()))
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err = err; err != nil {
			l.failed = time.Now()
		} else {
			l.name, l.failed = strconv.FormatUint(xxhash.Sum64String(name), 36), time.Time{}
		}
		close(l.answer)
		l.answer = nil
	}()
	name, err = r.cfg.Epoch(ctx)
}
