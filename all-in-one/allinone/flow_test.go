package allinone_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/obs/obstest"
)

// looked is the part of /flow's stream that the tests use.
type looked struct {
	Inside struct{ Marks, Waiting int }
	Faults map[string]bool
	Viewer []struct {
		ID             string
		Cache, Archive *struct {
			Position int64 `json:"position_ms"`
		}
		Marked bool
	}
}

func (h *here) signed(ctx context.Context, method, path, body string) *http.Request {
	h.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+h.HTTP()+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	return r
}

func (h *here) answer(r *http.Request) (status int, body []byte) {
	h.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		h.Fatal(err)
	}
	return resp.StatusCode, body
}

// watch reads /flow until its state matches until.
func (h *here) watch(what string, until func(*looked) bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	resp, err := http.DefaultClient.Do(h.signed(ctx, http.MethodGet, "/flow/stream", ""))
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for now := new(looked); lines.Scan(); {
		var part any = now
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if strings.HasPrefix(data, "[") {
			part = &now.Viewer
		}
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), part); err != nil {
			h.Fatalf("%v in %s", err, data)
		}
		if part != any(now) && until(now) {
			return
		}
	}
	h.Fatalf("the stream ended (%v) before %s", lines.Err(), what)
}

func (h *here) set(part string, stopped bool) {
	h.Helper()
	if status, body := h.answer(h.signed(h.Context(), http.MethodPut, "/flow/faults/"+part, fmt.Sprintf(`{"stopped":%v}`, stopped))); status != http.StatusOK {
		h.Fatalf("%s: %d %s", part, status, body)
	}
}

// TestFlowFaults stops each breakable part. Reports are still acknowledged and the stream shows the backlog;
// after a restart of the part the archive has them.
func TestFlowFaults(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := openWith(t, func(c *allinone.Config) { c.Dir, c.Breakable, c.Registry = t.TempDir(), true, reg })
	for n, part := range []string{"job", "archive", "queue"} {
		h.set(part, true)
		if part == "job" {
			h.watch("the job has ended", func(*looked) bool { return obstest.Sum(t, reg, "playhead_job_owned_buckets") == 0 })
		}
		id := fmt.Sprintf("%s_1", part)
		h.reportStop(part, 1, int64(n+1)*1000)
		h.watch(part+" stopped: the record waits", func(s *looked) bool {
			return s.Faults[part] && s.Inside.Waiting == 1 && s.Viewer[0].ID == id && s.Viewer[0].Marked && s.Viewer[0].Archive == nil
		})
		h.set(part, false)
		h.watch(part+" is back: the record is archived", func(s *looked) bool {
			r := s.Viewer[0]
			return !s.Faults[part] && s.Inside.Waiting == 0 && s.Inside.Marks == 0 && !r.Marked && r.Archive != nil && *r.Archive == *r.Cache
		})
	}
	h.clean(patience)
}

func (h *here) reportStop(id string, typ int, position int64) {
	h.Helper()
	_, body := h.answer(h.signed(h.Context(), http.MethodPost, "/v1/heartbeats", fmt.Sprintf(
		`{"heartbeats":[{"object":{"id":%q,"type":%d},"kind":"stop","position_ms":%d,"duration_ms":600000,"event_time":%q}]}`,
		id, typ, position, time.Now().UTC().Format(time.RFC3339Nano))))
	if !strings.Contains(string(body), `"status":"stored"`) {
		h.Fatalf("%s", body)
	}
}

// TestFlowClasses: the viewer's records of all classes are shown, newest first.
func TestFlowClasses(t *testing.T) {
	rules, err := history.ParseRules("", []string{"clips: types=1"})
	if err != nil {
		t.Fatal(err)
	}
	h := openWith(t, func(c *allinone.Config) { c.Dir, c.Rules = t.TempDir(), rules })
	for n := range 5 {
		h.reportStop(fmt.Sprint(n), 1+n%2, int64(n+1)*1000)
	}
	h.watch("all is archived", func(s *looked) bool {
		var ids []string
		for _, r := range s.Viewer {
			if r.Marked || r.Archive == nil || *r.Archive != *r.Cache {
				return false
			}
			ids = append(ids, r.ID)
		}
		return slices.Equal(ids, []string{"4_1", "3_2", "2_1", "1_2"})
	})
}

// TestFlowGuarded: viewing needs a token, and only a breakable process lets viewers stop parts.
func TestFlowGuarded(t *testing.T) {
	whole := open(t, t.TempDir())
	demo := openWith(t, func(c *allinone.Config) { c.Dir, c.Breakable = t.TempDir(), true })
	const fault, stop = "/flow/faults/job", `{"stopped":true}`
	noFault := whole.signed(t.Context(), http.MethodPut, fault, stop)
	demo.token = "none"
	noToken := demo.signed(t.Context(), http.MethodPut, fault, stop)
	noLook := demo.signed(t.Context(), http.MethodGet, "/flow/stream", "")
	foreign := demo.signed(t.Context(), http.MethodGet, "/flow/stream", "")
	foreign.Host = "rebound.example"
	for r, want := range map[*http.Request]int{
		noFault: http.StatusNotFound, noToken: http.StatusUnauthorized, noLook: http.StatusUnauthorized, foreign: http.StatusMisdirectedRequest,
	} {
		if status, _ := demo.answer(r); status != want {
			t.Errorf("%s %s at %s: %d, want %d", r.Method, r.URL, r.Host, status, want)
		}
	}
}
