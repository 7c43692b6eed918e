package allinone_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/bff/token"
)

const (
	abusedSecret = "a secret of an edge that is abused"
	abusedFor    = "players"
	someBeat     = `{"object":{"id":"100","type":1},"kind":"progress","position_ms":60000,"event_time":"2026-01-01T00:00:00Z"}`
)

// attack is a malicious or careless request: its action, the expected answer, and the series that counts it.
type attack struct {
	do      func(*abused) string
	meets   string
	counted string
}

// TestAbuse: each attack is refused and counted, and a well-behaved user notices nothing.
func TestAbuse(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]attack{
		"token for another audience": {as(jwt.MapClaims{"sub": "eve", "aud": "admins"}), "401", requests("GET /v1/history", 401)},
		"token that has expired":     {as(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": 1}), "401", requests("GET /v1/history", 401)},
		"token that never expires":   {as(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": nil}), "401", requests("GET /v1/history", 401)},
		"token of nobody":            {as(jwt.MapClaims{"sub": "eve\n", "aud": abusedFor}), "401", requests("GET /v1/history", 401)},
		"alg none":                   {unsigned, "401", requests("GET /v1/history", 401)},
		"a form of another site": {request("POST /v1/history/delete HTTP/1.1\r\nHost: edge\r\nOrigin: https://evil.example\r\nCookie: token=x\r\n" +
			"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"), "401", requests("POST /v1/history/delete", 401)},
		"another content type":                   {signed("POST", "/v1/heartbeats", "Content-Type: application/x-www-form-urlencoded\r\n", "{}"), "415", requests("POST /v1/heartbeats", 415)},
		"a uid in the body":                      {signed("POST", "/v1/heartbeats", "", `{"uid":"bob","heartbeats":[]}`), "422", requests("POST /v1/heartbeats", 422)},
		"10,000 events":                          {signed("POST", "/v1/heartbeats", "", many(10_000)), "413", requests("POST /v1/heartbeats", 413)},
		"invalid UTF-8":                          {signed("POST", "/v1/heartbeats", "", "{\"heartbeats\":[],\"ack\":\"\xff\xfe\"}"), "400", requests("POST /v1/heartbeats", 400)},
		"an unknown operation":                   {signed("POST", "/v1/heartbeats", "", `{"heartbeats":[],"op":"drop"}`), "422", requests("POST /v1/heartbeats", 422)},
		"an unknown method":                      {signed("TRACE", "/v1/history", "", ""), "405", requests("/", 405)},
		"path traversal":                         {signed("DELETE", "/v1/history/1/../../history", "", ""), "404", requests("/", 404)},
		"path traversal, files":                  {signed("GET", "/assets/..%2f..%2f..%2fetc%2fpasswd", "", ""), "404", requests("/", 404)},
		"giant headers":                          {signed("GET", "/v1/history", "X: "+strings.Repeat("x", 32<<10)+"\r\n", ""), "431", "playhead_edge_incomplete_connections_total"},
		"no HTTP":                                {request("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"), "400", "playhead_edge_incomplete_connections_total"},
		"frames: giant":                          {frames(strings.Repeat(" ", 10<<20)), "1009", closedWith(1009)},
		"frames: 10,000 events":                  {frames(`{"seq":1,` + many(10_000)[1:]), `"code":"too_large"`, `playhead_ws_messages_total{answer="too_large"}`},
		"frames: 1,001 events":                   {frames(`{"seq":1,"heartbeats":[` + strings.Repeat("{},", 1000) + `{}]}`), `"code":"too_large"`, `playhead_ws_messages_total{answer="too_large"}`},
		"frames: invalid UTF-8":                  {frames("{\"seq\":1,\"heartbeats\":[],\"ack\":\"\xff\xfe\"}"), "1007", closedWith(1007)},
		"frames: no JSON":                        {frames("DROP TABLE history"), "1007", closedWith(1007)},
		"frames: an unknown operation":           {frames(`{"seq":1,"op":"subscribe","heartbeats":[]}`), `"code":"invalid"`, `playhead_ws_messages_total{answer="invalid"}`},
		"a flood of messages":                    {flood, "1008", closedWith(1008)},
		"a flood of requests":                    {requestFlood, "429", requests("GET /v1/history", 429)},
		"a flood of connections":                 {connectionFlood, "429", requests("GET /v1/stream", 429)},
		"an open connection whose token expires": {expiring, "4401", closedWith(4401)},
		"a page of another site":                 {otherSite, "403", requests("GET /v1/stream", 403)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newAbused(t)
			before := x.count(a.counted)
			if got := a.do(x); !strings.Contains(got, a.meets) {
				t.Errorf("met %.300q, want %s", got, a.meets)
			}
			x.await(a.counted, before)
			x.innocent()
		})
	}
}

// TestNothingIsReflected: the edge never repeats input that a page would run as a script.
func TestNothingIsReflected(t *testing.T) {
	x := newAbused(t)
	for _, path := range []string{"/%3Cscript%3Ealert(1)%3C/script%3E", "/v1/history?cursor=%3Cscript%3E", "/v1/history/1/%3Cscript%3E"} {
		got := signed("GET", path, "X-Request-Id: <script>alert(1)</script>\r\n", "")(x)
		if strings.Contains(got, "<script") || !strings.Contains(got, "application/problem+json") || !strings.Contains(got, "nosniff") {
			t.Errorf("%s: answered %q", path, got)
		}
	}
}

func requests(route string, status int) string {
	return fmt.Sprintf(`playhead_api_requests_total{route=%q,status="%d"}`, route, status)
}

func closedWith(code int) string {
	return fmt.Sprintf(`playhead_ws_closed_connections_total{code="%d"}`, code)
}

func many(n int) string {
	return `{"heartbeats":[` + strings.Repeat(someBeat+",", n-1) + someBeat + `]}`
}

func request(text string) func(*abused) string { return func(x *abused) string { return x.say(text) } }

func signed(method, path, header, body string) func(*abused) string {
	return func(x *abused) string {
		return x.say(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
			method, path, x.eve(), header, len(body), body))
	}
}

func as(claims jwt.MapClaims) func(*abused) string {
	return func(x *abused) string {
		return x.say("GET /v1/history HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer " + x.token(claims) + "\r\n\r\n")
	}
}

func unsigned(x *abused) string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": time.Now().Add(time.Hour).Unix()}).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		x.Fatal(err)
	}
	return x.say("GET /v1/history HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer " + text + "\r\n\r\n")
}

