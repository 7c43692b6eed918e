package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// player plays random records before each page that is read.
type player struct {
	*rpc.Server
	t    *testing.T
	dice *rand.Rand
	n    int // number of records
}

func (p *player) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	resp, err := p.Server.List(ctx, req)
	for range 3 {
		p.play(p.dice.IntN(p.n), time.Now())
	}
	return resp, err
}

func (p *player) play(i int, at time.Time) {
	p.t.Helper()
	hb := &historyv1.Heartbeat{
		Uid: "u1", ObjectId: fmt.Sprint(i), ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: at.UnixMilli(), PositionMs: 1000, DurationMs: 100_000,
	}
	if _, err := p.Apply(p.t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}}); err != nil {
		p.t.Error(err)
	}
}

// TestExportBesideAPlayer checks that an export has each initial object exactly once, whatever is played
// between pages.
func TestExportBesideAPlayer(t *testing.T) {
	p := &player{Server: newService(t), t: t, dice: rand.New(rand.NewPCG(1, 2)), n: 450} //nolint:gosec // a test
	for i := range p.n {
		p.play(i, time.Now().Add(-time.Hour-time.Duration(i)*time.Second))
	}
	w := configured(t, api.Config{Service: p}).do(t, "GET /v1/export", "")
	seen := make(map[string]bool)
	for _, id := range ids(t, w.Body) {
		if seen[id] {
			t.Errorf("%s comes twice", id)
		}
		seen[id] = true
	}
	if w.Code != http.StatusOK || len(seen) != p.n {
		t.Errorf("%d, %d objects of %d", w.Code, len(seen), p.n)
	}
}

// TestLongDeletes checks that a long range delete runs in bounded steps and keeps newer plays.
func TestLongDeletes(t *testing.T) {
	p := &player{Server: newService(t), t: t, dice: rand.New(rand.NewPCG(1, 2)), n: 0} //nolint:gosec // a test
	began, n := time.Now().Add(-time.Hour), 1500
	for i := range n {
		p.play(i, began.Add(-time.Duration(i)*time.Second))
	}
	e := configured(t, api.Config{Service: p.Server, DeleteFor: time.Nanosecond})
	body, deleted, parts := fmt.Sprintf(`{"since":%q}`, began.Add(-24*time.Hour).UTC().Format(time.RFC3339)), 0.0, 0
	for ; body != ""; parts++ {
		w := e.do(t, "POST /v1/history/delete", body)
		var answer struct {
			Deleted float64
			Next    json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || parts > n {
			t.Fatalf("part %d: %d %s", parts, w.Code, w.Body)
		}
		if parts == 2 {
			p.play(n-1, time.Now())
			p.play(n, time.Now())
		}
		deleted, body = deleted+answer.Deleted, string(answer.Next)
	}
	left := ids(t, e.do(t, "GET /v1/export", "").Body)
	if slices.Sort(left); int(deleted) != n-1 || parts < n/100 || !slices.Equal(left, []string{"1499", "1500"}) {
		t.Errorf("%v deleted in %d parts, %v left", deleted, parts, left)
	}
}
