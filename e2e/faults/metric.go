package faults

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// metric returns a metric of the process as it runs now, summed over its labels.
func (u *unit) metric(ctx context.Context, name string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+u.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", u.name, err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	found := false
	for lines.Scan() {
		label, value, _ := strings.Cut(lines.Text(), " ")
		if base, _, _ := strings.Cut(label, "{"); base != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s of %s: %w", name, u.name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("%s has no metric %s: %w", u.name, name, lines.Err())
	}
	return sum, nil
}

// total sums a metric over processes.
func total(ctx context.Context, units []*unit, name string) (sum float64, err error) {
	for _, u := range units {
		v, err := u.metric(ctx, name)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// resident returns the memory that the process holds, in bytes.
func (u *unit) resident() (int64, error) {
	u.mu.Lock()
	p := u.p
	u.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	return pages * int64(os.Getpagesize()), nil
}
