package api_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestTheBudgetOfAUser checks that a user over the limit gets 429 with a retry delay and the remaining
// requests. Other users are unaffected.
func TestTheBudgetOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		e := configured(t, api.Config{Service: s, Limit: limit.New(0.5, 3)})
		for _, left := range []string{"2", "1", "0"} {
			w := e.do(t, "GET /v1/history", "")
			if h := w.Header(); w.Code != http.StatusOK || h.Get("RateLimit-Remaining") != left || h.Get("RateLimit-Limit") != "3" || h.Get("Retry-After") != "" {
				t.Errorf("%d %v, want %s left", w.Code, h, left)
			}
		}
		time.Sleep(500 * time.Millisecond) // bubble time
		w := e.do(t, "DELETE /v1/history", "")
		wantProblem(t, w, 429)
		if h := w.Header(); h.Get("Retry-After") != "2" || h.Get("RateLimit-Remaining") != "0" || h.Get("RateLimit-Reset") != "6" {
			t.Errorf("headers %v", h)
		}
		if len(s.asked) != 3 {
			t.Errorf("the service was asked %d times", len(s.asked))
		}
		if w := e.send(request(t, "u2", "GET /v1/history", nil)); w.Code != http.StatusOK {
			t.Errorf("another user: %d", w.Code)
		}
		time.Sleep(2 * time.Second) // bubble time
		if w := e.do(t, "GET /v1/history", ""); w.Code != http.StatusOK {
			t.Errorf("after the wait: %d", w.Code)
		}
	})
}

func TestALargeUploadCostsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := configured(t, api.Config{Service: storing(), Limit: limit.New(1, 5)})
		w := e.do(t, "POST /v1/heartbeats", upload(slices.Repeat([]string{beat}, 500)...))
		if h := w.Header(); w.Code != http.StatusOK || h.Get("RateLimit-Remaining") != "0" || h.Get("RateLimit-Reset") != "5" {
			t.Fatalf("%d %v %s", w.Code, h, w.Body)
		}
		wantProblem(t, e.do(t, "POST /v1/heartbeats", upload(beat)), 429)
		time.Sleep(time.Second) // bubble time
		if w := e.do(t, "POST /v1/heartbeats", upload(beat)); w.Code != http.StatusOK {
			t.Errorf("a second later: %d", w.Code)
		}
	})
}

// TestNobodyCostsNothing checks that requests without a token consume no rate limit.
func TestNobodyCostsNothing(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Limit: limit.New(1, 1)})
	for range 3 {
		r := request(t, "u1", "GET /v1/history", nil)
		r.Header.Del("Authorization")
		wantProblem(t, e.send(r), 401)
	}
	if w := e.do(t, "GET /v1/history", ""); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTheBudgetOfTheStream(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}, Stream: func(http.ResponseWriter, *http.Request) error {
		return errors.Join(&limit.Exceeded{Wait: 1500 * time.Millisecond})
	}})
	w := e.do(t, "GET /v1/stream", "")
	if wantProblem(t, w, 429); w.Header().Get("Retry-After") != "2" {
		t.Errorf("headers %v", w.Header())
	}
}

const beat = `{"object":{"id":"100","type":1},"kind":"stop","position_ms":61000,"event_time":"2026-03-01T20:15:00Z"}`

func upload(beats ...string) string {
	return `{"heartbeats":[` + strings.Join(beats, ",") + `]}`
}

func storing() *service {
	return &service{answer: func(_ context.Context, req any) (any, error) {
		if in, ok := req.(*historyv1.ImportRequest); ok {
			return &historyv1.ImportResponse{Statuses: slices.Repeat([]historyv1.Status{historyv1.Status_STATUS_STORED}, len(in.GetRecords()))}, nil
		}
		resp := &historyv1.ApplyResponse{}
		for range req.(*historyv1.ApplyRequest).GetHeartbeats() {
			resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
		}
		return resp, nil
	}}
}

