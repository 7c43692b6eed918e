package ws_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
)

func TestWhoMayConnect(t *testing.T) {
	bubble(t, ws.Config{Origins: []string{"https://app.example"}}, func(t *testing.T, w *world) {
		good, expired := mint(t, "u1", time.Hour), mint(t, "u1", -token.Leeway-time.Second)
		header := "Authorization: Bearer " + good
		claims := jwt.MapClaims{"sub": "u1", "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}
		unsigned := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims)
		forged := sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), claims)
		claims["aud"] = "billing"
		others := sign(t, jwt.SigningMethodHS256, []byte(secret), claims)
		for name, tt := range map[string]struct {
			protocols []string
			headers   []string
			status    int
			want      string // the agreed protocol, or the reason
		}{
			"a player":              {[]string{inJSON}, []string{header}, 101, inJSON},
			"who speaks both":       {[]string{inJSON, inProto}, []string{header}, 101, inProto},
			"who speaks more":       {[]string{"playhead.v2.json", inJSON}, []string{header}, 101, inJSON},
			"a browser":             {[]string{inJSON, "bearer." + good}, nil, 101, inJSON},
			"a page of the edge":    {[]string{inJSON}, []string{header, "Origin: https://" + edgesHost}, 101, inJSON},
			"a page on the list":    {[]string{inJSON}, []string{header, "Origin: https://app.example"}, 101, inJSON},
			"a page of another":     {[]string{inJSON}, []string{header, "Origin: https://evil.example"}, 403, "evil.example"},
			"a page without a host": {[]string{inJSON}, []string{header, "Origin: null"}, 403, "null"},
			"a part of a host":      {[]string{inJSON}, []string{header, "Origin: https://app.example.evil.example"}, 403, "may not connect"},
			"another scheme":        {[]string{inJSON}, []string{header, "Origin: http://app.example"}, 403, "may not connect"},
			"without a token":       {[]string{inJSON}, nil, 401, "want Authorization: Bearer"},
			"with an old one":       {[]string{inJSON}, []string{"Authorization: Bearer " + expired}, 401, "expired"},
			"with an old one, page": {[]string{inJSON, "bearer." + expired}, nil, 401, "expired"},
			"with alg none":         {[]string{inJSON}, []string{"Authorization: Bearer " + unsigned}, 401, "signing method none is invalid"},
			"with a forged one":     {[]string{inJSON, "bearer." + forged}, nil, 401, "signature is invalid"},
			"with another's":        {[]string{inJSON}, []string{"Authorization: Bearer " + others}, 401, "invalid audience"},
			"with another scheme":   {[]string{inJSON, "bearer." + good}, []string{"Authorization: Basic dTE6cGFzcw=="}, 401, "want Authorization: Bearer"},
			"without a protocol":    {nil, []string{header}, 400, "want the subprotocol"},
			"with a token alone":    {[]string{"bearer." + good}, nil, 400, "want the subprotocol"},
		} {
			conn, got, err := w.knock(t, tt.protocols, tt.headers...)
			if tt.status == 101 {
				if err != nil || conn.Subprotocol() != tt.want {
					t.Errorf("%s: %v; want %s", name, err, tt.want)
					continue
				}
				if strings.Contains(got.header.Get("Sec-WebSocket-Protocol"), good) {
					t.Errorf("%s: the token came back", name)
				}
				_ = conn.CloseNow()
				continue
			}
			if err == nil {
				t.Errorf("%s: connected", name)
				continue
			}
			if got.status != tt.status || !strings.Contains(got.body, tt.want) || strings.Contains(got.body, good) {
				t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, tt.status, tt.want)
			}
		}
	})
}

func TestNoWebSocket(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		for want, header := range map[int]string{426: "", 400: "13, but spelled in words"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+edgesHost+"/v1/stream", nil)
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				r.Header = http.Header{
					"Upgrade": {"WebSocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {header}, "Sec-Websocket-Protocol": {inJSON},
				}
			}
			r.Header.Set("Authorization", "Bearer "+mint(t, "u1", time.Hour))
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want || want == 426 && !slices.Equal(resp.Header["Upgrade"], []string{"websocket"}) {
				t.Errorf("got %d %v, want %d", resp.StatusCode, resp.Header, want)
			}
		}
		if n := w.count(t, "playhead_ws_connections"); n != 0 {
			t.Errorf("%v connections are open", n)
		}
	})
}

func TestConnectionsOfAUserAreBounded(t *testing.T) {
	bubble(t, ws.Config{PerUser: 3}, func(t *testing.T, w *world) {
		first := w.dial(t, "u1", inJSON)
		w.dial(t, "u1", inJSON)
		w.dial(t, "u1", inJSON)
		_, got, err := w.knock(t, []string{inJSON}, "Authorization: Bearer "+mint(t, "u1", time.Hour))
		if err == nil || got.status != http.StatusTooManyRequests {
			t.Fatalf("a fourth connection: %v, %v; want 429", got, err)
		}
		w.dial(t, "u2", inJSON)
		synctest.Wait()
		if n := w.count(t, "playhead_ws_connections"); n != 4 {
			t.Errorf("%v connections are open, want 4", n)
		}
		_ = first.Close(1000, "")
		time.Sleep(time.Second) // bubble time
		w.dial(t, "u1", inJSON)
	})
}
