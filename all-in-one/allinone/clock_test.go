package allinone_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
)

// wrong is a machine whose clock is ahead, in milliseconds.
type wrong struct {
	ahead atomic.Int64
	dir   string
}

func (w *wrong) wall() time.Time {
	return time.Now().Add(time.Duration(w.ahead.Load()) * time.Millisecond).Round(0)
}

func (w *wrong) set(ahead time.Duration) { w.ahead.Store(ahead.Milliseconds()) }

func (w *wrong) start(t *testing.T, change ...func(*allinone.Config)) *here {
	t.Helper()
	return openWith(t, func(c *allinone.Config) {
		c.Dir, c.Wall = w.dir, w.wall
		for _, f := range change {
			f(c)
		}
	})
}

// beat reports an object at a time and returns the result.
func (h *here) beat(object string, position int, at time.Time) (result struct {
	Status     string
	EventTime  time.Time `json:"event_time"`
	RecordTime time.Time `json:"record_time"`
},
) {
	h.Helper()
	var got struct {
		Results []json.RawMessage
	}
	body := fmt.Sprintf(`{"heartbeats":[{"object":{"id":%q,"type":1},"kind":"progress","position_ms":%d,"duration_ms":9000000,"event_time":%q}]}`,
		object, position, at.UTC().Format(time.RFC3339Nano))
	if err := json.Unmarshal([]byte(h.send(h.Context(), "POST /v1/heartbeats", body)), &got); err != nil {
		h.Fatal(err)
	}
	if err := json.Unmarshal(got.Results[0], &result); err != nil {
		h.Fatal(err)
	}
	return result
}

func (h *here) wantBeat(what, status string, position int, at time.Time) {
	h.Helper()
	if got := h.beat(what, position, at); got.Status != status {
		h.Errorf("%s: %+v, want %s", what, got, status)
	}
}

func (h *here) admin(method, path, origin string) (status int, text string) {
	h.Helper()
	req, err := http.NewRequestWithContext(h.Context(), method, "http://"+h.Admin()+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestClockAheadForOneStart: one start with a wrong clock destroys nothing, and its reports remain valid.
func TestClockAheadForOneStart(t *testing.T) {
	const n = 5
	for _, ahead := range []time.Duration{100 * 24 * time.Hour, 100 * 365 * 24 * time.Hour, -56 * 365 * 24 * time.Hour} {
		for _, summary := range []time.Duration{0, 43800 * time.Hour} {
			t.Run(fmt.Sprintf("%v, summary %v", ahead, summary), func(t *testing.T) {
				w := &wrong{dir: t.TempDir()}
				summaries := func(c *allinone.Config) { c.Summary = summary }
				h := w.start(t, summaries)
				for i := range n {
					h.wantBeat(fmt.Sprintf("o%d", i), "stored", 50000, time.Now())
				}
				h.stop()
				w.set(ahead)
				h = w.start(t, summaries)
				if _, err := h.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				h.wantBeat("o1", "stored", 60000, time.Now())
				held := ahead.Abs() > 32*24*time.Hour
				if status, text := h.admin("GET", "/readyz", ""); status != http.StatusOK || strings.Contains(text, `"clock"`) != held {
					t.Errorf("ready: %d %s, want the clock under degraded: %t", status, text, held)
				}
				if _, text := h.admin("GET", "/metrics", ""); strings.Contains(text, "playhead_clock_held 1") != held {
					t.Error("the metric playhead_clock_held is wrong")
				}
				if got := len(h.rows(t.Context())); got != n {
					t.Errorf("%d rows with the wrong clock, want %d", got, n)
				}
				h.stop()
				w.set(0)
				h = w.start(t, summaries)
				if got := len(h.rows(t.Context())); got != n {
					t.Errorf("%d rows with the right clock again, want %d", got, n)
				}
				h.wantBeat("o1", "stored", 70000, time.Now())
			})
		}
	}
}

// TestClockStepsWhileItRuns is the same without a restart.
func TestClockStepsWhileItRuns(t *testing.T) {
	w := &wrong{dir: t.TempDir()}
	h := w.start(t)
	h.wantBeat("1", "stored", 50000, time.Now())
	for _, ahead := range []time.Duration{100 * 24 * time.Hour, -365 * 24 * time.Hour} {
		w.set(ahead)
		if _, err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantBeat("1", "stored", 60000, time.Now())
		w.set(0)
		h.wantBeat("1", "stored", 70000, time.Now())
	}
}

// TestConfirmClock: a directory unused for months is served, and works normally once an operator confirms the clock.
func TestConfirmClock(t *testing.T) {
	w := &wrong{dir: t.TempDir()}
	w.set(-60 * 24 * time.Hour)
	h := w.start(t)
	h.wantBeat("1", "stored", 50000, w.wall())
	h.stop()
	w.set(0)
	h = w.start(t)
	h.wantBeat("1", "stored", 60000, time.Now())
	if status, _ := h.admin("POST", "/clock/confirm", "http://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("confirmed by a page of another site: %d", status)
	}
	if status, text := h.admin("POST", "/clock/confirm", ""); status != http.StatusOK {
		t.Errorf("confirm: %d %s", status, text)
	}
	if _, text := h.admin("GET", "/readyz", ""); strings.Contains(text, `"clock"`) {
		t.Errorf("ready: %s, want nothing of the clock", text)
	}
	h.wantBeat("1", "stored", 70000, time.Now())
	for _, row := range h.rows(t.Context()) {
		if today := time.Now().UTC().Format(time.DateOnly); !strings.Contains(row, today) {
			t.Errorf("%s, want a time of %s", row, today)
		}
	}
}

// hears returns the server's time if plausible, else the real time, like a client.
func (h *here) hears(w *wrong) time.Time {
	if time.Until(w.wall()).Abs() > 32*24*time.Hour {
		return time.Now()
	}
	return w.wall()
}

// nextMillisecond waits for the next millisecond: a report in the millisecond of a switch is from before it.
func nextMillisecond() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
	}
}

