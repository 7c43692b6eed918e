package wire

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxMessage is the default bound of a queue's message, in bytes, well below the default limits of brokers.
const MaxMessage = 512 << 10

// Message is a message of the queue: a batch of announced keys of one partition.
type Message struct {
	Partition int
	Payload   []byte
	Keys      []history.Announcement // in the payload
}

// PartitionOf returns the partition of a bucket. A user's announcements share a partition, which keeps their order.
func PartitionOf(b history.Bucket, partitions int) int { return int(b) % partitions }

// Messages divides keys into one message per partition, or more if maxBytes requires; a single key may exceed
// it. A user's keys are adjacent. The input is unchanged; the messages share one copy of it.
func Messages(keys []history.Announcement, partitions, maxBytes int) []Message {
	sorted, ends := divide(keys, partitions)
	var messages []Message
	begin := 0
	for p, end := range ends {
		messages = appendMessages(messages, p, sorted[begin:end:end], maxBytes)
		begin = end
	}
	return messages
}

func appendMessages(dst []Message, partition int, keys []history.Announcement, maxBytes int) []Message {
	if len(keys) == 0 {
		return dst
	}
	payload := AppendBatch(make([]byte, 0, 32*len(keys)), keys)
	if len(payload) <= maxBytes || len(keys) == 1 {
		return append(dst, Message{Partition: partition, Payload: payload, Keys: keys})
	}
	half := len(keys) / 2
	dst = appendMessages(dst, partition, keys[:half:half], maxBytes)
	return appendMessages(dst, partition, keys[half:], maxBytes)
}

// divide sorts keys by partition, bucket and user, and returns the end of each partition. A counting sort
// leaves almost nothing to sort within a bucket.
func divide(keys []history.Announcement, partitions int) (sorted []history.Announcement, ends []int) {
	each := (history.Buckets + partitions - 1) / partitions // buckets per partition
	slots := make([]int, len(keys))
	next := make([]int, each*partitions+1)
	for i, k := range keys {
		b := history.BucketOf(k.Key.UID)
		slots[i] = PartitionOf(b, partitions)*each + int(b)/partitions
		next[slots[i]+1]++
	}
	for s := range next[1:] {
		next[s+1] += next[s]
	}
	sorted = make([]history.Announcement, len(keys))
	for i, k := range keys {
		sorted[next[slots[i]]] = k
		next[slots[i]]++
	}
	begin := 0
	for s, end := range next[:each*partitions] {
		slices.SortStableFunc(sorted[begin:end], byUser)
		if begin = end; s%each == each-1 {
			ends = append(ends, end)
		}
	}
	return sorted, ends
}

func byUser(a, b history.Announcement) int { return strings.Compare(a.Key.UID, b.Key.UID) }

// AppendBatch appends an encoded batch of announced keys. Adjacent keys of one user share the uid. Generated
// code takes twice the CPU (BenchmarkAppendBatch).
func AppendBatch(dst []byte, keys []history.Announcement) []byte {
	for len(keys) > 0 {
		start, uid := len(dst), keys[0].Key.UID
		dst = appendText(dst, tagUID, uid)
		for len(keys) > 0 && keys[0].Key.UID == uid {
			dst = appendObject(dst, keys[0])
			keys = keys[1:]
		}
		dst = framed(dst, start, tagUser)
	}
	return dst
}

func appendObject(dst []byte, d history.Announcement) []byte {
	start := len(dst)
	dst = appendText(dst, tagID, d.Key.Object.ID)
	dst = appendInt(dst, tagType, int64(d.Key.Object.Type))
	if d.Record != nil {
		record := len(dst)
		dst = framed(AppendRecord(dst, d.Record), record, tagRecord)
	}
	return framed(dst, start, tagObject)
}

