package history

import (
	"context"
	"time"
)

// Day is a day of the calendar, counted from the first of January 1970.
type Day int

const daySeconds = 24 * 3600

// DayOf returns the day that a time falls on, where its zone is.
func DayOf(t time.Time) Day {
	y, m, d := t.Date()
	return Day(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / daySeconds)
}

// Number returns the day as 20261121.
func (d Day) Number() uint32 {
	y, m, day := time.Unix(int64(d)*daySeconds, 0).UTC().Date()
	return uint32(y*10_000 + int(m)*100 + day) //nolint:gosec // for some hundred thousand years
}

// NumberedDay is the inverse of [Day.Number], and reports whether there is such a day.
func NumberedDay(n uint32) (Day, bool) {
	d := DayOf(time.Date(int(n/10_000), time.Month(n/100%100), int(n%100), 0, 0, 0, 0, time.UTC))
	return d, d.Number() == n
}

// SeenDays are the days on which a user was seen, of those that may still be today
// somewhere: the newest times eight, plus one bit for it and each of the two before it. A
// day begins in the east 26 hours before it does in the west, so that no other day can
// come after the newest.
type SeenDays int64

// seenDays is how many of them are remembered.
const seenDays = 3

// With adds a day, and reports whether it is new. Days older than those that are
// remembered count as known.
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

// Newest returns the newest of the days.
func (s SeenDays) Newest() Day { return Day(s >> seenDays) }

// Sighting is a user on a day, in the user's own zone.
type Sighting struct {
	UID string
	Day Day
}

// First is the first sighting of a user on a day.
type First struct {
	Sighting
	At int64 // Unix milliseconds
}

// Seen is what became of a sighting.
type Seen struct {
	First bool
	At    int64 // Unix milliseconds, of the store's clock
	// Err wraps [ErrUnavailable] when the store did not answer: the sighting may have
	// been recorded, and no caller was told that it is the first.
	Err error
}

// Days remembers on which days users were seen, and which first sightings are still to be
// announced. It is as durable as the cache. Its methods may be called from many
// goroutines.
type Days interface {
	// See records sightings, and returns of each, in order, whether it is the first of that
	// user and day: exactly one call is told so. In the same atomic step the first
	// one becomes pending.
	See(ctx context.Context, sightings []Sighting) []Seen
	// PendingFirsts returns first sightings of users of the given buckets that were not called
	// announced, and that are older than age by the store's clock, at most limit of them. With an error
	// it returns what is known: what one part of the store has is not kept back by another one.
	PendingFirsts(ctx context.Context, buckets []Bucket, age time.Duration, limit int) ([]First, error)
	// Announced takes first sightings off what is pending.
	Announced(ctx context.Context, firsts []First) error
}

// Announcer announces first sightings of users on a day.
type Announcer interface {
	// Announce returns when all are announced for certain. After an error some may be: to
	// announce them again does no harm beyond the repetition.
	Announce(ctx context.Context, firsts []First) error
}
