package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// playLog is a stream whose cursors are "b" and, for a trimmed part, "a".
type playLog []history.PlayMessage

func (l playLog) After(_ context.Context, cursor string, limit int) ([]history.PlayMessage, string, error) {
	switch cursor {
	case "":
		return l[:min(limit, len(l))], "b", nil
	case "a":
		return nil, "", history.ErrGone
	}
	return nil, cursor, nil
}

// TestPlays: the API and the topic have the same messages.
func TestPlays(t *testing.T) {
	k := history.Key{UID: "ann", Object: history.Object{ID: "a/b", Type: 3}}
	log := playLog{
		{Kind: history.PlayCompleted, Key: k, Viewing: 7, At: 1_795_000_000_123},
		{Kind: history.PlayRetracted, Key: k, Viewing: 7, At: 1_795_000_000_123},
		{Kind: history.PlaysDeleted, Key: k, At: 1_795_000_000_000},
		{Kind: history.PlaysCleared, Key: history.UserKey("ann"), At: 1_795_000_001_000},
		{Kind: history.PlaysCleared, Key: history.Key{UID: "ann", Object: history.Object{Type: 3}}, At: 1_795_000_001_000},
	}
	e := configured(t, api.Config{Service: &service{}, Plays: log})
	ask := func(query string) (page struct {
		Plays []any
		Next  string
	},
	) {
		t.Helper()
		w := e.send(scoped(t, "plays:read", "GET /v1/plays"+query, ""))
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", query, w.Code, w.Body, err)
		}
		return page
	}
	first := ask("")
	if len(first.Plays) != len(log) || first.Next != "b" {
		t.Fatalf("got %+v", first)
	}
	for i, m := range log {
		var want any
		text := wire.AppendPlay(nil, m)
		if err := json.Unmarshal(text, &want); err != nil || !reflect.DeepEqual(first.Plays[i], want) {
			t.Errorf("got %v, %v, want %s", first.Plays[i], err, text)
		}
		if again, err := wire.Play(text); err != nil || again != m {
			t.Errorf("%s: decoded as %+v, %v", text, again, err)
		}
	}
	if next := ask("?after=b&limit=10"); len(next.Plays) != 0 || next.Next != "b" {
		t.Errorf("at the end: %+v", next)
	}
	for query, want := range map[string]int{"?after=a": http.StatusGone, "?limit=1001": 422, "?limit=0": 422, "?after=": 422} {
		wantProblem(t, e.send(scoped(t, "plays:read", "GET /v1/plays"+query, "")), want)
	}
}
