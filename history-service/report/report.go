// Package report has the form in which a heartbeat travels through the service.
package report

import (
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Report is a heartbeat on its way into a record, and what became of it.
type Report struct {
	history.Event
	// IfMatch is the etag of the record that its device knows, 0 when it does not care.
	IfMatch uint64
	// Origin is the connection that it came over, 0 for none.
	Origin uint64
	// Whole is what is folded in instead of the event, which then has its key and its time
	// alone: a record of a backup. Restore says that it comes back where it was removed.
	Whole   *history.Record
	Restore bool
	// Decision is what is decided about the record instead of the event, which then has its key
	// and its time alone.
	Decision Decision
	// Latest says that it is of no time of its own, but later than whatever it meets.
	Latest bool
	// Day is what the device knows of the day, nil when it does not ask.
	Day *historyv1.DayCheck
	// SentAt is when it was sent by the device's clock, 0 when its times are to be trusted.
	SentAt int64
	// ReceivedAt is when the edge received it, in the time of the history, 0 when that is not known.
	ReceivedAt int64
	// Failed says that the playback failed, Incognito that nothing is to be kept of the session.
	Failed, Incognito bool
	// Status is unspecified until it is decided.
	Status historyv1.Status
}

// Decision is one about whether a record is offered to go on with.
type Decision uint8

// The decisions. 0 is none.
const (
	Dismiss Decision = iota + 1
	Offer
)

// NeedsRecord reports whether the report is about a record: without one there is nothing to do.
func (r *Report) NeedsRecord() bool { return r.Decision != 0 || r.Kind.Marks() }

// Counts reports whether the user was there: nobody is whose report was refused.
func (r *Report) Counts() bool {
	switch r.Status {
	case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
		return true
	default:
		return false
	}
}

// kind returns 0 for what no player reports.
func kind(k historyv1.Kind) history.Kind {
	if k < historyv1.Kind_KIND_START || k > historyv1.Kind_KIND_FINISH {
		return 0
	}
	return history.Kind(k) //nolint:gosec // in bounds
}

// Object returns an object of the protocol as one of the domain.
func Object(o *historyv1.Object) history.Object {
	return history.Object{ID: o.GetId(), Type: o.GetType()}
}

// Batch is a batch of reports as a caller sends it.
type Batch struct {
	Sequence      uint64 // among the batches of a stream
	Concurrent    bool   // may be stored beside others of the stream
	Reports       []Report
	ReturnRecords bool
	Ack           historyv1.Ack
}
