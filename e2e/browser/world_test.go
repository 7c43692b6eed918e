//go:build browser

package browser_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// world is an all-in-one that can restart at its address.
type world struct {
	*testing.T
	cfg   allinone.Config
	token string
	admin string // its admin port
	end   context.CancelFunc
	done  chan error
}

func newWorld(t *testing.T, settings ...func(*allinone.Config)) *world {
	t.Helper()
	t.Parallel() // tests mostly wait
	w := &world{T: t, cfg: allinone.Config{
		Dir: t.TempDir(), HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Drain: 8 * time.Second,
		UserRate: 1000, UserBurst: 1000, // tests send many requests
	}}
	for _, set := range settings {
		set(&w.cfg)
	}
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *world) start() {
	w.Helper()
	p, err := allinone.Open(w.Context(), w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.cfg.HTTP = p.HTTP() // also after a restart
	w.admin = p.Admin()
	if w.token, err = p.Token("demo", time.Hour); err != nil {
		w.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(w.Context()))
	w.end, w.done = end, make(chan error, 1)
	go func() { w.done <- p.Run(ctx) }()
}

// stop ends it like a signal. A second call does nothing.
func (w *world) stop() {
	w.Helper()
	if w.end == nil {
		return
	}
	w.end()
	w.end = nil
	if err := <-w.done; err != nil {
		w.Errorf("run: %v", err)
	}
}

func (w *world) at(path string) string { return "http://" + w.cfg.HTTP + path }

func (w *world) signedIn(path string) string { return w.at(path) + "#token=" + w.token }

// entry is an initial heartbeat.
type entry struct {
	id, title string
	typ       int
	position  time.Duration // of 10 minutes; all of it is a finish
	age       time.Duration
	episode   int // of the first season of a series
	image     string
	session   string
	length    time.Duration // default 10 minutes; below 0 for unknown
}

const length = 10 * time.Minute

func (e entry) beat() map[string]any {
	kind := "stop"
	if e.position == length {
		kind = "finish"
	}
	beat := map[string]any{
		"object": map[string]any{"id": e.id, "type": max(1, e.typ)}, "kind": kind, "device": "Living room",
		"position_ms": e.position.Milliseconds(), "duration_ms": length.Milliseconds(),
		"event_time": time.Now().Add(-e.age).UTC().Format(time.RFC3339Nano),
	}
	meta := map[string]string{}
	if e.title != "" {
		meta["title"] = e.title
	}
	if e.episode > 0 {
		meta["series"], meta["season"], meta["episode"] = "Harbour Lights", "1", strconv.Itoa(e.episode)
	}
	if e.image != "" {
		meta["image"] = e.image
	}
	if len(meta) > 0 {
		beat["meta"] = meta
	}
	if e.session != "" {
		beat["session"] = e.session
	}
	if e.length != 0 {
		beat["duration_ms"] = max(e.length, 0).Milliseconds()
	}
	return beat
}

// report stores entries like another device.
func (w *world) report(entries ...entry) {
	w.Helper()
	beats := make([]map[string]any, len(entries))
	for i, e := range entries {
		beats[i] = e.beat()
	}
	body, err := json.Marshal(map[string]any{"heartbeats": beats})
	if err != nil {
		w.Fatal(err)
	}
	var answer struct{ Results []struct{ Status string } }
	w.ask(http.MethodPost, "/v1/heartbeats", body, &answer)
	for i, r := range answer.Results {
		if r.Status != "stored" {
			w.Fatalf("%v: %s", entries[i], r.Status)
		}
	}
}

type record struct {
	PositionMS int64 `json:"position_ms"`
	DurationMS int64 `json:"duration_ms"`
	ResumeMS   int64 `json:"resume_ms"`
	FurthestMS int64 `json:"furthest_ms"`
	Plays      int
	Completed  bool
	State      string
	Session    string
	Device     string
}

func (w *world) ids() (ids []string) {
	w.Helper()
	var page struct {
		Items []struct{ Object struct{ ID string } }
	}
	w.ask(http.MethodGet, "/v1/history?limit=100", nil, &page)
	for _, it := range page.Items {
		ids = append(ids, it.Object.ID)
	}
	return ids
}

// point returns an object's record, or nil.
func (w *world) point(id string) *record {
	w.Helper()
	var found struct{ Items []struct{ Record *record } }
	w.ask(http.MethodPost, "/v1/history/lookup", fmt.Appendf(nil, `{"objects":[{"id":%q,"type":1}]}`, id), &found)
	return found.Items[0].Record
}

func (w *world) ask(method, path string, body []byte, answer any) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.at(path), bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("%s %s: %d, %v", method, path, resp.StatusCode, err)
	}
}

// eventually waits for a condition, and fails with its name.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for !holds() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			w.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// patience allows for a busy machine.
const patience = 40 * time.Second
