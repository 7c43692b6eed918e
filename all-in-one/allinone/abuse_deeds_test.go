package allinone_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
)

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

// stream connects; what is refused is returned as text.
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

// frames sends one message and returns the answer, or the status it was closed with.
func frames(text string) func(*abused) string {
	return func(x *abused) string {
		conn, refused := x.stream(x.eve(), nil)
		if conn == nil {
			return refused
		}
		go func() { _ = conn.Write(x.Context(), websocket.MessageText, []byte(text)) }() // which may be cut off
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

// flood never waits as it is told.
func flood(x *abused) (last string) {
	conn, refused := x.stream(x.eve(), nil)
	for range 1000 {
		if conn == nil || !strings.HasPrefix(last, "{") && last != "" {
			return refused + last
		}
		_ = conn.Write(x.Context(), websocket.MessageText, []byte(`{"seq":1,"heartbeats":[]}`)) // the answer says more
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

// expiring connects with a token that ends soon, and is given another one when it ended
// before.
func expiring(x *abused) string {
	for life := 2 * time.Second; ; life *= 2 {
		conn, refused := x.stream(x.token(jwt.MapClaims{"sub": "eve", "aud": abusedFor, "exp": time.Now().Add(life).Unix()}), nil)
		switch {
		case conn != nil:
			return next(x, conn)
		case life > patience/4:
			return refused
		}
	}
}

func otherSite(x *abused) string {
	_, refused := x.stream(x.eve(), http.Header{"Origin": {"https://evil.example"}})
	return refused
}
