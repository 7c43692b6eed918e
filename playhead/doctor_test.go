package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/internal/obs"
)

// ready starts a server, waits until it is ready, and returns its admin port.
func ready(t *testing.T) string {
	t.Helper()
	admin := started(t, t.TempDir(), func(c *allinone.Config) { c.Registry = obs.NewRegistry() }).Admin()
	for late := time.Now().Add(30 * time.Second); ; {
		p := instance{addr: admin}
		if err := p.read(t.Context(), time.Second); err == nil && len(p.failing) == 0 {
			return admin
		} else if time.Now().After(late) {
			t.Fatalf("not ready: %v, %v", err, p.failing)
		}
	}
}

// asked runs a command against admin ports.
func asked(t *testing.T, command func(context.Context, []string, func(string) string, io.Writer) error, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := command(t.Context(), args, none, &out)
	return out.String(), err
}

// sick returns the admin port of a process with some metrics.
func sick(t *testing.T, metrics string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"ready":false,"failing":{"redis":"connection refused"},"degraded":{"clock":"held"}}`)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metrics) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestDoctor(t *testing.T) {
	well := ready(t)
	if out, err := asked(t, doctor, "--admin", well); err != nil || out != "nothing to change\n" {
		t.Errorf("a new server: %v, %q", err, out)
	}
	ill := sick(t, `# TYPE playhead_engine_misconfigured gauge
playhead_engine_misconfigured{engine="redis"} 1
# TYPE playhead_job_oldest_mark_age_seconds gauge
playhead_job_oldest_mark_age_seconds{buckets="0-63"} 20
playhead_job_oldest_mark_age_seconds{buckets="64-127"} 301
# TYPE playhead_redis_memory_used_bytes gauge
playhead_redis_memory_used_bytes{node="a:1"} 90
playhead_redis_memory_used_bytes{node="b:1"} 10
# TYPE playhead_redis_memory_limit_bytes gauge
playhead_redis_memory_limit_bytes{node="a:1"} 100
playhead_redis_memory_limit_bytes{node="b:1"} 100
# TYPE go_build_info gauge
go_build_info{version="v9"} 1
`)
	out, err := asked(t, doctor, "--admin", well+","+ill+",127.0.0.1:1", "--json")
	if err == nil || err.Error() != "4 faults" {
		t.Errorf("a sick server: %v, want 4 faults", err)
	}
	var got struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var found []string
	for _, f := range got.Findings {
		found = append(found, f.Severity+" "+f.Where+": "+f.Finding)
		if f.Do == "" {
			t.Errorf("%s: nothing to do", f.Finding)
		}
	}
	all := strings.Join(found, "\n")
	for _, want := range []string{
		"fault " + ill + ": not ready: redis: connection refused", "fault " + ill + " redis: settings may lose", "fault " + ill + " 64-127: a record has waited 301 s",
		"fault 127.0.0.1:1: no answer", "warning " + ill + ": degraded: clock: held", "warning " + ill + " a:1: Redis uses 90 % of its memory", "warning all: versions differ: ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("got\n%s\nwant %q", all, want)
		}
	}
	if len(found) != 7 {
		t.Errorf("%d findings, want 7:\n%s", len(found), all)
	}
}

// TestDoctorAsksEngines reports engines that are away, and waits for none of them.
func TestDoctorAsksEngines(t *testing.T) {
	away := "127.0.0.1:1"
	out, err := asked(t, doctor, "--admin", ready(t), "--engines", "--redis", away, "--kafka", away, "--hbase", away)
	if err == nil || err.Error() != "5 faults" {
		t.Errorf("got %v, want a fault for Redis, three topics and HBase", err)
	}
	for _, want := range []string{"fault    redis: ", "fault    kafka: describe topic history.dead", "fault    hbase: open archive: unavailable: no ZooKeeper"} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%s\nwant %q", out, want)
		}
	}
}

func TestUnevenRegions(t *testing.T) {
	for _, tt := range []struct {
		regions []int // of each server
		want    string
	}{
		{[]int{1}, ""},
		{[]int{16}, ""},
		{[]int{1, 1, 1}, ""},
		{[]int{5, 5, 6}, ""},
		{[]int{3, 5, 8}, ""},
		{[]int{0, 1}, "table history has regions for 1 of 2 region servers"},
		{[]int{1, 1, 0}, "table history has regions for 2 of 3 region servers"},
		{[]int{0, 8, 8}, "region servers have from 0 to 8 regions of table history"},
		{[]int{1, 1, 1, 13}, "region servers have from 1 to 13 regions of table history"},
		{append(slices.Repeat([]int{1}, 16), slices.Repeat([]int{0}, 84)...), ""}, // enough for a hundred servers
	} {
		s := hbase.Spread{Table: "history", Regions: map[string]int{}}
		for i, n := range tt.regions {
			s.Regions[strconv.Itoa(i)] = n
		}
		got := ""
		for _, f := range uneven(s, 16) {
			if got += f.Finding; f.Severity != aWarning || f.Do == "" {
				t.Errorf("%v: got %+v, want a warning with a remedy", tt.regions, f)
			}
		}
		if got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.regions, got, tt.want)
		}
	}
}

func TestLag(t *testing.T) {
	admin := ready(t)
	var out string
	for late := time.Now().Add(30 * time.Second); ; {
		var err error
		if out, err = asked(t, lag, "--admin", admin); err == nil { // it has measured
			break
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
	if !strings.Contains(out, "oldest unarchived record             0 s\n") {
		t.Errorf("a new server: got\n%s", out)
	}
	ill := sick(t, `# TYPE playhead_job_oldest_mark_age_seconds gauge
playhead_job_oldest_mark_age_seconds{buckets="0-63"} 301
# TYPE playhead_job_dirty_marks gauge
playhead_job_dirty_marks{buckets="0-63"} 7
playhead_job_dirty_marks{buckets="64-127"} 2
`)
	out, err := asked(t, lag, "--admin", ill+","+ill, "--json")
	if err == nil || !strings.Contains(err.Error(), "has waited 301 s, 5m0s is good") {
		t.Errorf("a late archive: %v", err)
	}
	var got lags
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.DirtyMarks != 9 {
		t.Errorf("a late archive, measured by two jobs: %s, %v, want 9 marks", out, err)
	}
	if _, err := asked(t, lag, "--admin", sick(t, "")); err == nil || !strings.Contains(err.Error(), "no process measures") {
		t.Errorf("no job: %v", err)
	}
	nobody, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	if _, err := asked(t, lag, "--admin", nobody.Addr().String()); err == nil {
		t.Error("no answer: got no error")
	}
}
