// Package report has the service's internal form of a heartbeat, and its decoder.
package report

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Report is a heartbeat, import or decision on its way into a record, with its result.
type Report struct {
	history.Event
	// IfMatch is the etag of the record that the device knows, 0 for any.
	IfMatch uint64
	// Origin is the sender's connection, 0 for none.
	Origin uint64
	// Whole is an imported record, merged instead of the event. The event then has only its key and time. Restore
	// brings back removed records.
	Whole   *history.Record
	Restore bool
	// Decision is applied instead of the event, which then has only its key and time.
	Decision Decision
	// Latest means that the report has no time of its own and wins over the current record.
	Latest bool
	// Covers moves a delete to the time of its record if that is later and at most Covers.
	Covers int64
	// OnlyRecorded means that the report creates no new record.
	OnlyRecorded bool
	// UnlessCompleted means that the report leaves a completed record unchanged.
	UnlessCompleted bool
	// Day is the device's first-of-day check, nil for none.
	Day *historyv1.DayCheck
	// SentAt is the sending time by the device's clock, Unix ms, 0 if its times can be trusted.
	SentAt int64
	// ReceivedAt is the edge's receiving time, Unix ms, 0 if unknown.
	ReceivedAt int64
	// Late is the possible delay of the event time, in milliseconds, from transport or a device clock that is
	// behind.
	Late int64
	// Failed means that the playback failed, Incognito that the session must not be stored.
	Failed, Incognito bool
	// Trace is the traceparent under which a sampled report is traced, empty for most.
	Trace string
	// Status is unspecified until it is decided.
	Status historyv1.Status
}

// NeedsRecord reports whether the report has an effect only on an existing record.
func (r *Report) NeedsRecord() bool { return r.Decision != 0 || r.Kind.Marks() }

// Counts reports whether the report counts as activity; refused reports do not.
func (r *Report) Counts() bool {
	switch r.Status {
	case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
		return true
	default:
		return false
	}
}

// kind returns 0 for kinds that players do not report.
func kind(k historyv1.Kind) history.Kind {
	if k < historyv1.Kind_KIND_START || k > historyv1.Kind_KIND_FINISH {
		return 0
	}
	return history.Kind(k) //nolint:gosec // in bounds
}

// Object converts an object of the protocol.
func Object(o *historyv1.Object) history.Object {
	return history.Object{ID: o.GetId(), Type: o.GetType()}
}

