package codec

import (
	"math"
	"unicode/utf8"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const wantKind = "want start, progress, pause, seek, stop or finish"

func (d *batchDecoder) field(h *historyv1.Heartbeat, name []byte) {
	switch string(name) {
	case "object":
		h.ObjectId, h.ObjectType = d.object("object.")
	case "kind":
		h.Kind = d.kind()
	case "position_ms":
		h.PositionMs, d.given = d.millis("position_ms")
	case "duration_ms":
		h.DurationMs, _ = d.millis("duration_ms")
	case "event_time":
		h.EventTimeMs = d.time("event_time")
	case "session":
		h.Session = d.text("session", d.last.GetSession())
	case "device":
		h.Device = d.text("device", d.last.GetDevice())
	case "started_at":
		h.StartedAtMs = d.time("started_at")
	case "watched_ms":
		h.WatchedMs, _ = d.millis("watched_ms")
	case "speed":
		h.SpeedPercent = d.speed()
	case "if_match":
		h.IfMatch = d.etag("if_match")
	case "failed":
		h.Failed = d.flag("failed")
	case "incognito":
		h.Incognito = d.flag("incognito")
	case "meta":
		h.Meta = d.meta()
	default:
		d.unknown("", name)
	}
}

func (d *batchDecoder) kind() historyv1.Kind {
	text, _ := d.in.Text()
	switch string(text) {
	case "start":
		return historyv1.Kind_KIND_START
	case "progress":
		return historyv1.Kind_KIND_PROGRESS
	case "pause":
		return historyv1.Kind_KIND_PAUSE
	case "seek":
		return historyv1.Kind_KIND_SEEK
	case "stop":
		return historyv1.Kind_KIND_STOP
	case "finish":
		return historyv1.Kind_KIND_FINISH
	}
	d.refuse("kind", wantKind)
	return historyv1.Kind_KIND_UNSPECIFIED
}

// speed returns percents, 0 for null.
func (d *batchDecoder) speed() uint32 {
	if d.in.Null() {
		return 0
	}
	f, ok := d.in.Float()
	if !ok || f*100 < history.MinSpeed || f*100 > history.MaxSpeed {
		d.refuse("speed", "want a number from 0.25 to 4")
		return 0
	}
	return uint32(math.Round(f * 100))
}

// meta keeps one entry more than is legal: enough for the service to refuse it.
func (d *batchDecoder) meta() map[string]string {
	if d.in.Null() {
		return nil
	}
	if d.in.Kind() != scan.Object {
		d.in.Skip()
		d.refuse("meta", "want an object of strings")
		return nil
	}
	meta := make(map[string]string)
	for name := range d.in.Object() {
		key := string(name)
		text, ok := d.in.Text()
		if !ok || !utf8.ValidString(key) {
			d.refuse("meta", "want an object of strings of whole characters")
		}
		if len(meta) <= history.MaxMetaKeys {
			meta[key] = string(text)
		}
	}
	return meta
}
