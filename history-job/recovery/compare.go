package recovery

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
)

// comparePart restores some contents. Unanswered ones stay unverified: they are compared later, and nothing of their
// users is archived until then.
func (r *Recovery) comparePart(ctx context.Context, epoch string, part []content) (restored int, err error) {
	given, left, err := r.giveBack(archive.Brief(ctx), part)
	if err != nil {
		return 0, err
	}
	r.cfg.Machine.verified(part, left)
	if len(given) == 0 {
		return 0, nil
	}
	return len(given), r.cfg.Archiver.ArchiveIn(archive.Brief(ctx), epoch, given) // marks them clean at once
}

// giveBack returns the keys restored to the cache and the contents that a store does not answer for.
func (r *Recovery) giveBack(ctx context.Context, part []content) (given []history.Key, left []content, err error) {
	differing, unanswered, err := r.differing(ctx, part)
	if err != nil {
		return nil, nil, err
	}
	var keys []history.Key
	for _, k := range differing {
		if !k.IsUser() {
			keys = append(keys, k)
		} else if answered, err := r.restoreUser(ctx, k); err != nil {
			return nil, nil, err
		} else if !answered {
			unanswered[k] = true
		}
	}
	if len(keys) > 0 {
		if given, err = r.giveArchived(ctx, keys, unanswered); err != nil {
			return nil, nil, err
		}
	}
	return given, slices.DeleteFunc(slices.Clone(part), func(c content) bool { return !unanswered[c.key] }), nil
}

// giveArchived restores archived records. It returns the keys restored, and adds to the unanswered ones.
func (r *Recovery) giveArchived(ctx context.Context, keys []history.Key, unanswered map[history.Key]bool) (given []history.Key, err error) {
	entries, err := r.cfg.Archiver.Get(ctx, keys)
	if err != nil {
		return nil, err
	}
	contents := make([]history.Announcement, 0, len(keys))
	for i, e := range entries {
		if errors.Is(e.Err, history.ErrUnavailable) {
			unanswered[keys[i]] = true
		} else if e.Record != nil {
			contents = append(contents, history.Announcement{Key: keys[i], Record: e.Record})
		}
	}
	given, left, err := r.restore(ctx, contents)
	for _, a := range left {
		unanswered[a.Key] = true
	}
	return given, err
}

// differing returns the keys whose cached content differs from the archived one, and the unanswered keys. A missing
// record below the user's low watermark was trimmed and does not differ.
func (r *Recovery) differing(ctx context.Context, part []content) (keys []history.Key, unanswered map[history.Key]bool, err error) {
	ask := make([]history.Key, len(part))
	for i, c := range part {
		ask[i] = c.key
	}
	unanswered = make(map[history.Key]bool)
	entries, err := r.cfg.Archiver.Load(ctx, ask)
	for i, e := range entries {
		c := part[i]
		same := e.Record != nil && c.revision != 0 && history.SameContent(e.Record.Revision, c.revision)
		trimmed := e.Record == nil && e.User.Warm && c.version < e.User.LowWatermark
		if e.Err != nil {
			unanswered[c.key] = true
		} else if c.key.IsUser() || !same && !trimmed {
			keys = append(keys, c.key)
		}
	}
	return keys, unanswered, err
}

// restoreUser restores a user's missing clear marks and pause. It reports whether both stores answered.
func (r *Recovery) restoreUser(ctx context.Context, k history.Key) (answered bool, err error) {
	err = r.cfg.Archiver.RetryEach(ctx, "restore", 1, func(ctx context.Context) (int, error) {
		err := r.tryRestoreUser(ctx, k)
		if answered = err == nil; errors.Is(err, history.ErrPermanent) {
			return 1, nil
		}
		return 1, err
	})
	return answered, err
}

func (r *Recovery) tryRestoreUser(ctx context.Context, k history.Key) error {
	page, err := r.stores.Archive.Page(ctx, k.UID, history.Query{})
	if err != nil {
		return err
	}
	e := r.stores.Cache.Load(ctx, []history.Key{k})[0]
	if e.Err != nil || !e.User.Warm { // the warm-up restores it
		return e.Err
	}
	for _, typ := range slices.Sorted(maps.Keys(page.User.Cleared)) {
		until := page.User.Cleared[typ]
		if e.User.Cleared[typ] >= until {
			continue
		}
		if _, err := r.stores.Cache.Clear(ctx, k.UID, history.Clear{Type: typ, Until: until}); err != nil {
			return err
		}
		r.metrics.restored.Inc()
	}
	if e.User.Pause.Newer(page.User.Pause) == e.User.Pause {
		return nil
	}
	if err := r.stores.Cache.Pause(ctx, k.UID, e.User.Pause, page.User.Pause); err != nil {
		return err // also if the user switched meanwhile: retry
	}
	r.metrics.restored.Inc()
	return nil
}
