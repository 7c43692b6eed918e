package history

import (
	"strconv"
	"time"
)

// Day is a calendar day: days since January 1, 1970.
type Day int

const daySeconds = 24 * 3600

// DayOf returns the day of a time in its own zone.
func DayOf(t time.Time) Day {
	y, m, d := t.Date()
	return Day(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / daySeconds)
}

// Number returns the day as 20261121.
func (d Day) Number() uint32 {
	y, m, day := time.Unix(int64(d)*daySeconds, 0).UTC().Date()
	return uint32(y*10_000 + int(m)*100 + day) //nolint:gosec // for some hundred thousand years
}

// NumberedDay is the inverse of [Day.Number]; the result is false for an invalid day.
func NumberedDay(n uint32) (Day, bool) {
	d := DayOf(time.Date(int(n/10_000), time.Month(n/100%100), int(n%100), 0, 0, 0, 0, time.UTC))
	return d, d.Number() == n
}

// ParseZone returns a zone of the IANA database, or a fixed offset such as +02:00. The server's own zone, "Local", is
// none. It fails with [ErrInvalid].
func ParseZone(name string) (*time.Location, error) {
	if seconds, ok := offset(name); ok {
		return time.FixedZone(name, seconds), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || loc == time.Local {
		return nil, Invalid("zone", "want a zone such as Europe/Berlin, or an offset such as +02:00")
	}
	return loc, nil
}

// offset parses an offset such as +02:00, up to 14 hours.
func offset(text string) (seconds int, ok bool) {
	if len(text) != len("+02:00") || text[0] != '+' && text[0] != '-' || text[3] != ':' {
		return 0, false
	}
	h, err := strconv.ParseUint(text[1:3], 10, 8)
	m, failed := strconv.ParseUint(text[4:], 10, 8)
	seconds = int(h*3600 + m*60) //nolint:gosec // two digits each
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, err == nil && failed == nil && m < 60 && max(seconds, -seconds) <= 14*3600
}

// SeenDays are a user's recent active days: eight times the newest, plus one bit each for it and the two
// before. A day begins 26 hours earlier in the far east than in the far west, so only three days can be today
// somewhere.
type SeenDays int64

// seenDays is the number of days kept.
const seenDays = 3

// With adds a day and reports whether it is new. Days older than those kept count as known.
func (s SeenDays) With(d Day) (_ SeenDays, first bool) {
	newest, bits := Day(s>>seenDays), s&(1<<seenDays-1)
	if d > newest {
		newest, bits = d, bits<<min(d-newest, seenDays)&(1<<seenDays-1)
	}
	ago := newest - d
	if ago >= seenDays || bits>>ago&1 != 0 {
		return s, false
	}
	return SeenDays(newest)<<seenDays | bits | 1<<ago, true
}

// Newest returns the newest day.
func (s SeenDays) Newest() Day { return Day(s >> seenDays) }

// Sighting is a user's activity on a day, in the user's zone.
type Sighting struct {
	UID string
	Day Day
}

// First is the first sighting of a user on a day.
type First struct {
	Sighting
	At int64 // Unix milliseconds
}

// Seen is the result of a sighting.
type Seen struct {
	First bool
	At    int64 // Unix milliseconds by the store's clock
	// Err wraps [ErrUnavailable] if the store did not answer: the sighting may have been recorded, and First is
	// false.
	Err error
}