// Batch is a batch of reports from one caller.
type Batch struct {
	Sequence      uint64 // within a stream
	Concurrent    bool   // may be stored concurrently with others of the stream
	Reports       []Report
	ReturnRecords bool
	Ack           historyv1.Ack
	Traced        bool // a report has a Trace
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// NewBatch returns an empty batch from a pool.
func NewBatch() *Batch { return batches.Get().(*Batch) }

// Free returns a batch to the pool. The strings of its reports stay valid.
func (b *Batch) Free() {
	clear(b.Reports)
	*b = Batch{Reports: b.Reports[:0]}
	batches.Put(b)
}

// Unmarshal decodes an ApplyStreamRequest. The result equals the generated code followed by [OfStream]. It takes a quarter of
// its CPU (BenchmarkDecode): no map per heartbeat, and one shared string per batch. A retained string keeps the whole batch's text in
// memory, so callers copy what they retain. Keys have strings of their own.
func (b *Batch) Unmarshal(data []byte) (err error) {
	var d decoder
	d.texts.Grow(len(data))
	var f field
	var traced []*historyv1.TracedHeartbeat
	for len(data) > 0 && err == nil {
		if data, err = f.next(data); err != nil {
			break
		}
		switch f.tag {
		case 1<<3 | varint:
			b.Sequence = f.num
		case 2<<3 | text:
			err = b.request(&d, f.bytes)
		case 3<<3 | varint:
			b.Concurrent = f.num != 0
		case 4<<3 | text:
			one := new(historyv1.TracedHeartbeat)
			traced, err = append(traced, one), proto.Unmarshal(f.bytes, one)
		}
	}
	b.trace(traced)
	return err
}

// trace sets the traces of reports.
func (b *Batch) trace(traced []*historyv1.TracedHeartbeat) {
	for _, one := range traced {
		if i := int(one.GetIndex()); i < len(b.Reports) {
			b.Reports[i].Trace, b.Traced = one.GetTraceparent(), true
		}
	}
}

// request decodes an ApplyRequest.
func (b *Batch) request(d *decoder, data []byte) error {
	n, err := count(data, 1<<3|text)
	if err != nil {
		return err
	}
	b.Reports = slices.Grow(b.Reports, n)
	var f field
	for len(data) > 0 && err == nil {
		data, _ = f.next(data) // validated by count
		switch f.tag {
		case 1<<3 | text:
			b.Reports = b.Reports[:len(b.Reports)+1]
			err = d.heartbeat(&b.Reports[len(b.Reports)-1], f.bytes)
		case 2<<3 | varint:
			b.ReturnRecords = f.num != 0
		case 3<<3 | varint:
			b.Ack = historyv1.Ack(f.num) //nolint:gosec // as the generated code does
		}
	}
	return err
}

// count returns the number of fields with a tag.
func count(data []byte, tag uint64) (n int, err error) {
	var f field
	for len(data) > 0 {
		if data, err = f.next(data); err != nil {
			return 0, err
		}
		if f.tag == tag {
			n++
		}
	}
	return n, nil
}

// decoder decodes the heartbeats of a batch.
type decoder struct {
	texts   strings.Builder // all strings except keys
	room    []byte
	entries []entry
}

// entry is a metadata entry of a heartbeat, in the decoder's room: bytes from to until are encoded as in
// [history.Meta]. Without pointers it is cheap to sort.
type entry struct {
	key, keyEnd, from, until int
	removed                  bool
}

// heartbeat decodes a Heartbeat.
func (d *decoder) heartbeat(r *Report, data []byte) (err error) {
	var f field
	var uid, object []byte
	d.entries, d.room = d.entries[:0], d.room[:0]
	for len(data) > 0 && err == nil {
		before := data
		if data, err = f.next(data); err != nil {
			return err
		}
		switch f.tag {
		case 1<<3 | text:
			uid, err = f.bytes, f.utf8()
		case 2<<3 | text:
			object, err = f.bytes, f.utf8()
		case 3<<3 | varint:
			r.Key.Object.Type = uint32(f.num) //nolint:gosec // as the generated code does
		case 4<<3 | varint:
			r.Kind = kind(historyv1.Kind(f.num)) //nolint:gosec // as the generated code does
		case 8<<3 | text:
			r.Session, err = d.text(f.bytes), f.utf8()
		case 9<<3 | text:
			r.Device, err = d.text(f.bytes), f.utf8()
		case 10<<3 | text:
			err = d.entry(before[:len(before)-len(data)], f.bytes)
		case 31<<3 | text:
			d.add(history.MetaEntry[[]byte]{Key: f.bytes, Removed: true})
			err = f.utf8()
		case 19<<3 | text:
			if r.Day == nil {
				r.Day = new(historyv1.DayCheck)
			}
			err = proto.UnmarshalOptions{Merge: true}.Unmarshal(f.bytes, r.Day)
		default:
			r.number(&f)
		}
	}
	r.Meta = d.meta()
	d.room = append(append(d.room[:0], uid...), object...)
	key := string(d.room)
	r.Key.UID, r.Key.Object.ID = key[:len(uid)], key[len(uid):]
	return err
}

// number sets a number or flag.
func (r *Report) number(f *field) {
	switch f.tag {
	case 5<<3 | varint:
		r.At = int64(f.num) //nolint:gosec // as the generated code does
	case 6<<3 | varint:
		r.Position = int64(f.num) //nolint:gosec // as the generated code does
	case 7<<3 | varint:
		r.Duration = int64(f.num) //nolint:gosec // as the generated code does
	case 11<<3 | varint:
		r.Failed = f.num != 0
	case 12<<3 | varint:
		r.SentAt = int64(f.num) //nolint:gosec // as the generated code does
	case 13<<3 | varint:
		r.StartedAt = int64(f.num) //nolint:gosec // as the generated code does
	case 14<<3 | varint:
		r.Watched = int64(f.num) //nolint:gosec // as the generated code does
	case 15<<3 | varint:
		r.Speed = int64(uint32(f.num)) //nolint:gosec // as the generated code does
	case 16<<3 | fixed:
		r.IfMatch = f.num
	case 17<<3 | varint:
		r.Incognito = f.num != 0
	case 18<<3 | fixed:
		r.Origin = f.num
	case 20<<3 | varint:
		r.ReceivedAt = int64(f.num) //nolint:gosec // as the generated code does
	}
}

// text appends to the batch's shared string and returns the new substring.
func (d *decoder) text(b []byte) string {
	start := d.texts.Len()
	d.texts.Write(b)
	return d.texts.String()[start:]
}

// entry decodes a metadata entry: its field with tag and length, and its content. [history.Meta] has the same
// encoding, so most fields are copied.
func (d *decoder) entry(field, content []byte) error {
	if key, ok := plain(content); ok && len(field) == len(content)+2 { // a length of one byte, so all are
		at := len(d.room)
		d.room = append(d.room, field...)
		d.entries = append(d.entries, entry{key: at + 4, keyEnd: at + 4 + key, from: at, until: len(d.room)})
		return nil
	}
	return d.anyEntry(content)
}

// plain reports whether an entry of less than 128 bytes has a key and a value, in this order and of valid UTF-8. It
// returns the size of the key.
func plain(content []byte) (key int, ok bool) {
	if len(content) < 4 || content[0] != 1<<3|byte(text) {
		return 0, false
	}
	key = int(content[1])
	value := key + 4 // its index
	ok = value <= len(content) && content[value-2] == 2<<3|byte(text) && value+int(content[value-1]) == len(content) &&
		utf8.Valid(content) // tags and lengths are ASCII, so each text is valid too
	return key, ok
}

func (d *decoder) anyEntry(content []byte) (err error) {
	var e history.MetaEntry[[]byte]
	var f field
	for len(content) > 0 && err == nil {
		if content, err = f.next(content); err != nil {
			return err
		}
		switch f.tag {
		case 1<<3 | text:
			e.Key, err = f.bytes, f.utf8()
		case 2<<3 | text:
			e.Value, err = f.bytes, f.utf8()
		}
	}
	d.add(e)
	return err
}

// add encodes an entry.
func (d *decoder) add(e history.MetaEntry[[]byte]) {
	key := len(d.room)
	d.room = append(d.room, e.Key...)
	from := len(d.room)
	d.room = history.AppendMetaEntry(d.room, e)
	d.entries = append(d.entries, entry{key: key, keyEnd: from, from: from, until: len(d.room), removed: e.Removed})
}

// meta returns the entries sorted by key. For equal keys the last value wins, and a value wins over a removal.
func (d *decoder) meta() history.Meta {
	slices.SortStableFunc(d.entries, func(a, b entry) int {
		if c := bytes.Compare(d.key(a), d.key(b)); c != 0 || a.removed == b.removed {
			return c
		}
		if a.removed {
			return -1
		}
		return 1
	})
	start := d.texts.Len()
	for i, e := range d.entries {
		if i+1 == len(d.entries) || !bytes.Equal(d.key(e), d.key(d.entries[i+1])) {
			d.texts.Write(d.room[e.from:e.until])
		}
	}
	return history.Meta(d.texts.String()[start:])
}

func (d *decoder) key(e entry) []byte { return d.room[e.key:e.keyEnd] }

// Wire types, in the three lowest bits of a tag.
const (
	varint = uint64(protowire.VarintType)
	fixed  = uint64(protowire.Fixed64Type)
	text   = uint64(protowire.BytesType)
)

// field is a field of an encoded message.
type field struct {
	tag   uint64 // number and wire type
	num   uint64 // varint or fixed value
	bytes []byte // any other value
}

// next decodes the first field of a message. Fields of other wire types are skipped, with an unchanged value.
func (f *field) next(data []byte) (rest []byte, err error) {
	tag, n := protowire.ConsumeVarint(data)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	number := tag >> 3
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return nil, errNumber
	}
	f.tag, data = tag, data[n:]
	switch tag & 7 {
	case varint:
		f.num, n = protowire.ConsumeVarint(data)
	case fixed:
		f.num, n = protowire.ConsumeFixed64(data)
	case text:
		f.bytes, n = protowire.ConsumeBytes(data)
	default:
		n = protowire.ConsumeFieldValue(protowire.Number(number), protowire.Type(tag&7), data) //nolint:gosec // in bounds
	}
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return data[n:], nil
}

