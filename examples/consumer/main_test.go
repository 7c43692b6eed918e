package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/bff/token"
)

// TestFollow follows a stream from the file, as after a restart for each answer.
func TestFollow(t *testing.T) {
	secret, secretFile := bytes.Repeat([]byte("s"), token.MinSecret), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	p := allinonetest.Start(t, allinone.Config{Plays: true, SecretFile: secretFile, UserRate: 1e6, UserBurst: 1e6})
	tokenFor := func(uid, scope string) string {
		text, err := token.Claims{UID: uid, Scope: scope, TTL: time.Hour}.Sign(secret)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	t.Setenv("PLAYHEAD_URL", "http://"+p.HTTP())
	t.Setenv("PLAYHEAD_TOKEN", tokenFor("backend", "plays:read"))
	file := filepath.Join(t.TempDir(), "plays.json")
	call := func(uid, method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.HTTP()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+tokenFor(uid, ""))
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %v, %v", method, path, resp, err)
		}
		_ = resp.Body.Close()
	}
	finish := func(uid, id string) {
		t.Helper()
		call(uid, http.MethodPost, "/v1/heartbeats", fmt.Sprintf(
			`{"heartbeats":[{"object":{"id":%q,"type":1},"kind":"finish","position_ms":90000,"duration_ms":90000,"event_time":%q}]}`, id, time.Now().UTC().Format(time.RFC3339Nano)))
	}
	want := func(want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			_, err := follow(ctx, file)
			if err != nil {
				t.Fatalf("want %v: %v", want, err)
			}
			if has(t, file, want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	finish("ann", "1")
	finish("ann", "2")
	finish("bob", "1")
	want("ann 1", "ann 2", "bob 1")
	call("ann", http.MethodDelete, "/v1/history/1/1", "")
	want("ann 2", "bob 1")
	call("ann", http.MethodDelete, "/v1/history", "")
	want("bob 1")
	time.Sleep(2 * time.Millisecond) // a report of the millisecond of a clear is cleared
	finish("ann", "1")
	want("ann 1", "bob 1")

	t.Setenv("PLAYHEAD_TOKEN", tokenFor("ann", ""))
	if _, err := follow(t.Context(), file); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("without the scope: %v", err)
	}
}

// has reports whether the file has these plays and no other.
func has(t *testing.T, file string, want []string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return false
	}
	var s state
	if err != nil || json.Unmarshal(text, &s) != nil {
		t.Fatalf("%s: %s, %v", file, text, err)
	}
	found := map[string]bool{}
	for _, p := range s.Plays {
		found[p.User+" "+p.Object.ID] = true
	}
	for _, w := range want {
		if !found[w] {
			return false
		}
	}
	return len(found) == len(want)
}
