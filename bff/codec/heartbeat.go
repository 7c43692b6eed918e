package codec

import (
	"strings"
	"time"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxHeartbeats limits the heartbeats of one body.
const MaxHeartbeats = 1000

// DecodeBatch decodes an upload by uid. A malformed heartbeat is refused alone, in [Batch.Results]. The whole
// body fails with [scan.ErrSyntax] or [ErrTooLarge]. It fails with [history.ErrInvalid] for an unknown field
// anywhere, or an invalid one outside the heartbeats.
func DecodeBatch(uid string, body []byte) (*Batch, error) {
	d := batchDecoder{decoder: newDecoder(body, "heartbeats"), uid: uid, batch: &Batch{Records: true}}
	return d.batch, d.decode()
}

// DecodeMessage decodes a stream message: an upload with a positive sequence number "seq". Records are opt-in.
// It fails as [DecodeBatch] does; the batch then has its sequence number if that came first.
func DecodeMessage(uid string, body []byte) (*Batch, error) {
	d := batchDecoder{decoder: newDecoder(body, "heartbeats"), uid: uid, seq: true, batch: &Batch{}}
	err := d.decode()
	if err == nil && d.batch.Seq == 0 {
		err = history.Invalid("body.seq", "required")
	}
	return d.batch, err
}

// Request returns the request to the service.
func (b *Batch) Request() *historyv1.ApplyRequest {
	if len(b.Heartbeats) > 0 {
		b.Heartbeats[0].Day = b.Day
	}
	return &historyv1.ApplyRequest{Heartbeats: b.Heartbeats, ReturnRecords: b.Records, Ack: b.Ack}
}

func (d *batchDecoder) decode() error {
	if !d.bodyIsObject() {
		return d.in.End()
	}
	var sentAt int64
	var offset string
	d.batch.Day = &historyv1.DayCheck{}
	var listed bool
	for name := range d.in.Object() {
		switch string(name) {
		case "heartbeats":
			d.heartbeats()
			listed = true
		case "sent_at":
			sentAt, offset = d.sentAt()
		case "first_flag":
			d.batch.Day.Known = d.date("first_flag")
		case "time_zone":
			d.batch.Day.Zone = d.timeZone()
		case "ack":
			d.ack()
		case "records":
			d.batch.Records = d.flag("records")
		case "seq":
			d.sequence()
		default:
			d.unknown("", name)
		}
		d.strict()
	}
	if !listed {
		d.in.Fail(history.Invalid("body.heartbeats", "required"))
	}
	if d.batch.Day.Zone == "" {
		d.batch.Day.Zone = offset
	}
	for _, h := range d.batch.Heartbeats {
		h.SentAtMs = sentAt
		if sentAt == 0 || sentAt >= history.MinTime {
			raise(h)
		}
	}
	return d.in.End()
}

// raise clamps old times to history.MinTime; the service would take smaller values for seconds. They stay
// expired. The caller skips it if sent_at is just as old, since the service then corrects both.
func raise(h *historyv1.Heartbeat) {
	h.EventTimeMs = max(h.EventTimeMs, history.MinTime)
	if h.StartedAtMs > 0 {
		h.StartedAtMs = max(h.StartedAtMs, history.MinTime)
	}
}

func (d *batchDecoder) heartbeats() {
	for range d.entries(MaxHeartbeats) {
		h := d.next()
		d.heartbeat(h)
		d.batch.refused = append(d.batch.refused, d.wrong)
		if d.wrong != nil {
			h.Reset()
			d.wrong = nil
			continue
		}
		d.batch.Heartbeats, d.last = append(d.batch.Heartbeats, h), h
		d.slab = d.slab[1:]
	}
}

// next returns the heartbeat to fill; it stays the next one until it is used. The slab doubles with the batch,
// so a single heartbeat costs one allocation.
func (d *batchDecoder) next() *historyv1.Heartbeat {
	if len(d.slab) == 0 {
		d.slab = make([]historyv1.Heartbeat, min(len(d.batch.Heartbeats)+1, 128))
	}
	h := &d.slab[0]
	h.Uid = d.uid
	return h
}

func (d *batchDecoder) heartbeat(h *historyv1.Heartbeat) {
	if d.in.Kind() != scan.Object {
		d.in.Skip()
		d.refuse("heartbeats", "want an object")
		return
	}
	d.given = false
	for name := range d.in.Object() {
		d.field(h, name)
	}
	d.required(h)
}

func (d *batchDecoder) required(h *historyv1.Heartbeat) {
	switch {
	case h.Kind == 0:
		d.refuse("kind", wantKind)
	case h.EventTimeMs == 0:
		d.refuse("event_time", wantTime)
	case !d.given: // a default of 0 would erase the resume point
		d.refuse("position_ms", "required")
	}
}

func (d *batchDecoder) ack() {
	if d.in.Null() {
		return
	}
	switch d.text("ack", "cached") {
	case "cached":
		d.batch.Ack = historyv1.Ack_ACK_CACHED
	case "queued":
		d.batch.Ack = historyv1.Ack_ACK_QUEUED
	default:
		d.refuse("ack", `want "cached" or "queued"`)
	}
}

func (d *batchDecoder) sequence() {
	if !d.seq {
		d.unknown("", []byte("seq"))
		return
	}
	n, ok := d.in.Int()
	if !ok || n < 1 {
		d.refuse("seq", "want a number from 1 on")
		return
	}
	d.batch.Seq = uint64(n)
}

const (
	wantDate = "want a date, such as 2026-11-21"
	wantZone = "want a zone such as Europe/Berlin, or an offset such as +02:00"
	maxZone  = 64 // bytes
)

// sentAt returns the time and its offset, "" for none. A clock that starts in 1970 may be before the epoch;
// such times are clamped to 1 ms.
func (d *decoder) sentAt() (ms int64, offset string) {
	if d.in.Null() {
		return 0, ""
	}
	text, _ := d.in.Text()
	var t time.Time
	if err := t.UnmarshalText(text); err != nil {
		d.refuse("sent_at", wantTime)
		return 0, ""
	}
	if at := len(text) - len("+02:00"); text[at] == '+' || text[at] == '-' {
		offset = string(text[at:])
	}
	return max(t.UnixMilli(), 1), offset
}

// date reads a date as 20261121, or 0 for none.
func (d *decoder) date(field string) uint32 {
	text := d.text(field, "")
	if text == "" {
		return 0
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		d.refuse(field, wantDate)
		return 0
	}
	return uint32(t.Year()*10_000 + int(t.Month())*100 + t.Day()) //nolint:gosec // four digits, and two times two
}

// timeZone returns the zone name. The service checks that it exists.
func (d *decoder) timeZone() string {
	zone := d.text("time_zone", "")
	if len(zone) > maxZone || strings.Trim(zone, zoneLetters) != "" {
		d.refuse("time_zone", wantZone)
	}
	return zone
}

const zoneLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/+-:"
