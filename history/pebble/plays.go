package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// maxPlays is the number of messages that the stream of plays keeps. A trim follows every trimPlays messages.
const (
	maxPlays  = 1_000_000
	trimPlays = 1024
)

// Plays is the stream of plays: a log of the newest million messages.
//
// A message has a number, and with it the name of the run of the store that wrote it. A cursor names both. A restored
// copy that has the number from another run thus refuses the cursor instead of leaving something out.
type Plays struct{ keyspace }

// Plays returns the stream of plays of the store.
func (d *DB) Plays() *Plays {
	return &Plays{keyspace{db: d, space: spacePlays, lock: &d.plays}}
}

func (d *DB) openPlays() error {
	last, err := d.Plays().last()
	d.playRun, d.maxPlays = rand.Uint64(), maxPlays
	d.playsEnd.Store(last)
	return err
}

// Send appends messages. They are on disk when it returns.
func (p *Plays) Send(ctx context.Context, messages []history.PlayMessage) error {
	var last uint64
	err := p.update(ctx, durable, func(e *edit) (err error) {
		if last, err = p.last(); err != nil {
			return err
		}
		for _, m := range messages {
			last++
			v := binary.BigEndian.AppendUint64(nil, p.db.playRun)
			if err := set(e.batch, playKey(last), wire.AppendPlay(v, m)); err != nil {
				return err
			}
			if last%trimPlays == 0 && last > p.db.maxPlays {
				if err := e.batch.DeleteRange(playKey(0), playKey(last-p.db.maxPlays+1), nil); err != nil {
					return unavailable(err)
				}
			}
		}
		return nil
	})
	for end := p.db.playsEnd.Load(); err == nil && end < last && !p.db.playsEnd.CompareAndSwap(end, last); {
		end = p.db.playsEnd.Load()
	}
	return err
}

// After returns up to limit messages after a cursor, oldest first, and the next cursor. The empty cursor is before the
// oldest message. It fails with [history.ErrGone] if messages after the cursor may be missing, with
// [history.ErrInvalid] for other texts, and with [history.ErrUnavailable].
func (p *Plays) After(ctx context.Context, cursor string, limit int) (messages []history.PlayMessage, next string, err error) {
	if err := p.db.enter(ctx); err != nil {
		return nil, "", err
	}
	defer p.db.leave()
	from := uint64(0)
	if cursor != "" {
		if from, err = p.numbered(cursor); err != nil {
			return nil, "", err
		}
	}
	for key, v := range p.db.each(playKey(from+1), playKey(p.db.playsEnd.Load()+1), &err) {
		if len(messages) == limit {
			break
		}
		n := binary.BigEndian.Uint64(key[1:])
		if cursor != "" && n != from+1 { // trimmed meanwhile
			return nil, "", fmt.Errorf("plays after %s: %w", cursor, history.ErrGone)
		}
		run, m, bad := parsePlay(v)
		if bad != nil {
			return nil, "", unavailable(bad)
		}
		cursor, from = formatPlayCursor(n, run), n
		if m.Kind != "" { // otherwise erased
			messages = append(messages, m)
		}
	}
	return messages, cursor, err
}

// numbered returns the number of a cursor, if the store still has its message.
func (p *Plays) numbered(cursor string) (n uint64, err error) {
	number, name, found := strings.Cut(cursor, "-")
	n, err1 := strconv.ParseUint(number, 36, 64)
	run, err2 := strconv.ParseUint(name, 36, 64)
	if !found || err1 != nil || err2 != nil {
		return 0, history.Invalid("query.after", "want the next of an answer")
	}
	err = get(p.db.pebble, playKey(n), func(v []byte) error {
		if len(v) < 8 || binary.BigEndian.Uint64(v) != run || n > p.db.playsEnd.Load() {
			return fmt.Errorf("plays after %s: %w", cursor, history.ErrGone)
		}
		return nil
	})
	return n, err
}

func formatPlayCursor(n, run uint64) string {
	return strconv.FormatUint(n, 36) + "-" + strconv.FormatUint(run, 36)
}

func playKey(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{spacePlays}, n) }

// parsePlay decodes a value. An erased message has no kind.
func parsePlay(v []byte) (run uint64, m history.PlayMessage, err error) {
	if len(v) < 8 {
		return 0, m, fmt.Errorf("play of %d bytes: %w", len(v), wire.ErrCorrupt)
	}
	if run = binary.BigEndian.Uint64(v); len(v) > 8 {
		m, err = wire.Play(v[8:])
	}
	return run, m, err
}

// last returns the number of the newest message, 0 without one.
func (p *Plays) last() (n uint64, err error) {
	it, err := p.db.pebble.NewIter(&pebble.IterOptions{LowerBound: playKey(0), UpperBound: []byte{spacePlays + 1}})
	if err != nil {
		return 0, unavailable(err)
	}
	if it.Last() {
		n = binary.BigEndian.Uint64(it.Key()[1:])
	}
	if err := it.Close(); err != nil {
		return 0, unavailable(err)
	}
	return n, nil
}

// ofUser yields the keys and values of a user's plays up to a time, 0 for all. Clears stay: they are how other systems
// learn of an erasure.
func (p *Plays) ofUser(uid string, until int64, do func(key, value []byte) error) (err error) {
	uid, _ = history.UserOf(uid)
	for key, v := range p.db.each(playKey(0), []byte{spacePlays + 1}, &err) {
		_, m, bad := parsePlay(v)
		if bad != nil || m.Key.UID != uid || m.Kind == history.PlaysCleared || until != 0 && m.At > until {
			continue
		}
		if err := do(key, v); err != nil {
			return err
		}
	}
	return err
}

// erase empties a user's messages. Cursors that name them stay good.
func (p *Plays) erase(ctx context.Context, uid string, until int64) error {
	return p.update(ctx, durable, func(e *edit) error {
		return p.ofUser(uid, until, func(key, v []byte) error { return set(e.batch, bytes.Clone(key), bytes.Clone(v[:8])) })
	})
}
