package pebble_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// played returns n plays of users in turn, from a number on.
func played(from, n int) (messages []history.PlayMessage) {
	for i := from; i < from+n; i++ {
		messages = append(messages, history.PlayMessage{Kind: history.PlayCompleted, Key: viewing(i%3, i), Viewing: 7, At: now() - 1000 + int64(i)})
	}
	return messages
}

// wantPlays reads the stream after a cursor, and returns the next.
func wantPlays(t *testing.T, db *pebble.DB, cursor string, want []history.PlayMessage) string {
	t.Helper()
	got, next, err := db.Plays().After(t.Context(), cursor, 1000)
	if err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("after %q: got %v, %v, want %v", cursor, got, err, want)
	}
	return next
}

// TestPlays reads the stream across a restart, and refuses the cursors of what a copy or a trim does not have.
func TestPlays(t *testing.T) {
	dir, copied := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "copy")
	db := open(t, dir, pebble.Config{})
	wantPlays(t, db, "", nil)
	all := played(0, 10)
	must(t, db.Plays().Send(t.Context(), all[:3]))
	must(t, db.Plays().Send(t.Context(), all[3:5]))
	third, _, err := db.Plays().After(t.Context(), "", 3)
	if err != nil || !reflect.DeepEqual(third, all[:3]) {
		t.Fatalf("got %v, %v, want %v", third, err, all[:3])
	}
	fifth := wantPlays(t, db, "", all[:5])
	if again := wantPlays(t, db, fifth, nil); again != fifth {
		t.Errorf("without more the cursor is %q, want %q", again, fifth)
	}
	closed(t, db)
	must(t, os.CopyFS(copied, os.DirFS(dir)))

	db = open(t, dir, pebble.Config{})
	must(t, db.Plays().Send(t.Context(), all[5:7]))
	seventh := wantPlays(t, db, fifth, all[5:7])
	for _, cursor := range []string{"x", "-", "1-", "zzzzzzzzzzzzzzzz-1"} {
		if _, _, err := db.Plays().After(t.Context(), cursor, 10); !errors.Is(err, history.ErrInvalid) {
			t.Errorf("cursor %q: %v, want invalid", cursor, err)
		}
	}
	closed(t, db)

	db = open(t, copied, pebble.Config{})
	must(t, db.Plays().Send(t.Context(), all[7:]))
	wantPlays(t, db, fifth, all[7:])
	wantGone(t, db, seventh)
	db.KeepPlays(1024)
	for from := range 3 {
		must(t, db.Plays().Send(t.Context(), played(1000*from, 1000)))
	}
	wantGone(t, db, fifth)
	got, _, err := db.Plays().After(t.Context(), "", 5000)
	if err != nil || len(got) < 1024 || len(got) > 2*1024 {
		t.Errorf("%d messages are kept, %v, want 1,024 to 2,048", len(got), err)
	}
}

func wantGone(t *testing.T, db *pebble.DB, cursor string) {
	t.Helper()
	if _, _, err := db.Plays().After(t.Context(), cursor, 10); !errors.Is(err, history.ErrGone) {
		t.Errorf("cursor %q: %v, want %v", cursor, err, history.ErrGone)
	}
}

// TestErasePlays erases a user's plays, also from the files. The clear stays, for readers of the stream.
func TestErasePlays(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, pebble.Config{})
	mine, other := viewing(1, 0), viewing(2, 0)
	mine.Object.ID = device(1)
	own := history.PlayMessage{Kind: history.PlayCompleted, Key: mine, Viewing: 7, At: now()}
	others := history.PlayMessage{Kind: history.PlayCompleted, Key: other, Viewing: 7, At: now()}
	cleared := history.PlayMessage{Kind: history.PlaysCleared, Key: history.UserKey(mine.UID), At: now()}
	all := []history.PlayMessage{own, cleared, others, own}
	must(t, db.Plays().Send(t.Context(), all))
	last := wantPlays(t, db, "", all)
	wantHeld(t, db, mine.UID, 0, map[string]int{"stream of plays": 2})
	eraseAll(t, db, mine.UID)
	wantHeld(t, db, mine.UID, 0, nil)
	if next := wantPlays(t, db, "", []history.PlayMessage{cleared, others}); next != last {
		t.Errorf("the cursor is %q, want %q", next, last)
	}
	wantPlays(t, db, last, nil)
	if names := filesWith(t, dir, device(1)); len(names) > 0 {
		t.Errorf("the play is still in %v", names)
	}
}

// TestPlaysOfManyWriters: each message is there once, whoever wrote it.
func TestPlaysOfManyWriters(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	const writers, each = 8, 20
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var err error
			for i := range each {
				err = errors.Join(err, db.Plays().Send(t.Context(), played(w*each+i, 1)))
			}
			done <- err
		}()
	}
	for range writers {
		must(t, <-done)
	}
	seen := make(map[string]bool)
	for cursor := ""; len(seen) < writers*each; {
		messages, next, err := db.Plays().After(t.Context(), cursor, 7)
		if err != nil || len(messages) == 0 {
			t.Fatalf("after %d: %v, %v", len(seen), messages, err)
		}
		for _, m := range messages {
			if id := fmt.Sprint(m.Key); seen[id] {
				t.Errorf("%s is there twice", id)
			} else {
				seen[id] = true
			}
		}
		cursor = next
	}
}
