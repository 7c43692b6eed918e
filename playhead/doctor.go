package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/deploy/observe"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
)

type doctorFlags struct {
	Engines bool `help:"Ask Redis, Kafka and HBase too, at the addresses below. Nothing is changed or created."`
	JSON    bool `name:"json" help:"Print the findings as JSON."`

	adminPorts
	connect.Flags
}

// Help returns the introduction to --help.
func (*doctorFlags) Help() string {
	return `Checks a deployment and says what to change. It reads /readyz and /metrics of the admin ports, and with --engines ` +
		`the settings of Redis, the topics of Kafka and the table of HBase. It ends with an error if there is a fault; warnings are none.`
}

// finding is something to change.
type finding struct {
	Severity string `json:"severity"` // fault or warning
	Where    string `json:"where"`
	Finding  string `json:"finding"`
	Do       string `json:"do"`
}

const (
	aFault   = "fault"
	aWarning = "warning"
)

func doctor(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f doctorFlags
	if err := run.Parse("playhead doctor", &f, args, getenv, out); err != nil {
		return err
	}
	all, err := f.ask(ctx)
	if err != nil {
		return err
	}
	var found []finding
	for i := range all {
		found = append(found, all[i].examine()...)
	}
	found = append(found, versionsApart(all)...)
	if f.Engines {
		engines, err := f.examineEngines(ctx)
		if err != nil {
			return err
		}
		found = append(found, engines...)
	}
	return report(out, found, f.JSON)
}

// report prints the findings, faults first. It fails if there is a fault.
func report(out io.Writer, found []finding, asJSON bool) error {
	slices.SortStableFunc(found, func(a, b finding) int { return strings.Compare(a.Severity, b.Severity) })
	faults := 0
	for _, f := range found {
		if f.Severity == aFault {
			faults++
		}
		if !asJSON {
			fmt.Fprintf(out, "%-8s %s: %s\n%9s%s\n", f.Severity, f.Where, f.Finding, "", f.Do)
		}
	}
	switch {
	case asJSON:
		if err := printJSON(out, struct {
			Findings []finding `json:"findings"`
		}{append([]finding{}, found...)}); err != nil {
			return err
		}
	case len(found) == 0:
		fmt.Fprintln(out, "nothing to change")
	}
	if faults > 0 {
		return fmt.Errorf("%d faults", faults)
	}
	return nil
}

// symptom is a metric that tells of something to change.
type symptom struct {
	metric   string
	bad      func(float64) bool
	severity string
	says     string // with the value
	do       string
}

func above(limit float64) func(float64) bool { return func(v float64) bool { return v > limit } }

var symptoms = []symptom{
	{"playhead_engine_misconfigured", above(0), aFault, "settings may lose what was acknowledged", "the log names the setting; --engines does, too"},
	{"playhead_engine_node_degraded", above(0), aFault, "the node fails calls or refuses writes", "look at its log and memory, or fail over"},
	{"playhead_clock_held", above(0), aFault, "the clock is too far from the trusted time to be followed", "set the clock right, or if it is, POST /clock/confirm on its machine"},
	{"playhead_clock_ahead_seconds", func(v float64) bool { return math.Abs(v) > observe.ClockAhead }, aWarning, "the clock is %.3g s ahead of Redis", "run chrony or another NTP client"},
	{"playhead_clock_engine_ahead_seconds", func(v float64) bool { return math.Abs(v) > observe.EngineClockAhead }, aFault, "its clock is %.3g s ahead and lets data expire by that", "set its clock right"},
	{"playhead_certificate_expires_seconds", func(v float64) bool { return v < 0 }, aFault, "the certificate has expired", "replace its files; no restart is needed"},
	{"playhead_certificate_expires_seconds", func(v float64) bool { return v >= 0 && v < observe.CertificateLeft }, aWarning, "the certificate expires in %.0f s", "replace its files; no restart is needed"},
	{"playhead_job_oldest_mark_age_seconds", above(observe.OldestMark), aFault, "a record has waited %.0f s for the archive", "see whether HBase and the jobs are well; playhead lag"},
	{"playhead_kafka_consumer_lag_seconds", above(observe.ConsumerLag), aWarning, "a message has waited %.0f s for its commit", "see whether HBase is slow, or add jobs"},
	{"playhead_job_pending_restores", above(0), aFault, "%.0f records wait for Redis to take them back", "look at Redis's memory"},
	{"playhead_job_refused_records_total", above(0), aWarning, "%.0f records were refused for good", "playhead replay dead"},
	{"playhead_stores_silent_cache_nodes", above(0), aFault, "%.0f Redis masters do not answer", "fail over, or start them"},
	{"playhead_pebble_damaged_cells_total", above(0), aFault, "%.0f cells cannot be read", "copy the data directory, check the disk, restore a backup"},
	{"playhead_segments_damaged_total", above(0), aFault, "%.0f reads found damaged segments", "playhead replay segments USER"},
	{"playhead_segments_oldest_note_age_seconds", above(observe.OldestNote), aWarning, "a user has waited %.0f s for compaction", "see whether a clock is held or HBase is slow"},
}

// examine returns the findings about a process.
func (p *instance) examine() (found []finding) {
	if p.err != nil {
		return []finding{{aFault, p.addr, "no answer: " + p.err.Error(), "start the process, or correct --admin"}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.failing)) {
		found = append(found, finding{aFault, p.addr, fmt.Sprintf("not ready: %s: %s", name, p.failing[name]), "mend what it names"})
	}
	for _, name := range slices.Sorted(maps.Keys(p.degraded)) {
		found = append(found, finding{aWarning, p.addr, fmt.Sprintf("degraded: %s: %s", name, p.degraded[name]), "mend what it names"})
	}
	for _, s := range symptoms {
		for _, one := range p.series(s.metric) {
			if !s.bad(one.value) {
				continue
			}
			says := s.says
			if strings.Contains(says, "%") {
				says = fmt.Sprintf(says, one.value)
			}
			found = append(found, finding{s.severity, p.at(one.labels), says, s.do})
		}
	}
	return append(found, p.full()...)
}

