package api

import "github.com/playhead/playhead/bff/codec"

// The bodies of requests, as the document shows them. Package codec reads them. Defaults
// are told in words: generators take a field that has one for one that is always there.

type heartbeatsBody struct {
	SentAt     string            `json:"sent_at,omitempty" format:"date-time" doc:"The device's clock when it sent this, to correct that of the events. Leave it out where they are by now_ms of the answers, which is exact; or where the clock is right."`
	FirstFlag  string            `json:"first_flag,omitempty" format:"date" doc:"What the last answer said. With today's date nothing is looked up."`
	TimeZone   string            `json:"time_zone,omitempty" maxLength:"64" doc:"Where the user's day begins: a zone such as Europe/Berlin, or an offset such as +02:00. By default the offset of sent_at, or else UTC."`
	Ack        string            `json:"ack,omitempty" enum:"cached,queued" doc:"What an answer promises: the cache holds it (this by default), or the queue does too."`
	Records    bool              `json:"records,omitempty" doc:"Whether results carry the records as they now stand; true by default."`
	Heartbeats []codec.Heartbeat `json:"heartbeats" maxItems:"1000" nullable:"false"`
}

type lookupBody struct {
	Objects []codec.Object `json:"objects" minItems:"1" maxItems:"100" nullable:"false"`
}

type deleteBody struct {
	Objects []codec.Object `json:"objects,omitempty" minItems:"1" maxItems:"1000" nullable:"false" doc:"These; or else a range, of which at least one bound is given."`
	Type    uint32         `json:"type,omitempty" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since   string         `json:"since,omitempty" format:"date-time" doc:"Nothing that was last reported before it."`
	Until   string         `json:"until,omitempty" format:"date-time" doc:"Nothing that was last reported after it; now by default."`
}

type dismissBody struct {
	Objects   []codec.Object `json:"objects" minItems:"1" maxItems:"1000" nullable:"false"`
	Dismissed bool           `json:"dismissed,omitempty" doc:"False takes it back: they are offered again. True by default."`
}

type markBody struct {
	Objects   []codec.Object `json:"objects" minItems:"1" maxItems:"1000" nullable:"false"`
	Mark      string         `json:"mark" enum:"watched,unwatched,reset" doc:"Watched: completed, and one play more however often it is marked. Unwatched: no play up to then counts, and a player begins at the start. Reset: a player begins at the start, plays stay." example:"watched"`
	EventTime string         `json:"event_time,omitempty" format:"date-time" doc:"When the user said so; by default now, or right after the latest report."`
}

type settingsBody struct {
	Recording bool `json:"recording" doc:"Whether what players report is kept. Nothing that happens while it is not comes into the history, whenever it is reported."`
}

// Answers.

type results struct {
	Results    []codec.Result `json:"results" nullable:"false" doc:"One for each heartbeat, in order."`
	FirstFlag  string         `json:"first_flag,omitempty" format:"date" doc:"Today, where the user is; to be sent back."`
	FirstOfDay bool           `json:"first_of_day" doc:"The user comes for the first time today."`
	NowMS      int64          `json:"now_ms,omitempty" format:"int64" doc:"What time it is for the history, in milliseconds since 1970: events are judged by it, and not by the edge's clock or the device's."`
}

type page struct {
	Items   []*codec.Record `json:"items" nullable:"false"`
	Cursor  string          `json:"cursor" doc:"Of the next page; empty on the last one."`
	HasMore bool            `json:"has_more"`
}

type found struct {
	Items    []*codec.Record `json:"items" nullable:"false" doc:"May be fewer than the limit, or none, although there is more."`
	Cursor   string          `json:"cursor" doc:"Of the next page; empty on the last one."`
	HasMore  bool            `json:"has_more"`
	Searched uint32          `json:"searched" doc:"How many records were looked at for this page, about 10,000 at most."`
}

type lookup struct {
	Items []*codec.Record `json:"items" nullable:"false" doc:"One for each object, in order; null where there is no record."`
}

type changes struct {
	Items    []*codec.Record `json:"items" nullable:"false" doc:"As they now stand, in the order in which they began to change. One may come again that is the same: compare its etag."`
	Removed  []codec.Object  `json:"removed" nullable:"false" doc:"What has no record any more."`
	Resync   bool            `json:"resync" doc:"What has changed since is not known: read everything, then go on from this token."`
	Token    string          `json:"token" doc:"To go on from."`
	HasMore  bool            `json:"has_more" doc:"There is more to tell already."`
	Settings *settings       `json:"settings"`
}

type viewings struct {
	Items []codec.Viewing `json:"items" nullable:"false" maxItems:"128"`
}

type deleted struct {
	Deleted *uint32 `json:"deleted,omitempty" doc:"How many of the objects had a record."`
	Until   string  `json:"until,omitempty" format:"date-time" doc:"Where no since was given: everything at or before it is gone."`
}

type continueList struct {
	Items []*codec.Record `json:"items" nullable:"false" doc:"Of the newest 1,000 records."`
}

type dismissed struct {
	Found uint32 `json:"found" doc:"How many of the objects had a record; of the others there is nothing to decide." example:"1"`
}

type marked struct {
	Results []codec.Result `json:"results" nullable:"false" doc:"One for each object, in order. Unchanged is what is marked so already, and what has no record, unless it is marked as watched."`
}

type cleared struct {
	Until string `json:"until" format:"date-time" doc:"Everything at or before it is gone."`
}

type settings struct {
	Recording bool   `json:"recording"`
	PausedAt  string `json:"paused_at,omitempty" format:"date-time" doc:"Since when nothing is recorded; absent when it is."`
}

type imported struct {
	Rows     int            `json:"rows"`
	Statuses map[string]int `json:"statuses" doc:"How many rows, by what became of them."`
	Refused  []refusedRow   `json:"refused" nullable:"false" doc:"The rows that are wrong or too old, 1,000 at most."`
}

type importRow struct {
	Line     int               `json:"line,omitempty" minimum:"1"`
	Status   string            `json:"status,omitempty"`
	Error    *codec.FieldError `json:"error,omitempty"`
	Rows     int               `json:"rows,omitempty" doc:"At the end."`
	Statuses map[string]int    `json:"statuses,omitempty" doc:"At the end."`
	Problem  *problem          `json:"problem,omitempty" doc:"At the end, where it had to stop."`
}

type refusedRow struct {
	Line   int               `json:"line" minimum:"1"`
	Status string            `json:"status" enum:"invalid,expired"`
	Error  *codec.FieldError `json:"error,omitempty"`
}
