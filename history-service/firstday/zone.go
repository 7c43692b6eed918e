package firstday

import (
	"strconv"
	"sync"
	"time"
)

// zones remembers a bounded number of time zones by name, since a name is looked up
// on disk.
type zones struct {
	mu    sync.RWMutex
	known map[string]*time.Location
}

const (
	maxZones = 1024 // there are some 600
	maxZone  = 64   // bytes of a name
)

// of returns a zone of the IANA database, or one of an offset such as +02:00. Any other
// name means UTC: no heartbeat is refused for the sake of the day.
func (z *zones) of(name string) *time.Location {
	if name == "" || len(name) > maxZone {
		return time.UTC
	}
	z.mu.RLock()
	loc := z.known[name]
	z.mu.RUnlock()
	if loc == nil {
		loc = zone(name)
		z.remember(name, loc)
	}
	return loc
}

func (z *zones) remember(name string, loc *time.Location) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.known == nil || len(z.known) >= maxZones {
		z.known = make(map[string]*time.Location)
	}
	z.known[name] = loc
}

func zone(name string) *time.Location {
	if seconds, ok := offset(name); ok {
		return time.FixedZone("", seconds)
	}
	if loc, err := time.LoadLocation(name); err == nil && loc != time.Local { // which is the server's own
		return loc
	}
	return time.UTC
}

// offset reads +02:00, up to 14 hours.
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
