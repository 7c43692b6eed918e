package codec

import (
	"fmt"
	"strings"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Reply is the answer to a message of a stream, or a push, which answers none.
type Reply struct {
	Seq     uint64   `json:"seq,omitzero"`
	Results []Result `json:"results,omitzero"`
	Error   *Failure `json:"error,omitzero"`
	Push    *Push    `json:"push,omitzero"`
	// FirstFlag is today, to be sent back, and FirstOfDay says that the user comes for the
	// first time on it.
	FirstFlag  string `json:"first_flag,omitzero"`
	FirstOfDay bool   `json:"first_of_day,omitzero"`
	// NowMS is the time by which events are judged, Unix milliseconds; 0 when not known.
	NowMS int64 `json:"now_ms,omitzero"`
}

// Failure says why a message was not stored.
type Failure struct {
	Code         string `json:"code" enum:"invalid,too_large,rate_limited,unavailable,timeout,internal"`
	Detail       string `json:"detail" doc:"For people."`
	Field        string `json:"field,omitempty" doc:"What is invalid."`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty" doc:"In how many milliseconds to send the same again: nobody knows whether it is stored."`
}

// Result is what became of one heartbeat.
type Result struct {
	Status string      `json:"status" enum:"stored,unchanged,stale,conflict,expired,cleared,paused,invalid,unavailable,unknown" doc:"Send it again only if it is unavailable."`
	Record *Record     `json:"record,omitempty" doc:"The record as it now stands."`
	Error  *FieldError `json:"error,omitempty"`
}

// FieldError says what is wrong with a field.
type FieldError struct {
	Field  string `json:"field" example:"position_ms"`
	Reason string `json:"reason"`
}

// Results returns one result for each heartbeat of the body: what the service
// answered to those that it was sent, and a refusal for the others. Without any
// sent, the answer may be nil.
func (b *Batch) Results(resp *historyv1.ApplyResponse) ([]Result, error) {
	answers, err := b.answers(resp)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(b.refused))
	for i, e := range b.refused {
		if e == nil {
			results[i], answers = answers[0], answers[1:]
			continue
		}
		results[i] = Result{Status: StatusName(historyv1.Status_STATUS_INVALID), Error: (*FieldError)(e)}
	}
	return results, nil
}

// Refused is how many heartbeats of the body could not be read.
func (b *Batch) Refused() (n int) {
	for _, e := range b.refused {
		if e != nil {
			n++
		}
	}
	return n
}

// answers returns one result for each heartbeat sent.
func (b *Batch) answers(resp *historyv1.ApplyResponse) ([]Result, error) {
	sent, statuses, records := len(b.Heartbeats), resp.GetStatuses(), resp.GetRecords()
	if len(statuses) != sent || len(records) != 0 && len(records) != sent {
		return nil, fmt.Errorf("%d statuses and %d records for %d heartbeats", len(statuses), len(records), sent)
	}
	results := make([]Result, sent)
	for i, s := range statuses {
		results[i].Status = StatusName(s)
	}
	for i, it := range records {
		results[i].Record = NewRecord(it)
	}
	for _, r := range resp.GetRefusals() {
		if int(r.Index) < sent {
			results[r.Index].Error = &FieldError{Field: r.Field, Reason: r.Reason}
		}
	}
	return results, nil
}

// NewMarked returns one result for each object of a request to mark.
func NewMarked(req *historyv1.MarkRequest, resp *historyv1.MarkResponse) ([]Result, error) {
	n, statuses, records := len(req.GetObjects()), resp.GetStatuses(), resp.GetRecords()
	if len(statuses) != n || len(records) != n {
		return nil, fmt.Errorf("%d statuses and %d records for %d objects", len(statuses), len(records), n)
	}
	results := make([]Result, n)
	for i := range results {
		results[i] = Result{Status: StatusName(statuses[i]), Record: NewRecord(records[i])}
	}
	return results, nil
}

// StatusName is the protocol's own name in small letters. One that a newer service
// sends, and this edge has no name for, is "unknown": to call it unavailable would
// have the player send it for ever.
func StatusName(s historyv1.Status) string {
	name, ok := historyv1.Status_name[int32(s)]
	if !ok || s == historyv1.Status_STATUS_UNSPECIFIED {
		return "unknown"
	}
	return strings.ToLower(strings.TrimPrefix(name, "STATUS_"))
}

// Statuses returns every status that [Batch.Results] may give.
func Statuses() []string {
	names := make([]string, 0, len(historyv1.Status_name))
	for n := range historyv1.Status_name {
		names = append(names, StatusName(historyv1.Status(n)))
	}
	return names
}

// Today returns what day it is for the player, "" where that is not known, and whether
// this is the first report of the user on it. Where the service says nothing, the day is
// the one that the player said.
func (b *Batch) Today(resp *historyv1.ApplyResponse) (flag string, first bool) {
	known := b.Day.GetKnown()
	for _, d := range resp.GetDays() {
		known, first = d.GetDate(), first || d.GetFirst()
	}
	if known == 0 {
		return "", false
	}
	t := time.Date(int(known/10_000), time.Month(known/100%100), int(known%100), 0, 0, 0, 0, time.UTC)
	return t.Format(time.DateOnly), first
}

// Push is what others have changed in the user's history.
type Push struct {
	Items   []*Record `json:"items,omitempty" nullable:"false" doc:"Records as they now stand."`
	Removed []Object  `json:"removed,omitempty" nullable:"false" doc:"Objects that have none any more."`
	Resync  bool      `json:"resync,omitempty" doc:"More has changed than is told, or may have: read again."`
}

// NewPush returns a change of the service's.
func NewPush(c *historyv1.Change) *Push {
	return &Push{Items: NewRecords(c.GetItems()), Removed: NewObjects(c.GetRemoved()), Resync: c.GetResync()}
}
