// SPDX-License-Identifier: Apache-2.0

// Command consumer keeps who completed what in a file, from the stream of plays. It may be killed at any time: the file
// has the plays and the cursor that belongs to them. The token needs the scope plays:read.
//
//	PLAYHEAD_URL=http://127.0.0.1:8080 PLAYHEAD_TOKEN=... go run ./examples/consumer plays.json
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"time"
)

type object struct {
	ID   string `json:"id,omitempty"`
	Type uint32 `json:"type,omitempty"`
}

type play struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"`
	User   string    `json:"user"`
	Object object    `json:"object,omitzero"`
	Type   uint32    `json:"type,omitempty"`
	Time   time.Time `json:"time"`
}

// state is the file.
type state struct {
	Cursor  string               `json:"cursor"`
	Plays   map[string]play      `json:"plays"`   // by id
	Removed map[string]time.Time `json:"removed"` // by user and what was removed: up to when
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run ./examples/consumer FILE")
	}
	for {
		more, err := follow(context.Background(), os.Args[1])
		if err != nil {
			log.Print(err)
		}
		if !more || err != nil {
			time.Sleep(time.Second)
		}
	}
}

// follow applies the next messages to the file. It reports whether there may be more.
func follow(ctx context.Context, file string) (more bool, err error) {
	s := state{Plays: map[string]play{}, Removed: map[string]time.Time{}}
	text, err := os.ReadFile(file) //nolint:gosec // an example
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	messages, next, err := fetch(ctx, s.Cursor)
	if err != nil || len(messages) == 0 {
		return false, err
	}
	for _, m := range messages {
		s.apply(m)
	}
	s.Cursor = next
	if text, err = json.Marshal(s); err != nil {
		return false, err
	}
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return false, err
	}
	return true, os.Rename(file+".new", file) // plays and cursor change together
}

// apply may see a message again: a play replaces itself, and a removal counts once.
func (s *state) apply(m play) {
	switch m.Kind {
	case "completed":
		s.Plays[m.ID] = m
	case "retracted":
		delete(s.Plays, m.ID)
	case "deleted", "cleared":
		what := fmt.Sprintf("%s %q %d %s", m.Kind, m.User, cmp.Or(m.Object.Type, m.Type), m.Object.ID)
		if !m.Time.After(s.Removed[what]) {
			return
		}
		s.Removed[what] = m.Time
		maps.DeleteFunc(s.Plays, func(_ string, p play) bool {
			all := m.Kind == "cleared" && (m.Type == 0 || m.Type == p.Object.Type)
			return p.User == m.User && !p.Time.After(m.Time) && (all || p.Object == m.Object)
		})
	}
}

func fetch(ctx context.Context, cursor string) (plays []play, next string, err error) {
	query := url.Values{"limit": {"1000"}}
	if cursor != "" {
		query.Set("after", cursor)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("PLAYHEAD_URL")+"/v1/plays?"+query.Encode(), nil)
	if err != nil {
		return nil, "", err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("PLAYHEAD_TOKEN"))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	var page struct {
		Plays        []play
		Next, Detail string
	}
	err = json.NewDecoder(resp.Body).Decode(&page)
	if err == nil && resp.StatusCode != http.StatusOK { // 410: delete the file, and begin again
		err = fmt.Errorf("%s: %s", resp.Status, page.Detail)
	}
	return page.Plays, page.Next, err
}
