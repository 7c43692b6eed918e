package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// stage is an all-in-one for players, without a rate limit.
func stage(t *testing.T) *here {
	t.Helper()
	return openWith(t, func(c *allinone.Config) {
		c.Dir, c.UserRate, c.UserBurst = t.TempDir(), 1e6, 1e6
	})
}

// player is a user's device that reports by requests or over a stream.
type player struct {
	*testing.T
	stage       *here
	token, door string
	conn        *websocket.Conn
	seq         int
}

func (h *here) player(t *testing.T, uid, door string) *player {
	t.Helper()
	token, err := h.Token(uid, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &player{T: t, stage: h, token: token, door: door}
}

type thing struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

// beat is a heartbeat in a player's JSON.
type beat struct {
	Object    thing             `json:"object"`
	Kind      string            `json:"kind"`
	Position  int64             `json:"position_ms"`
	Duration  int64             `json:"duration_ms,omitempty"`
	EventTime string            `json:"event_time"`
	Session   string            `json:"session,omitempty"`
	Device    string            `json:"device,omitempty"`
	StartedAt string            `json:"started_at,omitempty"`
	Watched   int64             `json:"watched_ms,omitempty"`
	Speed     float64           `json:"speed,omitempty"`
	IfMatch   string            `json:"if_match,omitempty"`
	Failed    bool              `json:"failed,omitempty"`
	Incognito bool              `json:"incognito,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`
}

// seen is a record in a player's JSON.
type seen struct {
	Object      thing     `json:"object"`
	Position    int64     `json:"position_ms"`
	Duration    int64     `json:"duration_ms"`
	Furthest    int64     `json:"furthest_ms"`
	Plays       int       `json:"plays"`
	State       string    `json:"state"`
	EventTime   time.Time `json:"event_time"`
	CompletedAt time.Time `json:"completed_at"`
	Session     string    `json:"session"`
	Watched     int64     `json:"watched_ms"`
	ETag        string    `json:"etag"`
}

type result struct {
	Status string `json:"status"`
	Record *seen  `json:"record"`
	Error  *struct {
		Field string `json:"field"`
	} `json:"error"`
}

// answer is a response of either transport.
type answer struct {
	Seq     int             `json:"seq"`
	Results []result        `json:"results"`
	Error   *failure        `json:"error"`
	Status  json.RawMessage `json:"status"` // of a problem
	Errors  []failure       `json:"errors"`
}

type failure struct {
	Code  string `json:"code"`
	Field string `json:"field"`
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func minutes(n float64) int64 { return int64(n * 60_000) }

// at is a report of film 7, an hour long, made ago before now.
func at(ago time.Duration, kind string, position int64) beat {
	return beat{
		Object: thing{"7", 1}, Kind: kind, Position: position, Duration: minutes(60),
		EventTime: stamp(time.Now().Add(-ago)), Session: "s1", Device: "tv",
	}
}

// of puts a report into a session of the given age and watched time.
func (b beat) of(session string, age time.Duration, watched int64) beat {
	at, _ := time.Parse(time.RFC3339, b.EventTime)
	b.Session, b.StartedAt, b.Watched = session, stamp(at.Add(-age)), watched
	return b
}

// send reports through the player's transport and expects these statuses. Like a player it retries what a busy
// edge did not answer: unchanged then counts as stored.
func (p *player) send(want string, beats ...beat) []result {
	p.Helper()
	body, err := json.Marshal(map[string]any{"heartbeats": beats, "records": true})
	if err != nil {
		p.Fatal(err)
	}
	a, again := p.post(string(body)), false
	for deadline := time.Now().Add(patience); a.busy() && time.Now().Before(deadline); again = true {
		a = p.post(string(body))
	}
	statuses := make([]string, len(a.Results))
	for i, r := range a.Results {
		if statuses[i] = r.Status; again && r.Status == "unchanged" {
			statuses[i] = "stored"
		}
	}
	if got := strings.Join(statuses, " "); got != want {
		p.Fatalf("%.1000s was answered %.1000s, want %.1000s", body, fmt.Sprintf("%+v", a), want)
	}
	return a.Results
}

func (a answer) busy() bool {
	status := string(a.Status)
	return status == "503" || status == "504" || a.Error != nil && a.Error.Code == "unavailable"
}

func (p *player) post(body string) (a answer) {
	p.Helper()
	text := ""
	if p.door == "stream" {
		text = p.exchange(body)
	} else {
		_, text = p.ask("POST /v1/heartbeats", body)
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		p.Fatalf("%s: %v", text, err)
	}
	return a
}

func (p *player) exchange(body string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if p.conn == nil {
		conn, _, err := websocket.Dial(ctx, "ws://"+p.stage.HTTP()+"/v1/stream", &websocket.DialOptions{ //nolint:bodyclose // websocket needs no close
			Subprotocols: []string{"playhead.v1.json", "bearer." + p.token},
		})
		if err != nil {
			p.Fatal(err)
		}
		conn.SetReadLimit(1 << 20)
		p.conn = conn
		p.Cleanup(func() { _ = conn.CloseNow() })
	}
	p.seq++
	message, err := json.Marshal(p.seq)
	if err == nil {
		err = p.conn.Write(ctx, websocket.MessageText, []byte(`{"seq":`+string(message)+`,`+strings.TrimPrefix(body, "{")))
	}
	if err != nil {
		p.Fatal(err)
	}
	_, text, err := p.conn.Read(ctx)
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// ask makes a request such as "GET /v1/history".
func (p *player) ask(target, body string) (status int, text string) {
	p.Helper()
	method, path, _ := strings.Cut(target, " ")
	r, err := http.NewRequestWithContext(p.Context(), method, "http://"+p.stage.HTTP()+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// sees reads film 7, nil if missing.
func (p *player) sees() *seen {
	p.Helper()
	status, text := p.ask("GET /v1/history/1/7", "")
	if status == http.StatusNotFound {
		return nil
	}
	var r seen
	if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
		p.Fatalf("%d %s: %v", status, text, err)
	}
	return &r
}
