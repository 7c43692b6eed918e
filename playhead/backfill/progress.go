package backfill

import (
	"fmt"
	"time"
)

// Progress is how far a copy is.
type Progress struct {
	Rows     int64            `json:"rows"`
	PerSec   float64          `json:"rows_per_second"`
	Percent  float64          `json:"percent,omitempty"` // of the source; 0 is unknown
	Left     int64            `json:"rows_left,omitempty"`
	ETA      float64          `json:"eta_seconds,omitempty"`
	Outcomes map[string]int64 `json:"outcomes"`
}

// Progress returns how far the copy is, nil before it runs. It is safe for concurrent use.
func (c *Copy) Progress() *Progress {
	c.mu.Lock()
	running := c.window != nil
	c.mu.Unlock()
	if !running {
		return nil
	}
	r := c.Report()
	p := &Progress{Rows: r.Rows, PerSec: r.PerSec, Outcomes: r.Outcomes}
	sized, ok := c.Source.(Sized)
	if !ok {
		return p
	}
	read, total := sized.Read()
	if total == 0 || read == 0 || r.Seconds == 0 {
		return p
	}
	done := min(float64(read)/float64(total), 1)
	p.Percent = 100 * done
	p.Left = int64(float64(r.Rows) / done * (1 - done))
	if r.PerSec > 0 {
		p.ETA = float64(p.Left) / r.PerSec
	}
	return p
}

// String returns one line for a terminal.
func (p *Progress) String() string {
	if p.Percent == 0 {
		return fmt.Sprintf("%d rows, %.0f/s", p.Rows, p.PerSec)
	}
	return fmt.Sprintf("%d rows, %.0f/s, %.0f %%, about %d rows and %v left", p.Rows, p.PerSec, p.Percent, p.Left,
		(time.Duration(p.ETA) * time.Second).Round(time.Second))
}
