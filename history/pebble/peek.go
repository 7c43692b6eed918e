package pebble

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// summary is what the store itself has to know of an encoded record, a small part of
// what decoding it costs.
type summary struct {
	version  history.Version
	state    history.State
	cellTime int64 // see [history.Record.CellTime]
}

// The numbers of the fields in the message Record, in the order of the bytes.
const (
	fieldCellDrift = 2
	fieldVersion   = 3
	fieldState     = 4
)

// peek reads the summary of an encoded record; of bytes that are not a record it
// returns anything, and decoding will say so.
func peek(record []byte) (s summary) {
	if len(record) < wire.RevisionEnd {
		return s
	}
	record = record[wire.RevisionEnd:]
	drift, n := varintField(record, fieldCellDrift)
	record = record[n:]
	if v, n := varintField(record, fieldVersion); n > 0 {
		s.version, record = history.Version(v), record[n:]
	}
	v, _ := varintField(record, fieldState)
	s.state = history.State(v)
	s.cellTime = s.version.Time() + int64(drift)
	return s
}

func varintField(b []byte, number protowire.Number) (v uint64, n int) {
	if len(b) == 0 || b[0] != byte(protowire.EncodeTag(number, protowire.VarintType)) {
		return 0, 0
	}
	v, n = protowire.ConsumeVarint(b[1:])
	if n < 0 {
		return 0, 0
	}
	return v, n + 1
}
