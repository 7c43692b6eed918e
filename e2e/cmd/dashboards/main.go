// Dashboards writes the Grafana dashboards under deploy/observe/dashboards, one JSON file each.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIR")
		os.Exit(2)
	}
	for _, b := range boards {
		if err := b.write(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// board is a dashboard: panels three to a row, in order.
type board struct {
	name, about string
	panels      []panel
}

// panel draws one line for each series of its queries.
type panel struct {
	title, about, unit string
	queries            []query
}

type query struct{ expr, legend string }

func (b board) write(dir string) error {
	d, err := b.build()
	if err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, b.name+".json"), append(text, '\n'), 0o644) //nolint:gosec // for everybody to read
}

var source = common.DataSourceRef{Type: new("prometheus"), Uid: new("${source}")}

// build makes the form that Grafana reads from version 10 on; its successor needs version 12.
//
//nolint:staticcheck // see above
func (b board) build() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder("Playhead: "+b.name).
		Uid("playhead-"+b.name).Description(b.about).Tags([]string{"playhead"}).
		Time("now-1h", "now").Refresh("30s").Timezone("browser").Readonly().
		WithVariable(dashboard.NewDatasourceVariableBuilder("source").Label("Prometheus").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("Playhead").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"playhead"}).AsDropdown(true).KeepTime(true))
	for i, p := range b.panels {
		t := timeseries.NewPanelBuilder().Title(p.title).Description(p.about).Unit(p.unit).Datasource(source).Min(0).
			GridPos(dashboard.GridPos{X: uint32(i % 3 * 8), Y: uint32(i / 3 * 8), W: 8, H: 8}).
			FillOpacity(10).Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
		for n, q := range p.queries {
			t.WithTarget(prometheus.NewDataqueryBuilder().RefId(string(rune('A' + n))).Expr(q.expr).LegendFormat(q.legend).Datasource(source))
		}
		d.WithPanel(t)
	}
	return d.Build()
}

func by(label, expr string) []query { return []query{{expr, "{{" + label + "}}"}} }

func one(expr string) []query { return []query{{expr: expr}} }

func rate(label, metric string) []query {
	return by(label, fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", label, metric))
}

// quantiles draws the median and the 99th percentile of a histogram.
func quantiles(metric string) (all []query) {
	for _, q := range []string{"0.5", "0.99"} {
		all = append(all, query{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket[$__rate_interval])))", q, metric), "quantile " + q})
	}
	return all
}

const (
	perSecond = units.EventsPerSecond
	requests  = units.RequestsPerSecond
	seconds   = units.Seconds
	short     = units.Short
	bytes     = units.BytesIEC
)

var memory = panel{"Memory", "Resident memory of each process.", bytes, by("instance", "process_resident_memory_bytes")}

var cpu = panel{"CPU", "Processor time of each process, in cores.", short, by("instance", "rate(process_cpu_seconds_total[$__rate_interval])")}

