package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/playstest"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// subscriber reads GET /v1/plays. It goes on after its cursor, over any number of kills.
type subscriber struct {
	token    string
	cursor   string
	messages []history.PlayMessage
}

// pull reads everything that is there.
func (s *subscriber) pull(ctx context.Context, address string) error {
	for {
		query := url.Values{"limit": {"50"}}
		if s.cursor != "" {
			query.Set("after", s.cursor)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/v1/plays?"+query.Encode(), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+s.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		var page struct {
			Plays []json.RawMessage
			Next  string
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %w", resp.Status, err)
		}
		for _, text := range page.Plays {
			m, err := wire.Play(text)
			if err != nil {
				return err
			}
			s.messages = append(s.messages, m)
		}
		if s.cursor = page.Next; len(page.Plays) == 0 {
			return nil
		}
	}
}

// TestPlaysSurviveKills kills the process while a client reports and another reads the stream. In the end the stream
// has what was acknowledged.
func TestPlaysSurviveKills(t *testing.T) {
	dir, c, s := t.TempDir(), playstest.New(t, "viewer"), &subscriber{}
	for round := range 4 {
		p := start(t, dir, withPlays)
		secret, err := allinone.ReadSecret(dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.token, err = (token.Claims{UID: "backend", Scope: "plays:read", TTL: time.Hour}).Sign(secret); err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(p.rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		service := func() historyv1.HistoryServiceClient { return historyv1.NewHistoryServiceClient(conn) }
		for n := range 150 {
			c.Act(service)
			if n%20 == 7*round%20 {
				if err := s.pull(t.Context(), p.http); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = conn.Close()
		if round < 3 {
			p.kill()
			continue
		}
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			err := s.pull(t.Context(), p.http)
			if err == nil {
				err = c.Judge(s.messages)
			}
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
}
