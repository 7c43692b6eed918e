package codec

import (
	"strings"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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

// Today returns what day it is for the player, "" where that is not known, and whether
// the player is the first to come on it. What the service says nothing of is as the
// player said.
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