// Batch decodes a batch of announced keys. It fails with [ErrCorrupt], also for an invalid key: input from a
// queue is not trusted. Generated code takes twice the CPU (BenchmarkBatch).
func Batch(b []byte) ([]history.Announcement, error) {
	return users("batch", b, make([]history.Announcement, 0, len(b)/32), appendUser)
}

// users decodes a message's users and appends the results to all. It fails with [ErrCorrupt].
func users[T any](what string, b []byte, all []T, user func([]T, []byte) ([]T, error)) ([]T, error) {
	s := scanner{rest: b}
	for s.next() {
		if s.tag == tagUser {
			all, s.err = user(all, s.bytes)
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("%s of %d bytes: %w: %w", what, len(b), ErrCorrupt, s.err)
	}
	return all, nil
}

func appendUser(keys []history.Announcement, b []byte) ([]history.Announcement, error) {
	uid, first := "", len(keys)
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagUID:
			uid = s.text()
		case tagObject:
			var d history.Announcement
			d, s.err = object(s.bytes)
			keys = append(keys, d)
		}
	}
	for i := first; i < len(keys); i++ {
		keys[i].Key.UID = uid
	}
	if s.err == nil && len(keys) > first {
		s.err = history.ValidateNamespace(uid)
	}
	return keys, s.err
}

func object(b []byte) (history.Announcement, error) {
	var d history.Announcement
	var record []byte
	o := &d.Key.Object
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagID:
			o.ID = s.text()
		case tagType:
			o.Type = uint32(s.num)
		case tagRecord:
			record = s.bytes
		}
	}
	if s.err == nil && !d.Key.IsUser() {
		s.err = o.Validate()
	}
	if s.err == nil {
		d.Record, s.err = Record(record)
	}
	return d, s.err
}

// AppendDead appends an encoded dead letter.
func AppendDead(dst []byte, d history.Dead) []byte {
	m := &historyv1.DeadLetter{Uid: d.Key.UID, Payload: d.Payload, Cell: d.Cell, Origin: d.Origin, Reason: strings.ToValidUTF8(d.Reason, "?"), TimeMs: d.At}
	if !d.Key.IsUser() {
		m.Object = &historyv1.Object{Id: d.Key.Object.ID, Type: d.Key.Object.Type}
	}
	if d.Record != nil {
		m.Record = AppendRecord(nil, d.Record)
	}
	m.ClearedMs, m.PausedSinceMs, m.PausedUntilMs, m.EarlierPauses = d.User.Cleared, d.User.Pause.Since, d.User.Pause.Until, string(d.User.Pause.Earlier)
	dst, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil { // only for invalid UTF-8, which validation has refused in the key
		panic(fmt.Sprintf("encode dead letter: %v", err))
	}
	return dst
}

// Dead decodes a dead letter. It fails with [ErrCorrupt].
func Dead(b []byte) (history.Dead, error) {
	var m historyv1.DeadLetter
	if err := proto.Unmarshal(b, &m); err != nil {
		return history.Dead{}, fmt.Errorf("dead letter of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	d := history.Dead{
		Key:     history.Key{UID: m.GetUid(), Object: history.Object{ID: m.GetObject().GetId(), Type: m.GetObject().GetType()}},
		User:    history.User{Cleared: m.GetClearedMs(), Pause: history.Pause{Since: m.GetPausedSinceMs(), Until: m.GetPausedUntilMs(), Earlier: history.Pauses(m.GetEarlierPauses())}},
		Payload: m.GetPayload(), Cell: m.GetCell(), Origin: m.GetOrigin(), Reason: m.GetReason(), At: m.GetTimeMs(),
	}
	var err error
	d.Record, err = Record(m.GetRecord())
	return d, err
}

// AppendFirst appends an encoded first sighting of a user's day.
func AppendFirst(dst []byte, f history.First) []byte {
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, &historyv1.FirstOfDay{Uid: f.UID, Date: f.Day.Number(), TimeMs: f.At})
	if err != nil { // only for invalid UTF-8, which validation has refused in the uid
		panic(fmt.Sprintf("encode first of day: %v", err))
	}
	return dst
}

