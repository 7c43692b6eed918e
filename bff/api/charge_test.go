package api_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
)

// Case B.18: who does not wait gets 429, when to come back, and what is left; others do
// not feel it.
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
		time.Sleep(500 * time.Millisecond) // of the bubble
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
		time.Sleep(2 * time.Second) // of the bubble
		if w := e.do(t, "GET /v1/history", ""); w.Code != http.StatusOK {
			t.Errorf("after the wait: %d", w.Code)
		}
	})
}

func TestALargeUploadCostsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := configured(t, api.Config{Service: storing(), Limit: limit.New(1, 5)})
		if w := e.do(t, "POST /v1/heartbeats", upload(slices.Repeat([]string{beat}, 500)...)); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		wantProblem(t, e.do(t, "POST /v1/heartbeats", upload(beat)), 429)
		time.Sleep(time.Second) // of the bubble
		if w := e.do(t, "POST /v1/heartbeats", upload(beat)); w.Code != http.StatusOK {
			t.Errorf("a second later: %d", w.Code)
		}
	})
}

// What has no token has no budget to take from, or to empty.
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