// stream connects; a refusal is returned as text.
func (x *abused) stream(token string, header http.Header) (*websocket.Conn, string) {
	x.Helper()
	conn, resp, err := websocket.Dial(x.Context(), "ws://"+x.HTTP()+"/v1/stream", &websocket.DialOptions{ //nolint:bodyclose // it is in memory
		Subprotocols: []string{"playhead.v1.json", "bearer." + token}, HTTPHeader: header,
	})
	switch {
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, resp.Status
	case err != nil:
		x.Fatal(err)
	}
	x.Cleanup(func() { _ = conn.CloseNow() })
	return conn, ""
}

// frames sends one message and returns the answer or the close status.
func frames(text string) func(*abused) string {
	return func(x *abused) string {
		conn, refused := x.stream(x.eve(), nil)
		if conn == nil {
			return refused
		}
		go func() { _ = conn.Write(x.Context(), websocket.MessageText, []byte(text)) }() // the edge may cut it off
		return next(x, conn)
	}
}

func next(x *abused, conn *websocket.Conn) string {
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	_, text, err := conn.Read(ctx)
	if bye, ok := errors.AsType[websocket.CloseError](err); ok {
		return fmt.Sprint(int(bye.Code))
	}
	return fmt.Sprint(string(text), err)
}

func flood(x *abused) (last string) {
	conn, refused := x.stream(x.eve(), nil)
	for range 1000 {
		if conn == nil || !strings.HasPrefix(last, "{") && last != "" {
			return refused + last
		}
		_ = conn.Write(x.Context(), websocket.MessageText, []byte(`{"seq":1,"heartbeats":[]}`)) // the answer says more than an error
		last = next(x, conn)
	}
	return last
}

func requestFlood(x *abused) (last string) {
	for range 200 {
		if last = signed("GET", "/v1/history", "", "")(x); !strings.HasPrefix(last, "HTTP/1.1 200") {
			return last
		}
	}
	return last
}

func connectionFlood(x *abused) (refused string) {
	for range 200 {
		if _, refused = x.stream(x.eve(), nil); refused != "" {
			return refused
		}
	}
	return refused
}

// expiring connects with a token shortly before its expiry. It tries a longer-lived one if that was too short.
func expiring(x *abused) string {
	for ttl := 2 * time.Second; ; ttl *= 2 {
		conn, refused := x.stream(x.token(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": time.Now().Add(ttl - token.Leeway).Unix()}), nil)
		switch {
		case conn != nil:
			return next(x, conn)
		case ttl > patience/4:
			return refused
		}
	}
}

func otherSite(x *abused) string {
	_, refused := x.stream(x.eve(), http.Header{"Origin": {"https://evil.example"}})
	return refused
}

// abused is an all-in-one with its metrics.
type abused struct {
	*testing.T
	*allinone.Process
	registry *prometheus.Registry
}

func newAbused(t *testing.T) *abused {
	t.Helper()
	cfg := config(t.TempDir())
	cfg.SecretFile, cfg.Audience, cfg.Registry = written(t, abusedSecret), abusedFor, prometheus.NewRegistry()
	return &abused{t, allinonetest.Start(t, cfg), cfg.Registry}
}

// count returns a series' value, 0 without one.
func (x *abused) count(series string) (n float64) {
	families, err := x.registry.Gather()
	if err != nil {
		x.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			x.Fatal(err)
		}
	}
	for line := range strings.Lines(text.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(value, &n) // a number
		}
	}
	return n
}

// await waits until a series has increased, which may follow the answer.
func (x *abused) await(series string, before float64) {
	x.Helper()
	for end := time.Now().Add(patience); x.count(series) <= before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			x.Errorf("%s is %v as before", series, before)
			return
		}
	}
}

func (x *abused) innocent() {
	x.Helper()
	token := x.token(jwt.MapClaims{"sub": "alice", "aud": abusedFor})
	if got := x.say("GET /v1/history HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer " + token + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		x.Errorf("an innocent user is answered %q", got)
	}
}

func (x *abused) token(claims jwt.MapClaims) string {
	x.Helper()
	if exp, said := claims["exp"]; !said {
		claims["exp"] = time.Now().Add(time.Hour).Unix()
	} else if exp == nil {
		delete(claims, "exp")
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(abusedSecret))
	if err != nil {
		x.Fatal(err)
	}
	return text
}

func (x *abused) eve() string { return x.token(jwt.MapClaims{"sub": "eve", "aud": abusedFor}) }

// say sends raw text and returns the first answer.
func (x *abused) say(text string) string {
	x.Helper()
	conn, err := new(net.Dialer).DialContext(x.Context(), "tcp", x.HTTP())
	if err != nil {
		x.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // the edge may not read all of it
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var all strings.Builder
	_ = resp.Write(&all) // as much as there is
	return all.String()
}
