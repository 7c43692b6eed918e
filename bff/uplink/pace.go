package uplink

import "time"

// pace is how many heartbeats of a lane may be on their way: as many as are answered in
// time. More grow the wait of all until nobody gets an answer before giving up.
type pace struct {
	flying  int           // heartbeats on their way
	quota   int           // how many there may be
	limited bool          // there would be more
	pressed time.Time     // when there last would have been more
	cut     time.Time     // when the quota was cut last
	took    time.Duration // how long the last ones were on their way, on average

	least, first, most int
	patience           time.Duration
}

func newPace(cfg *Config) pace {
	first := 5 * cfg.Batch
	return pace{quota: first, least: cfg.Batch, first: first, most: max(cfg.Queue, 2*maxBatch), patience: cfg.Patience}
}

// room is how many more may leave. Where time is short they leave in small batches, for all
// of a batch is answered at once.
func (p *pace) room() int {
	left := p.quota - p.flying
	if p.cut.IsZero() || p.quota >= 2*maxBatch {
		return left
	}
	return min(left, max(p.quota/window, p.least))
}

// answered takes the first answer to a batch. When its oldest call has used seven tenths of
// its time, there were too many: six tenths are what the next ones shall take.
func (p *pace) answered(b *batch, now time.Time) {
	p.flying -= b.events
	p.took += (now.Sub(b.sent) - p.took) / 4
	took, all := now.Sub(b.oldest.came), b.oldest.time(p.patience)
	switch {
	case took > all*7/10:
		if b.sent.After(p.cut) { // what left before says nothing about the present quota
			p.quota = max(int(int64(p.quota)*int64(all*6/10)/int64(took)), p.least)
			p.cut = now
		}
	case p.limited && took < all/8: // there may be much more
		p.quota = min(p.quota+b.events, p.most)
	case p.limited:
		p.quota = min(p.quota+max(1, b.events*p.least/p.quota), p.most)
	case p.quota > p.first && p.flying < p.quota/4 && now.Sub(p.pressed) > p.patience:
		p.quota = max(p.quota-p.quota/16, p.first) // what a crowd needed once says nothing of now
	}
	if p.limited {
		p.pressed = now
	}
	p.limited = false
}

// time is how long the caller waits at most.
func (p *pending) time(patience time.Duration) time.Duration {
	if deadline, ok := p.ctx.Deadline(); ok {
		return deadline.Sub(p.came)
	}
	return 2 * patience
}
