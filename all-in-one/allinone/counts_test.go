package allinone_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// countAll counts all types.
func countAll(t *testing.T) count.Types {
	t.Helper()
	types, err := count.ParseTypes([]string{"all"})
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func serviceAt(t *testing.T, addr string) historyv1.HistoryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return historyv1.NewHistoryServiceClient(conn)
}

// finished is the report of a completed play.
func finished(uid, object, session string, at time.Time) *historyv1.Heartbeat {
	return &historyv1.Heartbeat{
		Uid: uid, ObjectId: object, ObjectType: 1, Kind: historyv1.Kind_KIND_FINISH, EventTimeMs: at.UnixMilli(), PositionMs: 600_000, DurationMs: 600_000,
		Session: session, StartedAtMs: at.Add(-5 * time.Minute).UnixMilli(), WatchedMs: 60_000,
	}
}

// awaitTotal waits for an object's total.
func (h *here) awaitTotal(object string, want count.Sum) {
	h.Helper()
	var got count.Sum
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		all, err := h.Counters().Totals(h.Context(), []history.Object{{ID: object, Type: 1}})
		if err != nil {
			h.Fatal(err)
		}
		if got = all[0].All; got == want {
			return
		}
	}
	h.Errorf("totals of %s: got %+v, want %+v", object, got, want)
}

// TestCounts: plays count once, stay after a delete, and count no more when the same report comes again.
func TestCounts(t *testing.T) {
	h := openWith(t, func(cfg *allinone.Config) { cfg.Dir, cfg.Counted = t.TempDir(), countAll(t) })
	c, began := serviceAt(t, h.RPC()), time.Now().Add(-time.Minute)
	apply := func(beats ...*historyv1.Heartbeat) {
		t.Helper()
		if _, err := c.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: beats}); err != nil {
			t.Fatal(err)
		}
	}
	first := []*historyv1.Heartbeat{finished("ann", "film", "1", began), finished("bob", "film", "1", began), finished("ann", "film", "2", began.Add(time.Second))}
	apply(first...)
	apply(first...)
	h.awaitTotal("film", count.Sum{Plays: 3, Viewers: 2, Watched: 180_000})
	if _, err := c.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "film", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	apply(first...)
	apply(finished("cid", "film", "1", began))
	h.awaitTotal("film", count.Sum{Plays: 4, Viewers: 3, Watched: 240_000})
	longer := finished("bob", "film", "1", began.Add(10*time.Second)) // it was not the end of the film
	longer.Kind, longer.DurationMs = historyv1.Kind_KIND_STOP, 9_000_000
	apply(longer)
	h.awaitTotal("film", count.Sum{Plays: 3, Viewers: 2, Watched: 240_000})
}

