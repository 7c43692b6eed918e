package allinone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// listener is a device that receives changes.
type listener struct {
	*here
	conn *websocket.Conn
	told chan string // changes and answers in order of arrival
}

// listen connects and waits for the resync.
func (h *here) listen(ctx context.Context) *listener {
	h.Helper()
	l := &listener{here: h, conn: h.dialQuery(ctx, "?push=true"), told: make(chan string, 1000)}
	go func() {
		for {
			_, text, err := l.conn.Read(ctx)
			if err != nil {
				close(l.told)
				return
			}
			l.told <- string(text)
		}
	}()
	l.hears(`{"push":{"resync":true}}`)
	return l
}

// hears waits for a message with the text, and refuses any other.
func (l *listener) hears(part string) {
	l.Helper()
	select {
	case got, open := <-l.told:
		if !open || !strings.Contains(got, part) {
			l.Fatalf("told %s, want %s", got, part)
		}
	case <-time.After(patience):
		l.Fatalf("%s did not come within %v", part, patience)
	}
}

func (l *listener) report(ctx context.Context, id string, position int) {
	l.Helper()
	text := fmt.Sprintf(`{"seq":1,"heartbeats":[%s]}`, heartbeat(id, position))
	if err := l.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		l.Fatal(err)
	}
	l.hears(`"results":[{"status":"stored"}]`)
}

func heartbeat(id string, position int) string {
	return fmt.Sprintf(`{"object":{"id":%q,"type":1},"kind":"pause","position_ms":%d,"duration_ms":600000,"event_time":%q}`,
		id, position, time.Now().UTC().Format(time.RFC3339Nano))
}

// send makes a call such as "POST /v1/heartbeats" with one or more lines of JSON.
func (h *here) send(ctx context.Context, call, body string) string {
	h.Helper()
	method, path, _ := strings.Cut(call, " ")
	r, err := http.NewRequestWithContext(ctx, method, "http://"+h.HTTP()+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	r.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(body, "\n") {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil || resp.StatusCode >= 300 {
		h.Fatalf("%s: %s: %s, %v", call, resp.Status, &text, err)
	}
	return text.String()
}

// TestPush: every write reaches the user's other devices. A device receives no changes of its own, which would
// otherwise precede the other device's change. TestEveryWriteIsTold of package rpc and BenchmarkPush cover the delay.
func TestPush(t *testing.T) {
	h := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	tv, phone := h.listen(ctx), h.listen(ctx)

	tv.report(ctx, "film", 61000)
	phone.hears(`"object":{"id":"film","type":1},"position_ms":61000`)
	phone.report(ctx, "film", 62000)
	tv.hears(`"position_ms":62000`)

	both := func(part string) {
		t.Helper()
		tv.hears(part)
		phone.hears(part)
	}
	h.send(ctx, "POST /v1/heartbeats", `{"heartbeats":[`+heartbeat("book", 5000)+`]}`)
	both(`"object":{"id":"book","type":1},"position_ms":5000`)
	h.send(ctx, "DELETE /v1/history/1/film", "")
	both(`"removed":[{"id":"film","type":1}]`)
	var row map[string]any
	if err := json.Unmarshal([]byte(h.send(ctx, "GET /v1/export", "")), &row); err != nil {
		t.Fatal(err)
	}
	row["object"].(map[string]any)["id"] = "taken-over"
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	h.send(ctx, "POST /v1/import", string(text)+"\n")
	both(`"object":{"id":"taken-over","type":1}`)
	h.send(ctx, "DELETE /v1/history", "")
	both(`{"push":{"resync":true}}`)
	h.send(ctx, "POST /v1/heartbeats", `{"heartbeats":[`+heartbeat("last", 7000)+`]}`)
	both(`"object":{"id":"last","type":1},"position_ms":7000`)
}

// BenchmarkPush measures from a heartbeat to its change on another device, mostly the wait for further changes.
func BenchmarkPush(b *testing.B) {
	h := open(b, b.TempDir())
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	tv, phone := h.listen(ctx), h.listen(ctx)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		tv.report(ctx, "film", n)
		phone.hears(fmt.Sprintf(`"position_ms":%d,`, n))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms")
}
