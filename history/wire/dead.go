package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// AppendDead appends an encoded dead letter to dst.
func AppendDead(dst []byte, d history.Dead) []byte {
	m := &historyv1.DeadLetter{Uid: d.Key.UID, Payload: d.Payload, Cell: d.Cell, Origin: d.Origin, Reason: strings.ToValidUTF8(d.Reason, "?"), TimeMs: d.At}
	if !d.Key.IsUser() {
		m.Object = &historyv1.Object{Id: d.Key.Object.ID, Type: d.Key.Object.Type}
	}
	if d.Record != nil {
		m.Record = AppendRecord(nil, d.Record)
	}
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, m)
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
		Payload: m.GetPayload(), Cell: m.GetCell(), Origin: m.GetOrigin(), Reason: m.GetReason(), At: m.GetTimeMs(),
	}
	var err error
	d.Record, err = Record(m.GetRecord())
	return d, err
}