func TestHeartbeats(t *testing.T) {
	s := storing()
	w := newEdge(t, s).do(t, "POST /v1/heartbeats", `{"sent_at":"2026-03-01T21:15:01+01:00","records":false,"heartbeats":[`+beat+`]}`)
	if got, want := w.Body.String(), `{"results":[{"status":"stored"}],"first_of_day":false}`+"\n"; w.Code != http.StatusOK || got != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, got, want)
	}
	want := &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
		Uid: "u1", ObjectId: "100", ObjectType: 1, Kind: historyv1.Kind_KIND_STOP,
		PositionMs: 61000, EventTimeMs: 1772396100000, SentAtMs: 1772396101000, Day: &historyv1.DayCheck{Zone: "+01:00"},
	}}}
	if len(s.asked) != 1 || !proto.Equal(s.asked[0].(proto.Message), want) {
		t.Errorf("asked %v, want %v", s.asked, want)
	}
}

func TestHeartbeatsStoresTheGoodOnes(t *testing.T) {
	s := storing()
	w := newEdge(t, s).do(t, "POST /v1/heartbeats", upload(beat, `{"object":{"id":"100","type":1},"kind":"stop","position_ms":"x"}`, beat))
	const want = `{"results":[{"status":"stored"},{"status":"invalid","error":{"field":"position_ms",` +
		`"reason":"want a whole number of milliseconds, 0 to 2592000000 (30 days)"}},{"status":"stored"}],"first_of_day":false}` + "\n"
	if got := w.Body.String(); w.Code != http.StatusOK || got != want {
		t.Errorf("got %d %s, want 200 %s", w.Code, got, want)
	}
}

func TestHeartbeatsWithNothingForTheService(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{upload(), `{"results":[],"first_of_day":false,"now_ms":1772396100250}`},
		{upload("null"), `{"results":[{"status":"invalid","error":{"field":"heartbeats","reason":"want an object"}}],"first_of_day":false,"now_ms":1772396100250}`},
		{upload(strings.Replace(beat, "100", `\udfff`, 1)), `{"results":[{"status":"invalid","error":{"field":"object.id","reason":"want a string of whole characters"}}],"first_of_day":false,"now_ms":1772396100250}`},
	} {
		s := &service{answer: func(context.Context, any) (any, error) { return &historyv1.ApplyResponse{NowMs: 1772396100250}, nil }}
		w := newEdge(t, s).do(t, "POST /v1/heartbeats", tt.body)
		if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != tt.want {
			t.Errorf("%s: got %d %s, want %s", tt.body, w.Code, got, tt.want)
		}
		for _, req := range s.asked { // empty calls only ask for the time
			if len(req.(*historyv1.ApplyRequest).Heartbeats) > 0 {
				t.Errorf("%s: asked %v", tt.body, req)
			}
		}
	}
}

func TestHeartbeatsRefusesTheRequest(t *testing.T) {
	tests := []struct {
		name, body, media string
		status            int
		detail            string
	}{
		{"no JSON", "hello", "", 400, "malformed JSON at byte 0: want a value"},
		{"no body", "", "", 400, "malformed JSON at byte 0: want a value"},
		{"invalid UTF-8", upload(strings.Replace(beat, "100", "\xff", 1)), "", 400, "invalid UTF-8"},
		{"uid in the body", `{"uid":"u2","heartbeats":[]}`, "", 422, "body.uid: unknown field"},
		{"uid in a heartbeat", upload(strings.Replace(beat, "{", `{"uid":"u2",`, 1)), "", 422, "body.heartbeats[0].uid: unknown field"},
		{"sent_at without offset", `{"sent_at":"2026-03-01T20:15:00","heartbeats":[]}`, "", 422, "body.sent_at: want RFC 3339"},
		{"1,001 heartbeats", upload(slices.Repeat([]string{beat}, 1001)...), "", 413, "at most 1000"},
		{"1 MiB and a byte", strings.Repeat(" ", 1<<20-len(upload())+1) + upload(), "", 413, "at most 1048576 bytes"},
		{"a form", upload(), "application/x-www-form-urlencoded", 415, "want application/json"},
		{"no media type", upload(), "json; ;", 415, "want application/json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := storing()
			r := request(t, "u1", "POST /v1/heartbeats", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.media)
			p := wantProblem(t, newEdge(t, s).send(r), tt.status)
			if !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("detail %q, want it to say %q", p.Detail, tt.detail)
			}
			if len(s.asked) > 0 {
				t.Errorf("the service was asked %v", s.asked)
			}
		})
	}
}

