package pebble

import (
	"context"
	"fmt"
	"iter"

	"github.com/playhead/playhead/history"
)

// usersOfScan is the number of users that a scan reads at one point in time.
const usersOfScan = 256

// Users yields the uids of all users and namespaces with data after the given one, by bucket and uid. It makes a
// checkpoint first, because a user may exist only in memory. A user who comes while it runs may be missing. It ends at
// the first error, such as [history.ErrUnavailable].
func (s *keyspace) Users(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.db.enter(ctx); err != nil {
			yield("", err)
			return
		}
		err := s.db.checkpointNow(ctx)
		s.db.leave()
		lower := []byte{s.space}
		if from != "" {
			lower = after(appendUser(nil, s.space, from))
		}
		for more := true; more && err == nil; {
			var some []string
			if some, err = s.usersFrom(ctx, lower); err != nil || len(some) == 0 {
				break
			}
			for _, uid := range some {
				if !yield(uid, nil) {
					return
				}
			}
			lower = after(appendUser(nil, s.space, some[len(some)-1]))
			more = len(some) == usersOfScan
		}
		if err != nil {
			yield("", fmt.Errorf("scan users: %w", err))
		}
	}
}

func (s *keyspace) usersFrom(ctx context.Context, lower []byte) (some []string, err error) {
	if err := s.db.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.leave()
	for uid := range s.db.users(lower, []byte{s.space + 1}, &err) {
		if some = append(some, uid); len(some) == usersOfScan {
			break
		}
	}
	return some, err
}

// Keys returns the keys of all of a user's records, tombstones and expired ones too.
func (c *Cache) Keys(ctx context.Context, uid string) (keys []history.Key, err error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	c.lock.Lock()
	row, err := c.rowOf(uid)
	c.lock.Unlock()
	if err != nil {
		return nil, err
	}
	for text := range row.all(&err) {
		if len(text) == 0 {
			continue
		}
		if o, parseErr := history.ParseObject(string(text)); parseErr == nil {
			keys = append(keys, history.Key{UID: uid, Object: o})
		}
	}
	return keys, err
}