// First decodes a first sighting. It fails with [ErrCorrupt].
func First(b []byte) (history.First, error) {
	var m historyv1.FirstOfDay
	if err := proto.Unmarshal(b, &m); err != nil {
		return history.First{}, fmt.Errorf("first of day of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	day, ok := history.NumberedDay(m.GetDate())
	if !ok {
		return history.First{}, fmt.Errorf("first of day %d: %w", m.GetDate(), ErrCorrupt)
	}
	return history.First{Sighting: history.Sighting{UID: m.GetUid(), Day: day}, At: m.GetTimeMs()}, nil
}

// AppendChanges appends encoded changes. Adjacent changes of one user and origin share both.
func AppendChanges(dst []byte, changes []history.Change) []byte {
	for len(changes) > 0 {
		start, first := len(dst), changes[0]
		dst = appendText(dst, tagUID, first.Key.UID)
		for len(changes) > 0 && together(changes[0], first) {
			if o := changes[0].Key.Object; !first.Key.IsUser() {
				object := len(dst)
				dst = framed(appendInt(appendText(dst, tagID, o.ID), tagType, int64(o.Type)), object, tagObject)
			}
			changes = changes[1:]
		}
		dst = framed(appendFixed(dst, tagOrigin, first.Origin), start, tagUser)
	}
	return dst
}

// AppendMissed appends a marker for missed changes.
func AppendMissed(dst []byte) []byte { return append(dst, 2<<3, 1) }

// Missed reports whether encoded changes have the marker for missed changes.
func Missed(b []byte) (missed bool) {
	s := scanner{rest: b}
	for s.next() {
		missed = missed || s.tag == 2<<3 && s.num != 0
	}
	return missed && s.err == nil
}

func together(a, b history.Change) bool {
	return a.Key.UID == b.Key.UID && a.Origin == b.Origin && a.Key.IsUser() == b.Key.IsUser()
}

// Changes decodes changes. It fails with [ErrCorrupt], also for an invalid key.
func Changes(b []byte) ([]history.Change, error) {
	return users("changes", b, nil, appendChanged)
}

// appendChanged decodes one user's changes; without an object, the whole user changed.
func appendChanged(changes []history.Change, b []byte) ([]history.Change, error) {
	uid, origin, first := "", uint64(0), len(changes)
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagUID:
			uid = s.text()
		case tagObject:
			var c history.Change
			c.Key.Object, s.err = changed(s.bytes)
			changes = append(changes, c)
		case tagOrigin:
			origin = s.num
		}
	}
	if len(changes) == first {
		changes = append(changes, history.Change{})
	}
	for i := first; i < len(changes); i++ {
		changes[i].Key.UID, changes[i].Origin = uid, origin
	}
	if s.err == nil {
		s.err = history.ValidateUID(uid)
	}
	return changes, s.err
}

func changed(b []byte) (o history.Object, err error) {
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagID:
			o.ID = s.text()
		case tagType:
			o.Type = uint32(s.num)
		}
	}
	if s.err == nil {
		s.err = o.Validate()
	}
	return o, s.err
}

// RequestCodec returns the codec for senders of heartbeats. It encodes a stream's batches with generated code,
// at a sixth of the CPU of the reflective default codec (BenchmarkRequestCodec), and delegates other messages.
// Only the receiver checks UTF-8: it refuses a whole batch for one invalid text.
func RequestCodec() encoding.CodecV2 { return requestCodec{encoding.GetCodecV2(grpcproto.Name)} }

type requestCodec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c requestCodec) Marshal(v any) (mem.BufferSlice, error) {
	req, ok := v.(*historyv1.ApplyStreamRequest)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(req.SizeVT())
	if _, err := req.MarshalToSizedBufferVT(*buf); err != nil {
		pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}
