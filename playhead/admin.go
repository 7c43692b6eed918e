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
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/playhead/playhead/internal/connect"
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
