// Package wire turns the domain's types into the bytes that the stores and the
// queue hold, and back. Every adapter uses it, so that a record has one form
// everywhere. The form is defined in proto/history/v1/record.proto.
//
// Every heartbeat encodes a record, so the code is written by hand: encoding takes a
// fifth of the CPU of the generated code, which the tests hold both directions against.
package wire

import "errors"

// ErrCorrupt means that the bytes are not what this package writes.
var ErrCorrupt = errors.New("corrupt")

// RevisionEnd is where the encoded revision of a record ends: bytes 1 to 8 hold it,
// little endian, after its tag. A script that compares revisions reads no more. The
// highest bit, in byte 8, is [history.SettledBit].
const RevisionEnd = 9

// Wire types, as the three lowest bits of a tag.
const (
	wireInt   = 0
	wireFixed = 1
	wireBytes = 2
)

// The tags of a record, as the messages number the fields.
const (
	tagRevision        = 1<<3 | wireFixed
	tagCellDrift       = 2<<3 | wireInt
	tagVersion         = 3<<3 | wireInt
	tagState           = 4<<3 | wireInt
	tagPosition        = 5<<3 | wireInt
	tagDuration        = 6<<3 | wireInt
	tagDurationVersion = 7<<3 | wireInt
	tagSession         = 8<<3 | wireBytes
	tagDevice          = 9<<3 | wireBytes
	tagMeta            = 10<<3 | wireBytes
	tagMetaVersion     = 11<<3 | wireInt
	tagPeak            = 12<<3 | wireBytes
	tagCompletion      = 13<<3 | wireBytes
	tagPlaysBefore     = 14<<3 | wireInt
	tagPlaysBeforeAt   = 15<<3 | wireInt
	tagReset           = 16<<3 | wireInt
	tagPartial         = 17<<3 | wireInt
	tagEarly           = 18<<3 | wireInt
	tagFirmVersion     = 19<<3 | wireInt
	tagFirmPosition    = 20<<3 | wireInt
	tagWatch           = 21<<3 | wireBytes
	tagWatchedBefore   = 22<<3 | wireInt
	tagWatchedBeforeAt = 23<<3 | wireInt
	tagUnknownVersion  = 24<<3 | wireInt
	lastField          = 24 // of a record; what is beyond is unknown

	tagMetaKey   = 1<<3 | wireBytes
	tagMetaValue = 2<<3 | wireBytes

	tagTime         = 1<<3 | wireInt // of a peak, a completion or a watch
	tagPeakPosition = 2<<3 | wireInt
	tagViewing      = 2<<3 | wireFixed
	tagWatched      = 3<<3 | wireInt
)

// The tags of a batch.
const (
	tagUser   = 1<<3 | wireBytes
	tagUID    = 1<<3 | wireBytes
	tagObject = 2<<3 | wireBytes
	tagID     = 1<<3 | wireBytes
	tagType   = 2<<3 | wireInt
	tagRecord = 3<<3 | wireBytes
	tagOrigin = 3<<3 | wireFixed // of a changed user, otherwise as one of a batch
)