// at names the process and what a series is about.
func (p *instance) at(labels map[string]string) string {
	where := []string{p.addr}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		where = append(where, labels[name])
	}
	return strings.Join(where, " ")
}

// full returns what is nearly used up.
func (p *instance) full() (found []finding) {
	limits := map[string]float64{}
	for _, s := range p.series("playhead_redis_memory_limit_bytes") {
		limits[s.labels["node"]] = s.value
	}
	for _, s := range p.series("playhead_redis_memory_used_bytes") {
		if limit := limits[s.labels["node"]]; limit > 0 && s.value > observe.Full*limit {
			found = append(found, finding{aWarning, p.at(s.labels), fmt.Sprintf("Redis uses %.0f %% of its memory", 100*s.value/limit), "raise maxmemory, add a master, or lower --keep"})
		}
	}
	held, _ := p.most("playhead_aggregate_held_keys")
	if most, ok := p.most("playhead_aggregate_held_keys_limit"); ok && held > observe.Full*most {
		found = append(found, finding{aWarning, p.addr, fmt.Sprintf("%.0f of %.0f keys are held", held, most), "see whether Kafka is well, or add services"})
	}
	open, _ := p.most("process_open_fds")
	if most, ok := p.most("process_max_fds"); ok && open > observe.Full*most {
		found = append(found, finding{aWarning, p.addr, fmt.Sprintf("%.0f of %.0f file descriptors are open", open, most), "raise LimitNOFILE"})
	}
	return found
}

// versionsApart returns a warning if the processes are of several versions.
func versionsApart(all []instance) []finding {
	of := map[string][]string{}
	for i := range all {
		for _, s := range all[i].series("go_build_info") {
			of[s.labels["version"]] = append(of[s.labels["version"]], all[i].addr)
		}
	}
	if len(of) < 2 {
		return nil
	}
	var texts []string
	for _, version := range slices.Sorted(maps.Keys(of)) {
		texts = append(texts, version+" at "+strings.Join(of[version], ", "))
	}
	return []finding{{aWarning, "all", "versions differ: " + strings.Join(texts, "; "), "finish the upgrade"}}
}

// engineWithin bounds the checks of one engine.
const engineWithin = 10 * time.Second

// examineEngines returns the findings about the engines. What the adapters would log as a warning is one.
func (f *doctorFlags) examineEngines(ctx context.Context) (found []finding, err error) {
	var lines strings.Builder
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	engines := &connect.Engines{Log: log}
	f.Volatile = true // each setting is a finding below
	cache, err := f.Redis.Connect(engines)
	if err != nil {
		return nil, err
	}
	defer cache.Close()
	topics, err := f.Topics(log)
	if err != nil {
		return nil, err
	}
	archive, err := hbase.New(hbase.Config{ZooKeeper: f.ZooKeeper, Table: f.Table, Existing: true, Logger: log})
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	check := func(name, do string, check func(context.Context) error) (well bool) {
		ctx, cancel := context.WithTimeout(ctx, engineWithin)
		defer cancel()
		err := check(ctx)
		if err != nil {
			found = append(found, finding{aFault, name, err.Error(), do})
		}
		return err == nil
	}
	if check("redis", "correct what it names", cache.Prepare) {
		check("redis", "redis-cli config set, and in its configuration file", cache.Fit)
	}
	for _, t := range topics {
		check("kafka", "kafka-configs.sh --alter, or kafka-reassign-partitions.sh for replicas", t.Fit)
		_ = t.Close()
	}
	if check("hbase", "correct what it names", archive.Prepare) {
		found = append(found, f.examineRegions(ctx, archive)...)
	}
	for line := range strings.Lines(lines.String()) {
		found = append(found, finding{aWarning, "engines", strings.TrimSpace(line), "correct what it names"})
	}
	return found, nil
}

// examineRegions returns the findings about the regions of HBase's tables.
func (f *doctorFlags) examineRegions(ctx context.Context, archive *hbase.Archive) (found []finding) {
	spreads, err := archive.Spread(ctx)
	if err != nil {
		return []finding{{aWarning, "hbase", err.Error(), "see that a master runs and answers the user playhead"}}
	}
	for _, s := range spreads {
		found = append(found, uneven(s, f.Regions)...)
	}
	return found
}

// uneven returns a warning if region servers have no region of a table, or far more than others. No table needs more
// than so many regions.
func uneven(s hbase.Spread, enough int) []finding {
	counts := slices.Sorted(maps.Values(s.Regions))
	servers, all := len(counts), 0
	for _, n := range counts {
		all += n
	}
	if all < min(servers, enough) {
		return []finding{{
			aWarning, "hbase", fmt.Sprintf("table %s has regions for %d of %d region servers", s.Table, all, servers),
			fmt.Sprintf("in HBase's shell: split '%s', '80', and once that is compacted '40' and 'c0', and so on: rows begin with two hex digits", s.Table),
		}}
	}
	fewest, most := counts[0], counts[servers-1]
	if share := (all + servers - 1) / servers; most > 2*share || fewest == 0 && all >= servers {
		return []finding{{
			aWarning, "hbase", fmt.Sprintf("region servers have from %d to %d regions of table %s", fewest, most, s.Table),
			"in HBase's shell: balance_switch true, then balancer; hbase.master.loadbalance.bytable makes it count each table for itself",
		}}
	}
	return nil
}

// withoutTime leaves out what a finding does not need.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}
