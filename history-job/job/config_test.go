package job_test

import (
	"testing"

	"github.com/playhead/playhead/history-job/job"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

func TestNew(t *testing.T) {
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	whole := job.Config{Cache: db.Cache(), Archive: db.Archive(), Consumer: memqueue.New(memqueue.Config{})}
	for name, lack := range map[string]func(*job.Config){
		"cache":    func(c *job.Config) { c.Cache = nil },
		"archive":  func(c *job.Config) { c.Archive = nil },
		"consumer": func(c *job.Config) { c.Consumer = nil },
	} {
		cfg := whole
		lack(&cfg)
		if _, err := job.New(cfg); err == nil {
			t.Errorf("no error without %s", name)
		}
	}
	if _, err := job.New(whole); err != nil {
		t.Errorf("new: %v", err)
	}
}

// TestMetrics finds every series from the start, at zero: an alarm on a series that
// is not there stays silent.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	if _, err := job.New(w.config()); err != nil {
		t.Fatal(err)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series++
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != 0 {
				t.Errorf("%s is %v, want 0", f.GetName(), got)
			}
		}
	}
	if series < 18 {
		t.Errorf("%d series, want one for each counter and operation", series)
	}
}
