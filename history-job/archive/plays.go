package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
)

// Plays is the stream of plays.
type Plays interface {
	// Send appends messages, those of a user in order. After an error some may have been sent; a repeat is harmless.
	Send(ctx context.Context, messages []history.PlayMessage) error
}

// note writes into the cache which messages are about to be sent, before the put: see [history.Record.Told]. Only
// accepted records stay in the batch; the others are returned for another round.
func (a *Archiver) note(ctx context.Context, b *batch) (again []history.Key) {
	if a.cfg.Plays == nil {
		return nil
	}
	var writes []history.Write
	for i := range b.keys {
		e, k := &b.entries[i], b.keys[i]
		r := present(k, e)
		if r == nil || len(r.Untold(k, &e.User)) == 0 {
			continue
		}
		if noted := r.BeforeTelling(&e.User); noted != nil {
			writes = append(writes, history.WriteOn(e.Record, k, noted, &e.User))
		}
	}
	if len(writes) == 0 {
		return nil
	}
	conflicts, accepted := make(map[history.Key]bool), make(map[history.Key]*history.Record)
	for i, taken := range a.writeBack(ctx, writes) {
		if k := writes[i].Key; taken {
			accepted[k] = writes[i].Record
		} else {
			conflicts[k], again = true, append(again, k)
		}
	}
	b.remove(conflicts)
	for i, k := range b.keys {
		if r := accepted[k]; r != nil {
			b.entries[i].Record = r
		}
	}
	return again
}

// untold moves the keys with messages to send from a batch that was put into one of their own. A key that the cache
// lacks may have some in the archive.
func (a *Archiver) untold(b *batch) (owing batch) {
	if a.cfg.Plays == nil {
		return owing
	}
	keys := make(map[history.Key]bool)
	for i, k := range b.keys {
		e := &b.entries[i]
		r := present(k, e)
		if k.IsUser() && len(e.User.Cleared) > 0 || !k.IsUser() && (r == nil || len(r.Untold(k, &e.User)) > 0) {
			keys[k] = true
			owing.add(k, *e)
		}
	}
	b.remove(keys)
	return owing
}

// tell sends the messages of keys that were put, then notes that the stream has them. The noted records are another
// content, returned for another round. Keys whose messages were not sent stay dirty.
func (a *Archiver) tell(ctx context.Context, owing batch) (again []history.Key, err error) {
	if len(owing.keys) == 0 {
		return nil, nil
	}
	var messages []history.PlayMessage
	var writes []history.Write
	var clean []history.Content
	var missing batch
	for i, k := range owing.keys {
		e := &owing.entries[i]
		if k.IsUser() {
			messages = append(messages, history.ClearMessages(k.UID, &e.User)...)
			clean = append(clean, history.Content{Key: k, Revision: e.User.Revision})
		} else if r := present(k, e); r != nil {
			messages = append(messages, r.Untold(k, &e.User)...)
			writes = append(writes, history.WriteOn(e.Record, k, r.AfterTelling(&e.User), &e.User))
		} else {
			missing.add(k, *e)
		}
	}
	old, err := a.untoldOfMissing(ctx, &missing)
	if err != nil {
		return nil, err
	}
	switch sent, err := a.send(ctx, append(messages, old...)); {
	case err != nil:
		return nil, err
	case !sent && len(old) > 0: // without a mark a sweep would not come back to them
		return nil, fmt.Errorf("send %d plays: %w", len(old), history.ErrUnavailable)
	case !sent:
		a.leave(len(owing.keys))
		return nil, nil
	}
	a.writeBack(ctx, writes) // after a conflict the stream gets it again
	for i := range writes {
		again = append(again, writes[i].Key)
	}
	if len(clean) > 0 {
		err = a.markClean(ctx, clean)
	}
	return again, err
}

// untoldOfMissing returns the messages of keys that the cache lacks. Their record may have been lost between its put
// and its messages. A play sent just before a clear may stand behind the clear's message, so it is deleted again.
func (a *Archiver) untoldOfMissing(ctx context.Context, b *batch) (messages []history.PlayMessage, err error) {
	if len(b.keys) == 0 {
		return nil, nil
	}
	old, err := a.Get(ctx, b.keys)
	if err != nil {
		return nil, err
	}
	for i, k := range b.keys {
		u := &b.entries[i].User
		switch r := old[i].Record.After(u.ClearedAt(k.Object.Type)); {
		case old[i].Err != nil && !errors.Is(old[i].Err, history.ErrPermanent):
			return nil, fmt.Errorf("plays of a missing record: %w", old[i].Err)
		case r != nil && r.Unsure():
			messages = append(messages, r.Untold(k, u)...)
		case r == nil && u.ClearedAt(k.Object.Type) > 0:
			messages = append(messages, history.PlayMessage{Kind: history.PlaysDeleted, Key: k, At: u.ClearedAt(k.Object.Type)})
		}
	}
	return messages, nil
}

// send reports whether all messages were sent. Its tries are few, because the keys come back. Plays follow what
// removes others, by time.
func (a *Archiver) send(ctx context.Context, messages []history.PlayMessage) (sent bool, err error) {
	if len(messages) == 0 {
		return true, nil
	}
	for i := range messages { // also of a class
		messages[i].Key.UID, _ = history.UserOf(messages[i].Key.UID)
	}
	slices.SortStableFunc(messages, func(a, b history.PlayMessage) int {
		switch {
		case a.Kind != history.PlayCompleted && b.Kind != history.PlayCompleted:
			return 0
		case a.Kind != history.PlayCompleted:
			return -1
		case b.Kind != history.PlayCompleted:
			return 1
		}
		return cmp.Compare(a.At, b.At)
	})
	err = a.RetryEach(Brief(ctx), "plays", 1, func(ctx context.Context) (int, error) {
		err := a.cfg.Plays.Send(ctx, messages)
		sent = err == nil
		return 1, err
	})
	if sent {
		a.metrics.plays.Add(float64(len(messages)))
	}
	return sent, err
}
