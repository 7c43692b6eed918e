//go:build e2e

// Package observe_test has a real Prometheus watch the product on real engines.
package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

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

// TestPrometheus: the dashboards' queries and the rules have results, and the alert of an engine fires and clears.
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
	const away = `ALERTS{alertname="PlayheadEngineAway",engine="redis",alertstate="firing"}`
	alert := func(what string, want int) {
		t.Helper()
		pipeline.Await(t, 2*time.Minute, what, func(ctx context.Context) error {
			n, err := p.series(ctx, away)
			if err == nil && n != want {
				err = fmt.Errorf("%d alerts", n)
			}
			return err
		})
	}
	alert("no alert", 0)
	redis := goredis.NewClient(&goredis.Options{Addr: e.Redis})
	t.Cleanup(func() { _ = redis.Close() })
	if err := redis.ClientPause(t.Context(), time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	alert("the alert that Redis is away", 1)
	alert("the end of the alert, after the pause", 0)
}

// unseen are metrics that only a fault, a webhook or the embedded store brings.
var unseen = regexp.MustCompile(`playhead_pebble_|playhead_webhook_|engine_node_degraded`)

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
