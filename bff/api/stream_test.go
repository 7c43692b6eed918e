package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
)

// teapot is a refusal that knows its status.
type teapot struct{}

func (teapot) Error() string { return "short and stout" }

func (teapot) HTTPStatus() int { return http.StatusTeapot }

func TestStream(t *testing.T) {
	for name, tt := range map[string]struct {
		target string
		err    error
		status int
		detail string
	}{
		"taken":           {"GET /v1/stream", nil, 101, ""},
		"refused":         {"GET /v1/stream", teapot{}, 418, "short and stout"},
		"nobody":          {"GET /v1/stream", token.ErrInvalid, 401, "token not valid"},
		"token in a URL":  {"GET /v1/stream?access_token=abc", nil, 422, "want none"},
		"another method":  {"POST /v1/stream", nil, 405, "method not allowed"},
		"under the door":  {"GET /v1/stream/1", nil, 404, "no such resource"},
		"beside the door": {"GET /v1//stream", nil, 404, "no such resource"},
	} {
		e := configured(t, api.Config{Service: &service{}, Stream: func(w http.ResponseWriter, _ *http.Request) error {
			if tt.err == nil {
				w.WriteHeader(http.StatusSwitchingProtocols)
			}
			return tt.err
		}})
		w := e.do(t, tt.target, "")
		if tt.status == 101 {
			if w.Code != tt.status {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			continue
		}
		if p := wantProblem(t, w, tt.status); !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s: %q, want %q", name, p.Detail, tt.detail)
		}
	}
}

func TestNoStream(t *testing.T) {
	e := configured(t, api.Config{Service: &service{}})
	wantProblem(t, e.do(t, "GET /v1/stream", ""), 404)
	if w := e.do(t, "GET /openapi.json", ""); strings.Contains(w.Body.String(), "/v1/stream") {
		t.Error("it is described, but not there")
	}
}
