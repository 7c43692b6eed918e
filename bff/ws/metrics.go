package ws

import (
	"errors"
	"strconv"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// answered is what messages that were stored count as, beside the codes of failures.
const answered = "answered"

type metrics struct {
	connections     prometheus.Gauge
	messages, beats *prometheus.CounterVec
	closed          *prometheus.CounterVec
	answered        prometheus.Counter   // of messages
	byStatus        []prometheus.Counter // of beats, by historyv1.Status

	pushes, resyncs, coalesced prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_ws_connections", Help: "Connections that are open.",
		}),
		messages: counters("playhead_ws_messages_total", "Messages, by what was answered.", "answer"),
		beats:    counters("playhead_ws_heartbeats_total", "Heartbeats answered, by what became of them.", "status"),
		closed:   counters("playhead_ws_closed_connections_total", "Connections ended, by the status of the first who closed; 1006 is none.", "code"),
	}
	m.pushes = counter("playhead_ws_pushes_total", "Changes that players took.")
	m.resyncs = counter("playhead_ws_pushed_resyncs_total", "Changes that players took which say to read again.")
	m.coalesced = counter("playhead_ws_coalesced_changes_total", "Changes that joined others on a connection which had not taken these yet.")
	for _, answer := range []string{invalid, tooLarge, rateLimited, unavailable, timeout, internal} {
		m.messages.WithLabelValues(answer)
	}
	m.answered = m.messages.WithLabelValues(answered)
	m.byStatus = make([]prometheus.Counter, len(historyv1.Status_name))
	for i := range m.byStatus {
		m.byStatus[i] = m.beats.WithLabelValues(codec.StatusName(historyv1.Status(i))) //nolint:gosec // a small constant range
	}
	if reg != nil {
		reg.MustRegister(m.connections, m.messages, m.beats, m.closed, m.pushes, m.resyncs, m.coalesced)
	}
	return m
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// pushed counts a change that a player took.
func (m *metrics) pushed(c *historyv1.Change) {
	m.pushes.Inc()
	if c.GetResync() {
		m.resyncs.Inc()
	}
}

// stored counts a message that was answered with a result.
func (m *metrics) stored(batch *codec.Batch, resp *historyv1.ApplyResponse) {
	m.answered.Inc()
	for _, s := range resp.GetStatuses() {
		if s < 0 || int(s) >= len(m.byStatus) { // a newer service's
			s = historyv1.Status_STATUS_UNSPECIFIED
		}
		m.byStatus[s].Inc()
	}
	if n := batch.Refused(); n > 0 {
		m.byStatus[historyv1.Status_STATUS_INVALID].Add(float64(n))
	}
}

// ended counts a connection by what ended it. Codes that players make up are one.
func (m *metrics) ended(err error) {
	code := websocket.CloseStatus(err)
	if closing, ok := errors.AsType[*closeError](err); ok {
		code = closing.code
	}
	label := "other"
	switch {
	case code < 0:
		label = "1006"
	case code < 3000, code == expired:
		label = strconv.Itoa(int(code))
	}
	m.connections.Dec()
	m.closed.WithLabelValues(label).Inc()
}
