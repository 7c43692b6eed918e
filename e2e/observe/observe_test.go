//go:build e2e

// Package observe_test has a real Prometheus watch the product on real engines.
package observe_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/pipeline"
)

const files = "../../deploy/observe/"

// programs returns prometheus and promtool: those on the PATH, or else of a downloaded Debian package.
func programs(t *testing.T) (prometheus, promtool string) {
	t.Helper()
	prometheus, err := exec.LookPath("prometheus")
	promtool, err2 := exec.LookPath("promtool")
	if err == nil && err2 == nil {
		return prometheus, promtool
	}
	dir := t.TempDir()
	download := "apt-get -q download prometheus || { $(command -v sudo) apt-get -q update && apt-get -q download prometheus; }"
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", download+"\ndpkg -x prometheus_*.deb .")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("download prometheus: %v\n%s", err, out)
	}
	return filepath.Join(dir, "usr/bin/prometheus"), filepath.Join(dir, "usr/bin/promtool")
}

// TestRules: each alert fires in its fault, and none on a quiet day.
func TestRules(t *testing.T) {
	_, promtool := programs(t)
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", files+"alerts.test.yml").CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestPrometheus: the dashboards' queries and the rules have results, and the right alert names each fault within two
// minutes, and clears.
func TestPrometheus(t *testing.T) {
	program, _ := programs(t)
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	stack := pipeline.NewStack(t, e, 1, 1)
	stack.StartBFF(t, strings.Repeat("s", 32))
	rules, err := filepath.Abs(files + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir, listen := t.TempDir(), pipeline.FreeAddr(t)
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: playhead
    static_configs: [{targets: [%s, %s, %s]}]
`, rules, stack.Services[0].Admin, stack.Jobs[0].Admin, stack.BFF.Admin)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	pipeline.Start(t, program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	p := prometheus("http://" + listen)

	all := queries(t)
	pipeline.Await(t, time.Minute, "a series for each query", func(ctx context.Context) error {
		for where, expr := range all {
			if n, err := p.series(ctx, expr); err != nil || n == 0 {
				return fmt.Errorf("%s: %s: %d series, %w", where, expr, n, err)
			}
		}
		return nil
	})
	faults := faults(t, e, stack)
	for _, f := range faults {
		p.await(t, "no alert", f.alert, 0)
	}
	for _, f := range faults {
		t.Log(f.alert)
		if f.make(); f.mend == nil {
			p.await(t, "the alert", f.alert, 1)
			continue
		}
		t.Cleanup(f.mend)
		p.await(t, "the alert", f.alert, 1)
		f.mend()
		p.await(t, "the end of the alert", f.alert, 0)
	}
}

// fault is something that breaks, and the labels of the alert that names it within two minutes.
type fault struct {
	alert string
	make  func()
	mend  func() // nil if the alert outlasts the test
}

// faults returns what an engineer is called for. Each begins on a healthy stack.
func faults(t *testing.T, e pipeline.Engines, stack *pipeline.Stack) []fault {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	redis := goredis.NewClient(&goredis.Options{Addr: e.Redis})
	t.Cleanup(func() { _ = redis.Close() })
	open := func(name string) *engine.Engine {
		opened, err := engine.Open(name, engine.Config{Dir: cmp.Or(os.Getenv("ENGINES_DIR"), "../../.engines"), Detach: true})
		must(err)
		return opened
	}
	server, kafka, hbase := open("redis"), open("kafka"), open("hbase")
	ctx := context.WithoutCancel(t.Context()) // a fault ends also after a failure
	return []fault{
		{
			`alertname="PlayheadEngineAway",engine="redis"`,
			func() { must(server.Signal(syscall.SIGSTOP)) },
			func() { must(server.Signal(syscall.SIGCONT)) },
		},
		{
			`alertname="PlayheadEngineMisconfigured",engine="redis"`,
			func() { must(redis.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err()) },
			func() { must(redis.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err()) },
		},
		{
			`alertname="PlayheadEngineAway",engine="kafka"`,
			func() { must(kafka.Signal(syscall.SIGSTOP)) },
			func() { must(kafka.Signal(syscall.SIGCONT)) },
		},
		{
			`alertname="PlayheadEngineAway",engine="hbase"`,
			func() { must(hbase.Kill()) },
			func() { must(hbase.Start(ctx)) },
		},
		{
			`alertname="PlayheadArchiveUnmeasured"`,
			func() { stack.Jobs[0].Signal(syscall.SIGSTOP) },
			func() { stack.Jobs[0].Signal(syscall.SIGCONT) },
		},
		{
			`alertname="PlayheadRecordsRefused"`,
			func() {
				w := &kafkago.Writer{Addr: kafkago.TCP(strings.Split(e.Kafka, ",")...), Topic: stack.Name}
				must(errors.Join(w.WriteMessages(ctx, kafkago.Message{Value: []byte("poison")}), w.Close()))
			},
			nil,
		},
	}
}

// unseen are metrics that only a fault, a webhook or the embedded store brings.
var unseen = regexp.MustCompile(`playhead_pebble_|playhead_webhook_|engine_node_degraded|engine_call_seconds`)

// queries returns the expressions of all dashboards by dashboard and panel.
func queries(t *testing.T) map[string]string {
	t.Helper()
	boards, err := filepath.Glob(files + "dashboards/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	all := make(map[string]string)
	for _, file := range boards {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ Expr, RefID string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, q := range p.Targets {
				if !unseen.MatchString(q.Expr) {
					all[board.Title+", "+p.Title+" "+q.RefID] = strings.ReplaceAll(q.Expr, "$__rate_interval", "10s")
				}
			}
		}
	}
	return all
}

// prometheus is the address of a server.
type prometheus string

// await waits until a number of alerts with the labels fire.
func (p prometheus) await(t *testing.T, what, labels string, want int) {
	t.Helper()
	pipeline.Await(t, 2*time.Minute, what+" "+labels, func(ctx context.Context) error {
		n, err := p.series(ctx, `ALERTS{alertstate="firing",`+labels+`}`)
		if err == nil && n != want {
			err = fmt.Errorf("%d alerts", n)
		}
		return err
	})
}

// series returns the number of series that a query has at present.
func (p prometheus) series(ctx context.Context, expr string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, fmt.Errorf("%s", answer.Error)
	}
	return len(answer.Data.Result), nil
}