var boards = []board{
	{"overview", "Both objectives, and what users get.", []panel{
		{"Heartbeats by answer", "The objective: 99.95 % are not unavailable.", perSecond, rate("status", "playhead_write_heartbeats_total")},
		{"Unavailable", "Share of heartbeats refused as unavailable.", units.PercentUnit, one(`sum(rate(playhead_write_heartbeats_total{status="unavailable"}[$__rate_interval])) / sum(rate(playhead_write_heartbeats_total[$__rate_interval]))`)},
		{"Oldest unarchived record", "The objective: under 5 minutes.", seconds, one("max(playhead_job_oldest_mark_age_seconds)")},
		{"Engines away", "1 while an engine does not answer.", short, by("engine", "max by (engine) (playhead_engine_degraded)")},
		{"Engines unsafe", "1 while an engine's settings let it lose what it has acknowledged.", short, by("engine", "max by (engine) (playhead_engine_misconfigured)")},
		{"Records put into the archive", "", perSecond, one("sum(rate(playhead_job_puts_total[$__rate_interval]))")},
		{"Records refused for good", "They wait in the dead letters.", short, one("sum(increase(playhead_job_refused_records_total[1h]))")},
		cpu, memory,
	}},
	{"edge", "The HTTP and WebSocket edge (bff).", []panel{
		{"Requests by status", "", requests, rate("status", "playhead_api_requests_total")},
		{"Requests by route", "", requests, rate("route", "playhead_api_requests_total")},
		{"Time to answer, 99th percentile", "By route.", seconds, by("route", "histogram_quantile(0.99, sum by (le, route) (rate(playhead_api_request_seconds_bucket[$__rate_interval])))")},
		{"Time to answer over WebSocket", "", seconds, quantiles("playhead_ws_answer_seconds")},
		{"Wait at the edge", "Of the oldest heartbeats of a batch, before it is sent.", seconds, quantiles("playhead_uplink_wait_seconds")},
		{"Exchange with a service", "From sending a batch to its first answer.", seconds, quantiles("playhead_uplink_batch_seconds")},
		{"Heartbeats over HTTP", "By what became of them.", perSecond, rate("status", "playhead_api_heartbeats_total")},
		{"Heartbeats over WebSocket", "By what became of them.", perSecond, rate("status", "playhead_ws_heartbeats_total")},
		{"Connections", "", short, []query{{"sum(playhead_edge_connections)", "HTTP"}, {"sum(playhead_ws_connections)", "WebSocket"}}},
		{"Connections refused or evicted", "", perSecond, []query{{"sum(rate(playhead_edge_refused_connections_total[$__rate_interval]))", "refused"}, {"sum(rate(playhead_edge_evicted_connections_total[$__rate_interval]))", "evicted"}, {"sum(rate(playhead_edge_incomplete_connections_total[$__rate_interval]))", "incomplete"}}},
		{"Calls to the services", "Refused: too many waited, or for too long. Retried: made again.", perSecond, []query{{"sum(rate(playhead_uplink_batches_total[$__rate_interval]))", "batches"}, {"sum(rate(playhead_uplink_refused_calls_total[$__rate_interval]))", "refused"}, {"sum by (cause) (rate(playhead_uplink_retries_total[$__rate_interval]))", "retried: {{cause}}"}}},
		{"Services that are up", "As each edge sees it.", short, by("instance", "playhead_uplink_instances")},
		{"Changes pushed to players", "", perSecond, []query{{"sum(rate(playhead_ws_pushes_total[$__rate_interval]))", "changes"}, {"sum(rate(playhead_ws_pushed_resyncs_total[$__rate_interval]))", "read again"}}},
		cpu, memory,
	}},
	{"service", "history-service: acknowledges, holds and announces.", []panel{
		{"Heartbeats by answer", "", perSecond, rate("status", "playhead_write_heartbeats_total")},
		{"Time to answer, 99th percentile", "By method; ApplyStream is a batch of an edge.", seconds, by("method", "histogram_quantile(0.99, sum by (le, method) (rate(playhead_rpc_request_seconds_bucket[$__rate_interval])))")},
		{"Keys held in memory", "By process. At the limit keys are dropped and left to the sweep.", short, []query{{"sum by (instance) (playhead_aggregate_held_keys)", "{{instance}}"}, {"sum by (instance) (playhead_aggregate_held_keys_limit)", "limit of {{instance}}"}}},
		{"Keys announced and dropped", "", perSecond, []query{{"sum(rate(playhead_aggregate_announced_keys_total[$__rate_interval]))", "announced"}, {"sum(rate(playhead_aggregate_dropped_keys_total[$__rate_interval]))", "dropped"}}},
		{"Failed publishes", "", perSecond, one("sum(rate(playhead_aggregate_failed_publishes_total[$__rate_interval]))")},
		{"Writes tried again", "Another writer was first.", perSecond, one("sum(rate(playhead_write_conflicts_total[$__rate_interval]))")},
		{"Reads of the archive", "For a write older than the cache, and for a page or point.", perSecond, []query{{"sum(rate(playhead_write_archive_bases_total[$__rate_interval]))", "writes"}, {"sum(rate(playhead_read_archive_folds_total[$__rate_interval]))", "reads"}}},
		{"Cold users warmed", "", perSecond, []query{{"sum(rate(playhead_read_warmed_users_total[$__rate_interval]))", "warmed"}, {"sum(rate(playhead_read_failed_warm_ups_total[$__rate_interval]))", "failed"}}},
		{"Changes announced", "", perSecond, []query{{"sum(rate(playhead_notify_announced_changes_total[$__rate_interval]))", "announced"}, {"sum(rate(playhead_notify_dropped_changes_total[$__rate_interval]))", "dropped"}}},
		{"Webhook", "", perSecond, rate("outcome", "playhead_webhook_events_total")},
		cpu, memory,
	}},
	{"job", "history-job: reads records again and writes them to the archive.", []panel{
		{"Oldest unarchived record", "", seconds, by("instance", "playhead_job_oldest_mark_age_seconds")},
		{"Dirty marks", "Records that are not yet archived.", short, one("sum(max by (buckets) (playhead_job_dirty_marks))")},
		{"Records put, swept, restored", "", perSecond, []query{{"sum(rate(playhead_job_puts_total[$__rate_interval]))", "put"}, {"sum(rate(playhead_job_swept_keys_total[$__rate_interval]))", "swept"}, {"sum(rate(playhead_job_restored_records_total[$__rate_interval]))", "restored"}}},
		{"Messages", "", perSecond, []query{{"sum(rate(playhead_job_messages_total[$__rate_interval]))", "dealt with"}, {"sum(rate(playhead_job_skipped_messages_total[$__rate_interval]))", "gone from Kafka"}, {"sum(rate(playhead_job_undecodable_messages_total[$__rate_interval]))", "undecodable"}}},
		{"Exchanges tried again", "By operation.", perSecond, rate("operation", "playhead_job_retries_total")},
		{"Buckets owned", "", short, by("instance", "playhead_job_owned_buckets")},
		{"Workers that failed", "", short, one("sum(increase(playhead_job_failures_total[15m]))")},
		{"Users waiting for compaction", "", short, one("sum(playhead_segments_waiting_users)")},
		{"Longest wait for compaction", "", seconds, one("max(playhead_segments_oldest_note_age_seconds)")},
		{"Records moved to segments", "", perSecond, one("sum(rate(playhead_segments_compacted_records_total[$__rate_interval]))")},
		cpu, memory,
	}},
	{"engines", "Redis, Kafka and HBase, as Playhead sees them.", []panel{
		{"Engines away", "", short, by("engine", "max by (engine) (playhead_engine_degraded)")},
		{"Nodes away", "Redis masters, brokers and region servers, by node.", short, by("node", "max by (node) (playhead_engine_node_degraded)")},
		{"Engines unsafe", "", short, by("engine", "max by (engine) (playhead_engine_misconfigured)")},
		{"Time of a call, 99th percentile", "By engine and operation.", seconds, []query{{"histogram_quantile(0.99, sum by (le, engine, operation) (rate(playhead_engine_call_seconds_bucket[$__rate_interval])))", "{{engine}} {{operation}}"}}},
		{"Calls to Redis refused", "The node was silent, or had too many.", perSecond, by("instance", "rate(playhead_stores_refused_cache_calls_total[$__rate_interval])")},
		{"Messages published to Kafka", "", perSecond, one("sum(rate(playhead_kafka_published_messages_total[$__rate_interval]))")},
		{"Bytes published to Kafka", "Before compression.", units.BytesPerSecondIEC, one("sum(rate(playhead_kafka_published_bytes_total[$__rate_interval]))")},
		{"Archive stalled", "1 while calls to the archive fail at once.", short, by("instance", "playhead_stores_archive_stalled")},
		{"Damaged cells", "", short, one("sum(increase(playhead_stores_damaged_cells_total[1h]))")},
		{"Clocks of the engines", "How far an engine's clock is ahead.", seconds, by("engine", "max by (engine) (playhead_clock_engine_ahead_seconds)")},
	}},
	{"embedded", "The all-in-one: playhead serve and its store.", []panel{
		{"Heartbeats by answer", "", perSecond, rate("status", "playhead_write_heartbeats_total")},
		{"Time of a sync", "Nothing is acknowledged before it.", seconds, quantiles("playhead_pebble_sync_seconds")},
		{"Time to answer", "99th percentile, by route.", seconds, by("route", "histogram_quantile(0.99, sum by (le, route) (rate(playhead_api_request_seconds_bucket[$__rate_interval])))")},
		{"Oldest unarchived record", "", seconds, one("max(playhead_job_oldest_mark_age_seconds)")},
		{"Damaged cells", "", short, one("sum(increase(playhead_pebble_damaged_cells_total[1h]))")},
		{"Clock ahead of the trusted time", "", seconds, by("instance", "playhead_clock_untrusted_seconds")},
		{"Open files", "", short, by("instance", "process_open_fds")},
		cpu, memory,
	}},
}