// backend asks POST /v1/counts with a scope.
func (h *here) backend(dir, scope, body string) (status int, answer string) {
	h.Helper()
	secret, err := allinone.ReadSecret(dir)
	if err != nil {
		h.Fatal(err)
	}
	text, err := token.Claims{UID: "backend", Scope: scope, TTL: time.Hour}.Sign(secret)
	if err != nil {
		h.Fatal(err)
	}
	r, err := http.NewRequestWithContext(h.Context(), http.MethodPost, "http://"+h.HTTP()+"/v1/counts", strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+text)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		h.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// throughTime is the time in an answer, which no test knows.
var throughTime = regexp.MustCompile(`,"through":"[^"]+"`)

// TestCountsOverHTTP: a backend reads what users complete. A delete changes nothing.
func TestCountsOverHTTP(t *testing.T) {
	dir := t.TempDir()
	films, err := count.ParseTypes([]string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	h := openWith(t, func(cfg *allinone.Config) { cfg.Dir, cfg.Counted = dir, films })
	c, began := serviceAt(t, h.RPC()), time.Now().Add(-time.Minute)
	apply := func(beats ...*historyv1.Heartbeat) {
		t.Helper()
		if _, err := c.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: beats}); err != nil {
			t.Fatal(err)
		}
	}
	const film = `{"id":"film","type":1}`
	await := func(plays, viewers int) {
		t.Helper()
		sum := fmt.Sprintf(`"plays":%d,"viewers":%d,"watched_ms":%d`, plays, viewers, plays*60_000)
		want := `{"items":[{"object":` + film + `,"counted":true,"total":{` + sum + `},"days":[{"day":"` + began.UTC().Format(time.DateOnly) + `",` + sum + `}]},` +
			`{"object":{"id":"none","type":1},"counted":true,"total":{"plays":0,"viewers":0,"watched_ms":0}},{"object":{"id":"song","type":2},"counted":false}]}`
		ask := `{"objects":[` + film + `,{"id":"none","type":1},{"id":"song","type":2}],"since":"` + began.UTC().Format(time.DateOnly) + `"}`
		var got string
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			status, answer := h.backend(dir, "counts:read", ask)
			if status != http.StatusOK || strings.Count(answer, `"through"`) != 2 {
				t.Fatalf("%d %s", status, answer)
			}
			if got = throughTime.ReplaceAllString(strings.TrimSpace(answer), ""); got == want {
				return
			}
		}
		t.Fatalf("got %s, want %s", got, want)
	}
	song := finished("ann", "song", "1", began)
	song.ObjectType = 2
	apply(finished("ann", "film", "1", began), finished("bob", "film", "1", began), finished("ann", "film", "2", began), song)
	await(3, 2)
	if _, err := c.Delete(t.Context(), &historyv1.DeleteRequest{Uid: "ann", Objects: []*historyv1.Object{{Id: "film", Type: 1}}}); err != nil {
		t.Fatal(err)
	}
	apply(finished("cid", "film", "1", began)) // counted after the delete
	await(4, 3)
	for body, want := range map[string]int{
		`{"objects":[` + strings.Repeat(film+",", 99) + film + `]}`:  http.StatusOK,
		`{"objects":[` + strings.Repeat(film+",", 100) + film + `]}`: http.StatusRequestEntityTooLarge,
		`{"objects":[` + film + `],"since":"2026-02-30"}`:            http.StatusUnprocessableEntity,
		`{"objects":[` + film + `],"since":"1970-01-02"}`:            http.StatusUnprocessableEntity,
		`{"objects":[{"id":"film","type":0}]}`:                       http.StatusUnprocessableEntity,
	} {
		if status, answer := h.backend(dir, "counts:read", body); status != want {
			t.Errorf("%.120s: %d %s, want %d", body, status, answer, want)
		}
	}
	for scope, want := range map[string]int{"": http.StatusForbidden, "plays:read history:read": http.StatusForbidden, "admin": http.StatusOK} {
		if status, answer := h.backend(dir, scope, `{"objects":[`+film+`]}`); status != want {
			t.Errorf("scope %q: %d %s, want %d", scope, status, answer, want)
		}
	}
}

// TestCountsAfterKills kills the process again and again while users complete plays. Each is repeated until it is
// acknowledged, and some after that. In the end each counts once.
func TestCountsAfterKills(t *testing.T) {
	const users, objects, sessions, rounds = 10, 3, 8, 4
	began := time.Now().Add(-time.Hour)
	l := &completions{T: t}
	for u := range users {
		for o := range objects {
			for s := range sessions {
				l.left = append(l.left, finished(fmt.Sprint("user", u), fmt.Sprint("film", o), fmt.Sprint(s), began.Add(time.Duration(s)*time.Minute)))
			}
		}
	}
	rand.Shuffle(len(l.left), func(i, j int) { l.left[i], l.left[j] = l.left[j], l.left[i] })
	dir := t.TempDir()
	for round := range rounds {
		p := start(t, dir)
		most := len(l.left) / 2
		if round == rounds-1 {
			most = len(l.left)
		}
		l.send(serviceAt(t, p.rpc), most, p.kill)
	}
	h := openWith(t, func(cfg *allinone.Config) { cfg.Dir, cfg.Counted = dir, countAll(t) })
	l.send(serviceAt(t, h.RPC()), len(l.left), func() {})
	h.clean(patience)
	for o := range objects {
		h.awaitTotal(fmt.Sprint("film", o), count.Sum{Plays: users * sessions, Viewers: users, Watched: users * sessions * 60_000})
	}
}

// completions are reports to send.
type completions struct {
	*testing.T
	left []*historyv1.Heartbeat
}

// send sends reports from four players until some were acknowledged, then ends the process. Left are those to send to
// the next one: the others, and a third again.
func (l *completions) send(c historyv1.HistoryServiceClient, most int, end func()) {
	l.Helper()
	all := l.left
	l.left = nil
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	acked := make(chan struct{}, len(all))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := i; n < len(all); n += 4 {
				_, err := c.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: all[n : n+1]}, grpc.WaitForReady(true))
				if err == nil {
					acked <- struct{}{}
				}
				if err != nil || rand.IntN(3) == 0 {
					mu.Lock()
					l.left = append(l.left, all[n])
					mu.Unlock()
				}
			}
		})
	}
	for range most {
		select {
		case <-acked:
		case <-ctx.Done():
			l.Fatal("reports were not acknowledged")
		}
	}
	end()
	cancel()
	wg.Wait()
}
