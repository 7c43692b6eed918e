package allinone_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// abused is an all-in-one and what it counts.
type abused struct {
	*testing.T
	*allinone.Process
	registry *prometheus.Registry
}

func newAbused(t *testing.T) *abused {
	t.Helper()
	cfg := config(t.TempDir())
	cfg.Secret, cfg.Audience, cfg.Registry = []byte(abusedSecret), abusedFor, prometheus.NewRegistry()
	p, err := allinone.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return &abused{t, p, cfg.Registry}
}

// count is the value of a series, 0 where there is none.
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

// await waits until a series has gone up, which may be a moment after the answer.
func (x *abused) await(series string, before float64) {
	x.Helper()
	for end := time.Now().Add(patience); x.count(series) <= before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			x.Errorf("%s is %v as before", series, before)
			return
		}
	}
}

// innocent is another user, who is served as ever.
func (x *abused) innocent() {
	x.Helper()
	token := x.token(jwt.MapClaims{"sub": "alice", "aud": abusedFor})
	if got := x.say("GET /v1/history HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer " + token + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		x.Errorf("an innocent user is answered %q", got)
	}
}

// token signs claims, with an hour to live unless they say otherwise.
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

// eve is who attacks.
func (x *abused) eve() string { return x.token(jwt.MapClaims{"sub": "eve", "aud": abusedFor}) }

// say sends a text as it is and returns the first answer.
func (x *abused) say(text string) string {
	x.Helper()
	conn, err := new(net.Dialer).DialContext(x.Context(), "tcp", x.HTTP())
	if err != nil {
		x.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // which the edge may not read to its end
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var all strings.Builder
	_ = resp.Write(&all) // what there is of it
	return all.String()
}