var media = map[string]string{"heartbeats": "application/json", "import": "application/x-ndjson"}

func compressed(t *testing.T, path, coding string, body io.Reader) *http.Request {
	t.Helper()
	r := request(t, "u1", "POST /v1/"+path, body)
	r.Header.Set("Content-Type", media[path])
	r.Header.Set("Content-Encoding", coding)
	return r
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestUnknownCodings checks that unknown codings are refused by name, not as invalid JSON.
func TestUnknownCodings(t *testing.T) {
	for path := range media {
		for coding, status := range map[string]int{"deflate": 415, "br": 415, "gzip, gzip": 415, "Identity": 200} {
			w := newEdge(t, storing()).send(compressed(t, path, coding, strings.NewReader(upload(beat))))
			if w.Code != status || status == 415 && w.Header().Get("Accept-Encoding") != "gzip" {
				t.Errorf("%s of %s: got %d %s, %v, want %d", path, coding, w.Code, w.Body, w.Header(), status)
			}
		}
	}
}

// TestCompressedUploads checks that gzip bodies obey the limits for plain ones, at any compression ratio.
func TestCompressedUploads(t *testing.T) {
	const limited = 1 << 20
	noise := make([]byte, limited) // does not compress
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	for path, body := range map[string]string{"heartbeats": upload(beat), "import": itemJSON + "\n" + exportJSON} {
		e, z := configured(t, api.Config{Service: storing(), Limit: limit.New(1e6, 1e6)}), packed(t, body)
		padding, over := packed(t, strings.Repeat(" ", limited-len(body)-1)+"\n"), http.StatusRequestEntityTooLarge
		if path == "import" {
			over = http.StatusOK // imports have another limit
		}
		bomb := strings.Repeat(padding, 1000)
		for _, tt := range []struct {
			name, coding, body string
			status             int
		}{
			{"whole", "gzip", z, 200},
			{"by its other name", "X-GZIP", z, 200},
			{"in parts", "gzip", padding + z, 200},
			{"a byte too many", "gzip", padding + packed(t, " ") + z, over},
			{"a bomb", "gzip", bomb, 413},
			{"dense", "gzip", strings.Repeat(packed(t, strings.Repeat(body+"\n", limited/len(body))), 4), 413},
			{"many lines", "gzip", packed(t, string(noise[:1<<15])+strings.Repeat("\n", 1<<20)), 413},
			{"cut off", "gzip", z[:len(z)-9], 400},
			{"without its sum", "gzip", z[:len(z)-3], 400},
			{"damaged", "gzip", z[:12] + "\xff\xff\xff" + z[15:], 400},
			{"something behind it", "gzip", z + "more", 400},
			{"plain", "gzip", body, 400},
			{"nothing", "gzip", "", 400},
		} {
			began := &counted{from: strings.NewReader(tt.body)}
			w := e.send(compressed(t, path, tt.coding, began))
			if w.Code != tt.status {
				t.Errorf("%s, %s: got %d %.200s, want %d", path, tt.name, w.Code, w.Body, tt.status)
			}
			if began.n > 2*limited {
				t.Errorf("%s, %s: read %d bytes", path, tt.name, began.n)
			}
		}
		for range 20 { // readers are reused
			if w := e.send(compressed(t, path, "gzip", strings.NewReader(z))); w.Code != 200 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
}

type counted struct {
	from io.Reader
	n    int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.n += n
	return n, err
}

func TestHeartbeatsOfOneMebibyte(t *testing.T) {
	body := strings.Repeat(" ", 1<<20-len(upload(beat))) + upload(beat)
	r := request(t, "u1", "POST /v1/heartbeats", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if w := newEdge(t, storing()).send(r); w.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", w.Code, w.Body)
	}
}

type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

func TestHeartbeatsBodyThatDoesNotArrive(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
	}{
		{io.ErrUnexpectedEOF, 408}, // a client must not blame the reports
		{fmt.Errorf("read tcp 10.0.0.1:8080: %w", os.ErrDeadlineExceeded), 408},
	} {
		p := wantProblem(t, newEdge(t, storing()).send(request(t, "u1", "POST /v1/heartbeats", brokenBody{tt.err})), tt.status)
		if p.Detail != "body cut off or damaged: not all of it arrived" {
			t.Errorf("%v: got %q", tt.err, p.Detail)
		}
	}
}

func TestHeartbeatsAnswerThatDoesNotFit(t *testing.T) {
	e := newEdge(t, answering(&historyv1.ApplyResponse{}, nil))
	wantProblem(t, e.do(t, "POST /v1/heartbeats", upload(beat)), 500)
	if log := e.log.String(); !strings.Contains(log, "0 statuses") {
		t.Errorf("log %q does not say why", log)
	}
}

// TestBodiesAreWhatTheDocumentSays checks that the decoders accept exactly the documented fields; they are
// written separately.
func TestBodiesAreWhatTheDocumentSays(t *testing.T) {
	schemas := fetchDocument(t).Components.Schemas
	values := map[string]string{
		"sent_at": `"2026-03-01T20:15:00Z"`, "ack": `"cached"`, "records": "false", "heartbeats": "[%s]",
		"object": `{"id":"1","type":1}`, "kind": `"start"`, "position_ms": "0", "duration_ms": "1", "event_time": `"2026-03-01T20:15:00Z"`,
		"session": `"s"`, "device": `"d"`, "failed": "true", "started_at": `"2026-03-01T20:14:00Z"`,
		"watched_ms": "1", "speed": "1.5", "if_match": `"1f"`, "incognito": "true", "meta": `{"a":"b"}`, "removed_meta": `["c"]`, "objects": `[{"id":"1","type":1}]`,
		"first_flag": `"2026-03-01"`, "time_zone": `"Europe/Berlin"`, "type": "1", "since": `"2026-03-01T20:15:00Z"`, "until": `"2026-03-01T20:15:00Z"`,
		"dismissed": "false", "mark": `"reset"`, "only_recorded": "true", "unless_completed": "true",
		"cursor": `"abc"`,
	}
	write := func(schema string, but ...string) string {
		var fields []string
		for name := range schemas[schema].Properties {
			if slices.Contains(but, name) {
				continue
			}
			fields = append(fields, fmt.Sprintf("%q:%s", name, values[name]))
		}
		return "{" + strings.Join(fields, ",") + "}"
	}
	full := fmt.Sprintf(write("HeartbeatsBody"), write("Heartbeat"))
	s := storing()
	w := newEdge(t, s).do(t, "POST /v1/heartbeats", full)
	var got struct{ Results []struct{ Status string } }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Results) != 1 || got.Results[0].Status != "stored" {
		t.Fatalf("%s: got %d %s", full, w.Code, w.Body)
	}
	points := answering(&historyv1.PointsResponse{Items: []*historyv1.Item{{}}}, nil)
	if w := newEdge(t, points).do(t, "POST /v1/history/lookup", write("LookupBody")); w.Code != http.StatusOK {
		t.Errorf("lookup: got %d %s", w.Code, w.Body)
	}
	if w := newEdge(t, &service{}).do(t, "POST /v1/continue/dismiss", write("DismissBody")); w.Code != http.StatusOK {
		t.Errorf("dismiss: got %d %s", w.Code, w.Body)
	}
	mark := answering(&historyv1.MarkResponse{Statuses: make([]historyv1.Status, 1), Records: []*historyv1.Item{{}}}, nil)
	if w := newEdge(t, mark).do(t, "POST /v1/history/mark", write("MarkBody")); w.Code != http.StatusOK {
		t.Errorf("mark: got %d %s", w.Code, w.Body)
	}
	for _, body := range []string{write("DeleteBody", "objects"), write("DeleteBody", "type", "since", "until", "cursor")} { // one of the two forms
		if w := newEdge(t, &service{}).do(t, "POST /v1/history/delete", body); w.Code != http.StatusOK {
			t.Errorf("delete %s: got %d %s", body, w.Code, w.Body)
		}
	}
}
