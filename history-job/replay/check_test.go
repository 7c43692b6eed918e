package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// shelf is a store that holds what a test put there.
type shelf map[history.Key]*history.Record

func (s shelf) read(_ context.Context, keys []history.Key) ([]*history.Record, error) {
	rs := make([]*history.Record, len(keys))
	for i, k := range keys {
		rs[i] = s[k]
	}
	return rs, nil
}

// Load implements [history.Loader].
func (s shelf) Load(_ context.Context, keys []history.Key) []history.Entry {
	es := make([]history.Entry, len(keys))
	for i, k := range keys {
		if es[i].Record = s[k]; s[k] == nil {
			es[i].Err = history.ErrUnavailable
		}
	}
	return es
}

// planned are two viewings each of 600 users, more than are read at once.
func planned() *replay.Plan {
	var vs []replay.Viewing
	for i := range int64(1200) {
		vs = append(vs, viewing(fmt.Sprintf("user%d/%d", i%600, i), noon+i, 20_000+i, 30_000))
	}
	return replay.Expand(vs, 0)
}

func TestCheck(t *testing.T) {
	p := planned()
	cache, archive := shelf(fold(p)), shelf(fold(p))
	check := func(missing, wrong int, words ...string) {
		t.Helper()
		got, err := replay.Check(t.Context(), replay.Model(p), map[string]replay.Reader{"cache": cache.read, "archive": archive.read})
		if err != nil || got.Missing != missing || got.Wrong != wrong || got.OK() != (missing+wrong == 0) || got.Records != 1200 || got.Users != 600 {
			t.Errorf("check: %+v, %v, want %d missing and %d wrong of 1200 of 600 users", got, err, missing, wrong)
		}
		told := strings.Join(got.Examples, "\n")
		for _, word := range words {
			if !strings.Contains(told, word) {
				t.Errorf("examples %q do not tell of %q", told, word)
			}
		}
		if n := len(got.Examples); n > 5 || n < min(missing+wrong, 5) {
			t.Errorf("%d examples of %d differences", n, missing+wrong)
		}
	}
	check(0, 0)
	k := p.Event(0).Key
	delete(archive, k)
	check(1, 0, "archive: "+k.String()+" is missing")
	bad := *cache[k]
	bad.Position = 1
	cache[k] = &bad
	check(1, 1, "archive: "+k.String()+" is missing", "cache: "+k.String()+" is ")
	clear(archive)
	check(1200, 1)
}

// TestCheckReaders has readers that do not answer for every key: nothing is right
// that was not looked at.
func TestCheckReaders(t *testing.T) {
	p := planned()
	model := replay.Model(p)
	for name, read := range map[string]replay.Reader{
		"fails":   func(context.Context, []history.Key) ([]*history.Record, error) { return nil, history.ErrUnavailable },
		"nothing": func(context.Context, []history.Key) ([]*history.Record, error) { return nil, nil },
		"too many": func(_ context.Context, keys []history.Key) ([]*history.Record, error) {
			return make([]*history.Record, len(keys)+1), nil
		},
		"no cache": replay.FromCache(shelf{}),
	} {
		if _, err := replay.Check(t.Context(), model, map[string]replay.Reader{name: read}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("check of a reader that %s: %v", name, err)
		}
	}
	got, err := replay.Check(t.Context(), model, map[string]replay.Reader{"cache": replay.FromCache(shelf(fold(p)))})
	if err != nil || !got.OK() {
		t.Errorf("check of a cache: %+v, %v", got, err)
	}
	if _, err := replay.FromCache(shelf{})(t.Context(), []history.Key{p.Event(0).Key}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("a cache that does not answer: %v", err)
	}
}
