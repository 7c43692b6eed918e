// Package state changes users' own states: clear marks and pauses. It copies them to the namespaces of classes, and
// restores them to a cache that lost them.
package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/read"
)

// ErrConcurrent means too many concurrent updates of a state. It wraps [history.ErrUnavailable].
var ErrConcurrent = fmt.Errorf("too many concurrent updates: %w", history.ErrUnavailable)

// Store changes users' states in the cache. All fields are required. Its methods are safe for concurrent use.
type Store struct {
	Cache     history.Cache
	Aggregate *aggregate.Aggregator
	Reader    *read.Reader
	Rules     *history.Rulebook
	// Compare detects changes that a comparison with the cache missed.
	Compare *Comparisons

	recent recent
}

// Clear clears one namespace of a user and returns the time up to which it is cleared.
func (s *Store) Clear(ctx context.Context, namespace string, c history.Clear) (until int64, err error) {
	begun := s.Compare.Begun()
	if c.Until, err = s.Cache.Clear(ctx, namespace, c); err != nil {
		return 0, err
	}
	s.Relied(namespace, c, begun)
	s.Aggregate.MakeDue(namespace)
	return c.Until, nil
}

// Relied remembers a clear in the cache on which an answer relies. begun is as in [Comparisons.Remembered].
func (s *Store) Relied(namespace string, c history.Clear, begun uint64) {
	s.remember(change{uid: namespace, clear: c}, begun)
}

// Pause replaces a user's pause. It fails with [history.ErrConflict] unless from is the current one.
func (s *Store) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	begun := s.Compare.Begun()
	if err := s.Cache.Pause(ctx, uid, from, to); err != nil {
		return err
	}
	s.remember(change{uid: uid, pause: to}, begun)
	s.Aggregate.MakeDue(uid)
	return nil
}

// With classes a user has a namespace per class and a default one: see [history.Class]. Clears and the pause
// apply to the whole history. A call stores them in the default namespace first and then copies them to the
// others. If it stops half way, or the class is newer than the clear, the next report's load of the namespace
// copies them.

// Load loads keys from the cache. It also copies missing clears and pauses to the keys' namespaces, and
// reports whether it copied any.
func (s *Store) Load(ctx context.Context, keys []history.Key) (entries []history.Entry, copied bool) {
	all, owners := slices.Clip(keys), map[string]int{}
	for _, k := range keys {
		user, class := history.UserOf(k.UID)
		if _, known := owners[user]; class != "" && !known {
			owners[user] = len(all)
			all = append(all, history.UserKey(user))
		}
	}
	begun := s.Compare.Begun()
	loaded := s.Cache.Load(ctx, all)
	if entries = loaded[:len(keys):len(keys)]; len(owners) == 0 {
		return entries, false
	}
	failed := make(map[string]error)
	for i, k := range keys {
		user, class := history.UserOf(k.UID)
		if _, done := failed[k.UID]; done || class == "" || entries[i].Err != nil {
			continue
		}
		owner := &loaded[owners[user]]
		if failed[k.UID] = owner.Err; owner.Err == nil {
			if !owner.User.Warm {
				s.Reader.Warm(user)
			}
			var changed bool
			changed, failed[k.UID] = s.copy(ctx, k.UID, &owner.User, &entries[i].User, begun)
			copied = copied || changed
		}
	}
	if copied {
		entries = s.Cache.Load(ctx, keys)
	}
	for i, k := range keys {
		if err := failed[k.UID]; err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries, copied
}

// copy copies the clears and the pause of the default namespace, owner, to a namespace that lacks
// them, and reports whether it copied any. It remembers them for both: a cache that lost them must not regain
// them in a part of the history alone. begun is the number of comparisons started before the load of owner.
func (s *Store) copy(ctx context.Context, namespace string, owner, own *history.User, begun uint64) (changed bool, err error) { //nolint:revive // two states, and what they were as of
	user, _ := history.UserOf(namespace)
	all := []change{{uid: namespace, pause: owner.Pause}}
	for _, typ := range slices.Sorted(maps.Keys(owner.Cleared)) {
		all = append(all, change{uid: namespace, clear: history.Clear{Type: typ, Until: owner.Cleared[typ]}})
	}
	for _, d := range all {
		if !d.missing(own) {
			continue
		}
		changed = true
		if err := d.apply(ctx, s.Cache, own); err != nil && !errors.Is(err, history.ErrConflict) {
			return changed, err
		}
		s.remember(d, begun)
		d.uid = user
		s.remember(d, begun)
	}
	if changed {
		s.Aggregate.MakeDue(namespace)
	}
	return changed, nil
}

// Follow copies a user's clears and pause to all class namespaces.
func (s *Store) Follow(ctx context.Context, uid string) error {
	var keys []history.Key
	for _, namespace := range s.Rules.Namespaces(uid)[1:] {
		keys = append(keys, history.UserKey(namespace))
	}
	if len(keys) == 0 {
		return nil
	}
	for range read.MaxTries {
		entries, copied := s.Load(ctx, keys)
		for _, e := range entries {
			if e.Err != nil {
				return e.Err
			}
		}
		if !copied {
			return nil
		}
	}
	return ErrConcurrent
}