// TestRecordingOffWithASteppedClock: recording off drops what is played and recording on stores it, whatever
// the clock's step.
func TestRecordingOffWithASteppedClock(t *testing.T) {
	for _, back := range []time.Duration{time.Minute, 24 * time.Hour, 365 * 24 * time.Hour} {
		for _, restart := range []bool{false, true} {
			for _, when := range []string{"before the switch", "while it is off"} {
				t.Run(fmt.Sprintf("%v %s, restart %t", back, when, restart), func(t *testing.T) {
					w := &wrong{dir: t.TempDir()}
					h := w.start(t)
					step := func(ahead time.Duration) {
						if restart {
							h.stop()
						}
						if w.set(ahead); restart {
							h = w.start(t)
						}
					}
					h.wantBeat("before", "stored", 50000, w.wall())
					if when == "before the switch" {
						step(-back)
					}
					h.send(t.Context(), "PUT /v1/settings", `{"recording":false}`)
					nextMillisecond()
					h.wantBeat("off", "paused", 50000, h.hears(w))
					if when != "before the switch" {
						step(-back)
					}
					h.wantBeat("off", "paused", 50000, h.hears(w))
					h.wantBeat("off", "paused", 50000, time.Now())
					step(0)
					h.wantBeat("off", "paused", 50000, time.Now())
					h.send(t.Context(), "PUT /v1/settings", `{"recording":true}`)
					nextMillisecond()
					h.wantBeat("on", "stored", 50000, w.wall())
				})
			}
		}
	}
}

// TestRecordingOnWithAClockThatWasAhead: once the clock is right, recording resumes within a day, whatever the
// lead. Until then the events of the pause are not known.
func TestRecordingOnWithAClockThatWasAhead(t *testing.T) {
	w := &wrong{dir: t.TempDir()}
	h := w.start(t)
	h.send(t.Context(), "PUT /v1/settings", `{"recording":false}`)
	w.set(20 * 24 * time.Hour)
	h.send(t.Context(), "PUT /v1/settings", `{"recording":true}`)
	w.set(0)
	h.wantBeat("on", "paused", 50000, w.wall())
	w.set(25 * time.Hour)
	h.wantBeat("on", "stored", 50000, w.wall())
}

// TestStaleSaysWhy: a record of a clock that was ahead stays unchanged, and the answer explains that.
func TestStaleSaysWhy(t *testing.T) {
	w := &wrong{dir: t.TempDir()}
	w.set(24 * time.Hour)
	h := w.start(t)
	ahead := w.wall()
	h.wantBeat("1", "stored", 50000, ahead)
	w.set(0)
	for _, position := range []int{40000, 60000} {
		at := time.Now().Truncate(time.Millisecond)
		got := h.beat("1", position, at)
		if got.Status != "stale" || !got.EventTime.Equal(at) || got.RecordTime.Sub(ahead).Abs() > time.Minute {
			t.Errorf("got %+v, want stale of %v and %v", got, at, ahead)
		}
	}
}
