package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/playhead/playhead/history-service/hot"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
)

// adminPorts are the processes that a command asks.
type adminPorts struct {
	Admin    []string      `help:"Addresses of admin ports, of all processes of the deployment." default:"127.0.0.1:7071"`
	Patience time.Duration `help:"How long one may take to answer." default:"5s" positive:""`
}

// instance is what a process says of itself at its admin port.
type instance struct {
	addr              string
	err               error             // it does not answer
	failing, degraded map[string]string // of /readyz
	metrics           map[string]*dto.MetricFamily
}

// ask asks all processes, in order.
func (p *adminPorts) ask(ctx context.Context) ([]instance, error) {
	if err := connect.Addresses("--admin", p.Admin...); err != nil {
		return nil, err
	}
	all := make([]instance, len(p.Admin))
	for i, addr := range p.Admin {
		all[i] = instance{addr: addr}
		all[i].err = all[i].read(ctx, p.Patience)
	}
	return all, nil
}

func (p *instance) read(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ready, err := get(ctx, p.addr, "/readyz")
	if err != nil {
		return err
	}
	defer ready.Body.Close()
	var report struct{ Failing, Degraded map[string]string }
	if err := json.NewDecoder(ready.Body).Decode(&report); err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	p.failing, p.degraded = report.Failing, report.Degraded
	metrics, err := get(ctx, p.addr, "/metrics")
	if err != nil {
		return err
	}
	defer metrics.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if p.metrics, err = parser.TextToMetricFamilies(metrics.Body); err != nil {
		return fmt.Errorf("read /metrics: %w", err)
	}
	return nil
}

// askOwner posts a form to the admin port of the process that uses a data directory, and decodes its answer.
func askOwner(ctx context.Context, addr, path string, form url.Values, answer any) error { //nolint:revive // the parts of a request
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s is in use, and --admin does not answer: %w", form.Get("data"), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		reason, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return errors.Join(fmt.Errorf("%s: %s", addr, bytes.TrimSpace(reason)), err)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	return nil
}

func get(ctx context.Context, addr, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// series is one value of a metric, with its labels as text.
type series struct {
	labels map[string]string
	value  float64
}

// series returns the values of a counter or gauge, none if the process does not have it.
func (p *instance) series(name string) (all []series) {
	for _, m := range p.metrics[name].GetMetric() {
		s := series{labels: map[string]string{}, value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
		for _, l := range m.GetLabel() {
			s.labels[l.GetName()] = l.GetValue()
		}
		all = append(all, s)
	}
	return all
}

// most returns the largest value of a metric, and whether the process has it.
func (p *instance) most(name string) (most float64, ok bool) {
	for i, s := range p.series(name) {
		if i == 0 || s.value > most {
			most = s.value
		}
		ok = true
	}
	return most, ok
}

// sum returns the sum of a metric's values.
func (p *instance) sum(name string) (sum float64) {
	for _, s := range p.series(name) {
		sum += s.value
	}
	return sum
}

// printJSON prints v, indented.
func printJSON(out interface{ Write([]byte) (int, error) }, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

type lagFlags struct {
	Limit time.Duration `help:"Age of the oldest unarchived record that is still good." default:"5m"`
	JSON  bool          `name:"json" help:"Print the figures as JSON."`

	adminPorts
}

// Help returns the introduction to --help.
func (*lagFlags) Help() string {
	return `Says how far the archive is behind: the oldest record that is not archived, and what waits in services, in Kafka and for compaction. ` +
		`It ends with an error if the oldest one is older than --limit, or if nobody measures it.`
}

// lags are what waits, over all processes.
type lags struct {
	OldestSeconds  float64 `json:"oldest_seconds"` // of the records that are not archived
	DirtyMarks     float64 `json:"dirty_marks"`
	HeldKeys       float64 `json:"held_keys"`
	KafkaMessages  float64 `json:"kafka_messages"`
	KafkaSeconds   float64 `json:"kafka_seconds"`
	WaitingUsers   float64 `json:"users_waiting_for_compaction"`
	PendingRestore float64 `json:"records_waiting_for_redis"`
}

func lag(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f lagFlags
	if err := run.Parse("playhead lag", &f, args, getenv, out); err != nil {
		return err
	}
	all, err := f.ask(ctx)
	if err != nil {
		return err
	}
	var l lags
	measured := false
	for i := range all {
		p := &all[i]
		if p.err != nil {
			return fmt.Errorf("%s: %w", p.addr, p.err)
		}
		if age, ok := p.most("playhead_job_oldest_mark_age_seconds"); ok { // every job measures all marks
			measured, l.OldestSeconds = true, max(l.OldestSeconds, age)
			l.DirtyMarks = max(l.DirtyMarks, p.sum("playhead_job_dirty_marks"))
		}
		l.add(p)
	}
	if err := l.print(out, f.JSON); err != nil {
		return err
	}
	switch {
	case !measured:
		return fmt.Errorf("no process measures the marks: give the admin port of a job, or wait until Redis answers it")
	case l.OldestSeconds > f.Limit.Seconds():
		return fmt.Errorf("the oldest record has waited %.0f s, %v is good", l.OldestSeconds, f.Limit)
	}
	return nil
}

// add adds what each process knows of its own share.
func (l *lags) add(p *instance) {
	l.HeldKeys += p.sum("playhead_aggregate_held_keys")
	l.KafkaMessages += p.sum("playhead_kafka_consumer_lag_messages")
	l.PendingRestore += p.sum("playhead_job_pending_restores")
	l.KafkaSeconds = max(l.KafkaSeconds, p.sum("playhead_kafka_consumer_lag_seconds"))
	l.WaitingUsers = max(l.WaitingUsers, p.sum("playhead_segments_waiting_users"))
}

func (l *lags) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, l)
	}
	for _, line := range []struct {
		what  string
		value float64
		unit  string
	}{
		{"oldest unarchived record", l.OldestSeconds, " s"},
		{"unarchived records", l.DirtyMarks, ""},
		{"held by services", l.HeldKeys, ""},
		{"uncommitted messages", l.KafkaMessages, ""},
		{"oldest uncommitted message", l.KafkaSeconds, " s"},
		{"users waiting for compaction", l.WaitingUsers, ""},
		{"records waiting for Redis", l.PendingRestore, ""},
	} {
		fmt.Fprintf(out, "%-29s %8.0f%s\n", line.what, line.value, line.unit)
	}
	return nil
}

