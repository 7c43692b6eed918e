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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/internal/run"
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

// TestPrometheus: the dashboards' queries and the rules have results. The right alert names each fault within two
// minutes, by node, and clears. No process says meanwhile that the engine is back, or logs more than three lines a
// minute. The test logs a table of the faults.
func TestPrometheus(t *testing.T) {
	program, _ := programs(t)
	e := pipeline.FromEnv(t, true)
	pipeline.Flush(t, e)
	stack := pipeline.NewStack(t, e, 0, 1)
	stack.StartService(t, pipeline.FreeAddr(t), "--hold", "2s") // announcements all the time
	report(t, stack.StartBFF(t, secret))
	for _, p := range processes(stack) {
		probe(t, p)
	}
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
			found, err := p.query(ctx, expr)
			if err == nil && len(found) == 0 {
				err = errors.New("no series")
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", where, expr, err)
			}
		}
		return nil
	})
	faults := faults(t, e, stack)
	for _, f := range faults {
		p.await(t, "no alert", f.alert, 0)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { p.try(t, f, stack) })
	}
	p.scrapes(t)
}

func processes(s *pipeline.Stack) []*pipeline.Process {
	return slices.Concat(s.Services, s.Jobs, []*pipeline.Process{s.BFF})
}

// probe asks a process each second whether it is ready, as an orchestrator does, until the end of the test.
func probe(t *testing.T, p *pipeline.Process) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for run.Sleep(ctx, time.Second) {
			_ = p.Process.Ready(ctx, p.Admin) // its log is what counts
		}
	})
}

const secret = "ssssssssssssssssssssssssssssssss"

// report has users report through the edge until the end of the test. Faults have them refused.
func report(t *testing.T, edge string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for user := range 50 {
		bearer, err := token.Mint([]byte(secret), fmt.Sprintf("u%d", user), "", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for run.Sleep(ctx, time.Second) {
				body := fmt.Sprintf(`{"heartbeats":[{"object":{"id":"film","type":1},"kind":"progress","position_ms":1000,"duration_ms":100000,"session":"s","device":"tv","event_time":%q}]}`,
					time.Now().UTC().Format(time.RFC3339Nano))
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge+"/v1/heartbeats", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+bearer)
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					continue
				}
				_ = resp.Body.Close()
				if resp.StatusCode >= 400 && resp.StatusCode < 500 {
					t.Errorf("a report got status %d", resp.StatusCode)
					return
				}
			}
		})
	}
}

// try makes a fault, and ends it once its alert fires.
func (p prometheus) try(t *testing.T, f fault, stack *pipeline.Stack) {
	t.Helper()
	if f.mend != nil {
		t.Cleanup(f.mend)
	}
	logs := newLogs(stack)
	f.make()
	p.await(t, "the alert", f.alert, 1)
	fired := time.Since(logs.at).Round(time.Second)
	most := logs.next(t, "engine recovered")
	if f.mend == nil {
		t.Logf("| %s | %s | fires after %v | | %d lines a minute |", f.name, f.alert, fired, most)
		return
	}
	f.mend()
	p.await(t, "the end of the alert", f.alert, 0)
	cleared := time.Since(logs.at).Round(time.Second)
	p.awaitSeries(t, "all processes to have recovered", "playhead_engine_degraded == 1 or playhead_engine_node_degraded == 1 or playhead_engine_misconfigured == 1", 0)
	for _, one := range processes(stack) {
		one.Ready(t, one.Admin) // its line is written
	}
	t.Logf("| %s | %s | fires after %v | clears after %v | %d lines a minute |", f.name, f.alert, fired, cleared, max(most, logs.next(t, "engine unavailable")))
}

// logs are those of all processes up to a moment.
type logs struct {
	processes []*pipeline.Process
	read      []string
	at        time.Time
}

func newLogs(stack *pipeline.Stack) *logs {
	l := &logs{processes: processes(stack)}
	l.mark()
	return l
}

func (l *logs) mark() {
	l.read, l.at = nil, time.Now()
	for _, p := range l.processes {
		l.read = append(l.read, p.Log())
	}
}

// linesPerMinute are those that a process may log in a fault, and after it. On a busy machine one phase may have the lines of
// the minute before.
const linesPerMinute = 3

// next returns how many lines a minute the busiest process has logged since the last time. It fails the test if they
// are too many, or one has a text that would be false.
func (l *logs) next(t *testing.T, untrue string) (most int) {
	t.Helper()
	minutes := 1 + int(time.Since(l.at)/time.Minute)
	for i, p := range l.processes {
		log := p.Log()
		if _, after, found := strings.Cut(log, l.read[i]); found { // a long log has lost its beginning
			log = after
		}
		lines := strings.Count(log, "\n")
		if most = max(most, (lines+minutes-1)/minutes); lines > linesPerMinute*(minutes+1) || strings.Contains(log, untrue) {
			t.Errorf("%s has logged %d lines in %d min, want %d a minute and none that says %q:\n%s", p.Path, lines, minutes, linesPerMinute, untrue, log)
		}
	}
	l.mark()
	return most
}

