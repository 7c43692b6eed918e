package codec

import (
	"time"

	"github.com/playhead/playhead/history"
)

const wantTime = "want RFC 3339 with an offset, such as 2026-03-01T20:15:00.000+01:00"

// ParseTime returns the Unix milliseconds of a time in RFC 3339 with an offset,
// after 1970. The error is [history.ErrInvalid] and names the field.
func ParseTime(field string, text []byte) (int64, error) {
	var t time.Time
	// A service takes 0 for "not given", which before 1970 would be a surprise.
	if err := t.UnmarshalText(text); err != nil || t.UnixMilli() <= 0 {
		return 0, history.Invalid(field, wantTime)
	}
	return t.UnixMilli(), nil
}

// FormatTime returns Unix milliseconds as RFC 3339 in UTC, "" for 0.
func FormatTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