type hotFlags struct {
	JSON bool `name:"json" help:"Print the figures as JSON."`

	adminPorts
}

// Help returns the introduction to --help.
func (*hotFlags) Help() string {
	return `Says which users and buckets report most, estimated by the services from one in four reports of the latest minute.`
}

func hottest(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f hotFlags
	if err := run.Parse("playhead hot", &f, args, getenv, out); err != nil {
		return err
	}
	if err := connect.Addresses("--admin", f.Admin...); err != nil {
		return err
	}
	var sum hot.Load
	for _, addr := range f.Admin {
		l, err := f.load(ctx, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		sum.Add(l)
	}
	if sum.Trim(); f.JSON {
		return printJSON(out, sum)
	}
	fmt.Fprintf(out, "%8.1f reports/s\n", sum.Rate)
	for _, u := range sum.Users {
		fmt.Fprintf(out, "%8.1f reports/s  user %s, bucket %d\n", u.Rate, u.UID, u.Bucket)
	}
	for _, b := range sum.Buckets {
		fmt.Fprintf(out, "%8.1f reports/s  bucket %d\n", b.Rate, b.Bucket)
	}
	return nil
}

func (f *hotFlags) load(ctx context.Context, addr string) (l hot.Load, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	resp, err := get(ctx, addr, "/hot")
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return l, fmt.Errorf("%s: give the admin ports of services", resp.Status)
	}
	return l, json.NewDecoder(resp.Body).Decode(&l)
}

type drainFlags struct {
	Admin    string        `help:"Address of the admin port of the process to stop." default:"127.0.0.1:7071"`
	Patience time.Duration `help:"How long the stop may take; more than its --lame-duck and --drain together." default:"60s" positive:""`
}

// Help returns the introduction to --help.
func (*drainFlags) Help() string {
	return `Stops a process as SIGTERM does: it turns away from load balancers, serves on for --lame-duck, and drains. ` +
		`The command ends once the process has, or with an error. A supervisor may start it again.`
}

func drain(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f drainFlags
	if err := run.Parse("playhead drain", &f, args, getenv, out); err != nil {
		return err
	}
	if err := connect.Addresses("--admin", f.Admin); err != nil {
		return err
	}
	return f.stop(ctx, out)
}

func (f *drainFlags) stop(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.Admin+"/terminate", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s does not stop on request: %s", f.Admin, resp.Status)
	}
	began := time.Now()
	return f.await(ctx, out, began)
}

// await prints the held keys until the process has closed its admin port.
func (f *drainFlags) await(ctx context.Context, out io.Writer, began time.Time) error {
	held := -1.0
	for {
		p := instance{addr: f.Admin}
		switch err := p.read(ctx, time.Second); {
		case errors.Is(err, syscall.ECONNREFUSED):
			fmt.Fprintf(out, "stopped after %v\n", time.Since(began).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s has not stopped within %v", f.Admin, f.Patience)
		case err == nil:
			if now := p.sum("playhead_aggregate_held_keys"); now != held {
				held = now
				fmt.Fprintf(out, "%.0f keys held\n", held)
			}
		}
		run.Sleep(ctx, 100*time.Millisecond)
	}
}
