package allinone_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

const (
	abusedSecret = "a secret of an edge that is abused"
	abusedFor    = "players"
	someBeat     = `{"object":{"id":"100","type":1},"kind":"progress","position_ms":60000,"event_time":"2026-01-01T00:00:00Z"}`
)

// attack is what somebody does who means harm, or knows no better: what it meets, and
// the series that counts it.
type attack struct {
	do      func(*abused) string
	meets   string
	counted string
}

// TestAbuse has each attack refused and counted, and asks after each whether a user who
// does nothing wrong notices.
func TestAbuse(t *testing.T) {
	for name, a := range map[string]attack{
		"token for another audience": {as(jwt.MapClaims{"sub": "eve", "aud": "admins"}), "401", requests("GET /v1/history", 401)},
		"token that has expired":     {as(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": 1}), "401", requests("GET /v1/history", 401)},
		"token that never expires":   {as(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": nil}), "401", requests("GET /v1/history", 401)},
		"token of nobody":            {as(jwt.MapClaims{"sub": "../eve", "aud": abusedFor}), "401", requests("GET /v1/history", 401)},
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
		"giant headers":                          {signed("GET", "/v1/history", "X: "+strings.Repeat("x", 32<<10)+"\r\n", ""), "431", "playhead_edge_unheard_connections_total"},
		"no HTTP":                                {request("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"), "400", "playhead_edge_unheard_connections_total"},
		"frames: giant":                          {frames(strings.Repeat(" ", 200<<10)), "1009", closedWith(1009)},
		"frames: 10,000 events":                  {frames(`{"seq":1,` + many(10_000)[1:]), "1009", closedWith(1009)},
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

// TestNothingIsReflected asks for what pages would run as a script if the edge repeated it.
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