// maxSeries of a process.
const maxSeries = 2000

// scrapes counts the series of each process after all faults, and logs what its scrapes took.
func (p prometheus) scrapes(t *testing.T) {
	t.Helper()
	series, err := p.query(t.Context(), "scrape_samples_scraped")
	if err != nil || len(series) != 3 {
		t.Fatalf("%d processes are scraped, %v, want 3", len(series), err)
	}
	for _, s := range series {
		took, err := p.query(t.Context(), fmt.Sprintf("quantile_over_time(0.5, scrape_duration_seconds{instance=%q}[10m])", s.Metric["instance"]))
		if err != nil || len(took) != 1 {
			t.Fatalf("time of scrapes: %v, %v", took, err)
		}
		n, err := strconv.Atoi(s.text())
		if err != nil || n >= maxSeries {
			t.Errorf("%s has %s series, %v, want less than %d", s.Metric["instance"], s.text(), err, maxSeries)
		}
		t.Logf("| %s | %s series | a scrape takes %s s at the median |", s.Metric["instance"], s.text(), took[0].text())
	}
}

// fault is something that breaks, and the labels of the alert that names it within two minutes.
type fault struct {
	name  string
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
	nodes := strings.Split(e.Redis, ",")
	redis := goredis.NewClient(&goredis.Options{Addr: nodes[0]})
	t.Cleanup(func() { _ = redis.Close() })
	open := func(name string) *engine.Engine {
		opened, err := engine.Open(name, engine.Config{Dir: cmp.Or(os.Getenv("ENGINES_DIR"), "../../.engines"), Detach: true})
		must(err)
		return opened
	}
	server, kafka, hbase := open("redis_cluster"), open("kafka"), open("hbase")
	ctx := context.WithoutCancel(t.Context()) // a fault ends also after a failure
	return []fault{
		{
			"redis",
			`alertname="PlayheadEngineAway",engine="redis"`,
			func() { must(server.Signal(syscall.SIGSTOP)) },
			func() { must(server.Signal(syscall.SIGCONT)) },
		},
		{
			"redis node",
			`alertname="PlayheadEngineNodeAway",engine="redis",node="` + nodes[1] + `"`,
			func() { must(server.Signal(syscall.SIGSTOP, 1)) },
			func() { must(server.Signal(syscall.SIGCONT, 1)) },
		},
		{
			"redis settings",
			`alertname="PlayheadEngineMisconfigured",engine="redis"`,
			func() { must(redis.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err()) },
			func() { must(redis.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err()) },
		},
		{
			"kafka",
			`alertname="PlayheadEngineNodeAway",engine="kafka",node="` + e.Kafka + `"`,
			func() { must(kafka.Signal(syscall.SIGSTOP)) },
			func() { must(kafka.Signal(syscall.SIGCONT)) },
		},
		{
			"hbase",
			`alertname="PlayheadEngineNodeAway",engine="hbase",node="localhost:` + strconv.Itoa(hbase.Nodes[0].Ports[2]) + `"`,
			func() { must(hbase.Kill()) },
			func() { must(hbase.Start(ctx)) },
		},
		{
			"job",
			`alertname="PlayheadArchiveUnmeasured"`,
			func() { stack.Jobs[0].Signal(syscall.SIGSTOP) },
			func() { stack.Jobs[0].Signal(syscall.SIGCONT) },
		},
		{
			"dead letter",
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

// await waits until a number of alerts with the labels fire.
func (p prometheus) await(t *testing.T, what, labels string, want int) {
	t.Helper()
	p.awaitSeries(t, what+" "+labels, `ALERTS{alertstate="firing",`+labels+`}`, want)
}

// awaitSeries waits until an expression has a number of series.
func (p prometheus) awaitSeries(t *testing.T, what, expr string, want int) {
	t.Helper()
	pipeline.Await(t, 2*time.Minute, what, func(ctx context.Context) error {
		found, err := p.query(ctx, expr)
		if err == nil && len(found) != want {
			err = fmt.Errorf("%d series, want %d", len(found), want)
		}
		return err
	})
}

// sample is a series with its present value.
type sample struct {
	Metric map[string]string
	Value  [2]any // time and text
}

func (s sample) text() string { return fmt.Sprint(s.Value[1]) }

// query returns what an expression is at present.
func (p prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	resp, err := process.Get(ctx, string(p)+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ Data struct{ Result []sample } }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Data.Result, err
}
