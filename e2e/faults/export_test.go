package faults

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Sent is an event and whether it was acknowledged.
type Sent struct {
	history.Event
	Acked bool
}

// Judge judges a record of one key.
func Judge(sent []Sent, r *history.Record, cleared int64) (verdict string) {
	s := &story{}
	for _, e := range sent {
		s.events = append(s.events, &event{Event: e.Event, acked: e.Acked})
	}
	switch f := s.judge(r, cleared); {
	case f == nil:
		return ""
	case f.resurrected:
		return "resurrected"
	}
	return "lost"
}

// Proxy opens a proxy and returns its address and what cuts, stalls and closes it.
func Proxy(ctx context.Context, to string) (addr string, cut func(), stall func() func(), end func() error, err error) {
	p, err := openProxy(ctx, to)
	if err != nil {
		return "", nil, nil, nil, err
	}
	return p.addr(), p.cut, p.stall, p.close, nil
}
