package client

import (
	"encoding/json"
	"time"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Wakeful is wakeful.
var Wakeful = wakeful

// Upload returns the request body of a message.
func Upload(req *messagev1.StreamRequest) ([]byte, error) {
	return json.Marshal((&poster{Client: &Client{}}).upload(req))
}

// Reply parses a response to a request.
func Reply(text []byte) (*messagev1.ApplyResponse, error) {
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return r.result()
}

// Dates returns the corrected times of reports. Each has its time by the device's clock, and that clock's lead
// over the steady one, both in Unix milliseconds.
func Dates(reports ...[2]int64) (dates []int64) {
	var s serviceClock
	for _, r := range reports {
		it := &item{Heartbeat: &messagev1.Heartbeat{EventTimeMs: r[0]}, zero: time.UnixMilli(r[1])}
		s.date(it)
		dates = append(dates, it.EventTimeMs)
	}
	return dates
}
