package background

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// paceSlice is how long a compaction works in one go beside reports. It then rests, paceRest times as long, so it
	// takes a fifth of a core. Go's scheduler would have a report wait 10 ms behind it.
	paceSlice = time.Millisecond
	paceRest  = 4
	// paceLevels is the number of sublevels of level 0 from which compactions do not rest. A read may ask each of them;
	// Pebble stops writes at 64.
	paceLevels = 16
)

// pace lets reports go before compactions while these have caught up more or less.
type pace struct {
	db      atomic.Pointer[pebble.DB] // nil until it is open
	reports atomic.Int64              // calls so far
}

// file is a compaction's file, written at the pace of the moment in which it begins.
func (p *pace) file(f vfs.File) vfs.File {
	db := p.db.Load()
	if db == nil || db.Metrics().Levels[0].Sublevels >= paceLevels {
		return f
	}
	return &pacedFile{File: f, pace: p, since: time.Now(), reports: p.reports.Load()}
}

type pacedFile struct {
	vfs.File
	pace    *pace
	since   time.Time // begin of this slice
	reports int64     // before this slice
}

func (f *pacedFile) Write(b []byte) (int, error) {
	if worked := time.Since(f.since); worked >= paceSlice {
		if f.pace.reports.Load() != f.reports {
			time.Sleep(paceRest * min(worked, 10*paceSlice))
		}
		f.since, f.reports = time.Now(), f.pace.reports.Load()
	}
	return f.File.Write(b)
}