// utf8 fails if the value is not valid UTF-8.
func (f *field) utf8() error {
	if !utf8.Valid(f.bytes) {
		return errUTF8
	}
	return nil
}

var (
	errNumber = errors.New("field number out of range")
	errUTF8   = errors.New("text is not UTF-8")
)

// OfStream converts a request of a stream to a batch.
func OfStream(req *historyv1.ApplyStreamRequest) *Batch {
	b := Of(req.GetBatch())
	b.Sequence, b.Concurrent = req.GetSequence(), req.GetConcurrent()
	b.trace(req.GetTraced())
	return b
}

// Of converts a request to a batch.
func Of(req *historyv1.ApplyRequest) *Batch {
	b := &Batch{Reports: make([]Report, len(req.GetHeartbeats())), ReturnRecords: req.GetReturnRecords(), Ack: req.GetAck()}
	for i, hb := range req.GetHeartbeats() {
		b.Reports[i] = of(hb)
	}
	return b
}

func of(hb *historyv1.Heartbeat) Report {
	return Report{
		Event: history.Event{
			Key:  history.Key{UID: hb.GetUid(), Object: history.Object{ID: hb.GetObjectId(), Type: hb.GetObjectType()}},
			Kind: kind(hb.GetKind()), At: hb.GetEventTimeMs(), Position: hb.GetPositionMs(), Duration: hb.GetDurationMs(),
			Session: hb.GetSession(), Device: hb.GetDevice(), Meta: history.NewMeta(hb.GetMeta(), hb.GetRemovedMeta()...),
			StartedAt: hb.GetStartedAtMs(), Watched: hb.GetWatchedMs(), Speed: int64(hb.GetSpeedPercent()),
		},
		IfMatch: hb.GetIfMatch(), Origin: hb.GetOrigin(), Day: hb.GetDay(),
		SentAt: hb.GetSentAtMs(), ReceivedAt: hb.GetReceivedAtMs(), Failed: hb.GetFailed(), Incognito: hb.GetIncognito(),
	}
}
