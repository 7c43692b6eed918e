//go:build e2e

package pipeline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// pagedUsers is the number of users whose whole history is read through the edge.
const pagedUsers = 300

// page is the tested part of the edge's answer.
type page struct {
	Items []struct {
		Object struct {
			ID   string `json:"id"`
			Type uint32 `json:"type"`
		} `json:"object"`
		PositionMS int64     `json:"position_ms"`
		FurthestMS int64     `json:"furthest_ms"`
		Plays      uint64    `json:"plays"`
		EventTime  time.Time `json:"event_time"`
	} `json:"items"`
	Cursor  string `json:"cursor"`
	HasMore bool   `json:"has_more"`
}

// checkPages reads some users' histories through a real edge, page by page, and compares them with the model.
func checkPages(t *testing.T, s *pipeline.Stack, model map[history.Key]*replay.Expected) {
	t.Helper()
	secret := strings.Repeat("s", token.MinSecret)
	addr := s.StartBFF(t, secret)
	byUser := make(map[string]int)
	for k := range model {
		byUser[k.UID]++
	}
	users := slices.SortedFunc(maps.Keys(byUser), func(a, b string) int { return byUser[b] - byUser[a] })
	for _, uid := range users[:pagedUsers] {
		bearer, err := token.Mint([]byte(secret), uid, "", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkUser(t, "http://"+addr, bearer, uid, model); got != byUser[uid] {
			t.Errorf("user %s: the pages show %d records, want %d", uid, got, byUser[uid])
		}
	}
}

// checkUser reads all pages of one user and returns the number of records.
func checkUser(t *testing.T, base, bearer, uid string, model map[history.Key]*replay.Expected) int { //nolint:revive // five things to tell one user from another
	t.Helper()
	seen, cursor := make(map[history.Key]bool), ""
	for {
		p := get(t, base+"/v1/history?limit=30"+cursor, bearer)
		for _, it := range p.Items {
			k := history.Key{UID: uid, Object: history.Object{ID: it.Object.ID, Type: it.Object.Type}}
			want := model[k]
			if seen[k] || want == nil || it.PositionMS != want.Resume() || it.FurthestMS != want.Furthest() ||
				it.Plays != want.Plays() || it.EventTime.UnixMilli() != want.At {
				t.Errorf("%s (seen before: %v): got %+v, want %+v", k, seen[k], it, want)
			}
			seen[k] = true
		}
		if !p.HasMore {
			return len(seen)
		}
		cursor = "&cursor=" + url.QueryEscape(p.Cursor)
	}
}

func get(t *testing.T, address, bearer string) (p page) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", address, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", address, err))
	}
	return p
}
