package codec

import (
	"strings"
	"time"

	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxHeartbeats is how many heartbeats one body may hold.
const MaxHeartbeats = 1000

// DecodeBatch reads the body of an upload by uid. A heartbeat that cannot be read is
// refused in [Batch.Results], beside the others. The whole body fails with
// [scan.ErrSyntax], with [ErrTooLarge], and with [history.ErrInvalid] for an unknown
// field anywhere or a wrong one outside the heartbeats.
func DecodeBatch(uid string, body []byte) (*Batch, error) {
	d := batchDecoder{decoder: newDecoder(body, "heartbeats"), uid: uid, batch: &Batch{Records: true}}
	return d.batch, d.decode()
}

// DecodeMessage reads a message of a stream: the body of an upload and its number,
// "seq", from 1 on. Records are only in the answer where the message says so. It
// fails as [DecodeBatch] does; the batch then has its number, if that came first.
func DecodeMessage(uid string, body []byte) (*Batch, error) {
	d := batchDecoder{decoder: newDecoder(body, "heartbeats"), uid: uid, seq: true, batch: &Batch{}}
	err := d.decode()
	if err == nil && d.batch.Seq == 0 {
		err = history.Invalid("body.seq", "required")
	}
	return d.batch, err
}

// Request is what the service is asked for the batch.
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
			d.batch.Day.Known = d.firstFlag()
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

// raise brings what was written as a time long ago to the first that a service takes for milliseconds and
// not for seconds: it is as much expired. Where the clock of sending is as far off, the service corrects both.
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

// next returns the heartbeat to fill, which stays the next one until it is taken.
// Allocating as many again as there are costs a single one nothing.
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
	case !d.given: // taken for 0 it would erase where the user stopped
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

// sentAt returns the time and its offset, "" for none. A clock that starts in 1970 may say
// an earlier time than the first that there is: then it is that one.
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

// firstFlag reads what the player was told before, as 20261121; 0 when nothing.
func (d *decoder) firstFlag() uint32 {
	text := d.text("first_flag", "")
	if text == "" {
		return 0
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		d.refuse("first_flag", wantDate)
		return 0
	}
	return uint32(t.Year()*10_000 + int(t.Month())*100 + t.Day()) //nolint:gosec // four digits, and two times two
}

// timeZone returns the name of a zone. Whether there is such a one, the service knows.
func (d *decoder) timeZone() string {
	zone := d.text("time_zone", "")
	if len(zone) > maxZone || strings.Trim(zone, zoneLetters) != "" {
		d.refuse("time_zone", wantZone)
	}
	return zone
}

const zoneLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/+-:"
