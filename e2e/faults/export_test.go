package faults

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Sent is an event and whether it was acknowledged.
type Sent struct {
	history.Event
	Acked bool
}

// Judge judges a record of one key.
func Judge(sent []Sent, r *history.Record, cleared int64) (verdict string) {
	return verdictOf(storyOf(sent).judge(r, cleared))
}

// JudgeRead judges a reader's item of a key after since acknowledgements, in order.
func JudgeRead(sent []Sent, since int, r *history.Record) (verdict string) {
	b, k := newBook(), history.Key{UID: "u", Object: history.Object{ID: "o", Type: 1}}
	b.stories[k] = storyOf(sent)
	return verdictOf(b.judgeRead(k, itemOf(r), since))
}

// Compare compares the stores' records of a key with one acknowledged event.
func Compare(e Sent, cached, archived *history.Record) Result {
	c, s := &checker{res: &Result{}}, storyOf([]Sent{e})
	c.compare(history.Key{}, s.judge(cached, 0), s.judge(archived, 0), cached, archived)
	return *c.res
}

func itemOf(r *history.Record) *historyv1.Item {
	if r == nil {
		return &historyv1.Item{}
	}
	return &historyv1.Item{
		Object: &historyv1.Object{Id: "o", Type: 1}, State: historyv1.State(r.State), EventTimeMs: r.Version.Time(), PositionMs: r.Resume(),
		FurthestMs: r.Furthest(), Plays: r.Plays(), WatchedMs: r.Watched(), Session: r.Session, Device: r.Device, Meta: r.Meta.Map(),
	}
}

func storyOf(sent []Sent) *story {
	s := &story{}
	for i, e := range sent {
		s.events = append(s.events, &event{Event: e.Event, acked: e.Acked, turn: i + 1})
	}
	return s
}

func verdictOf(f *fault) string {
	switch {
	case f == nil:
		return ""
	case f.resurrected:
		return "resurrected"
	}
	return "lost"
}

// Proxy opens a proxy. It returns the address and functions that cut, stall and close it.
func Proxy(ctx context.Context, to string) (addr string, cut func(), stall func() func(), end func() error, err error) {
	p, err := openProxy(ctx, to)
	if err != nil {
		return "", nil, nil, nil, err
	}
	return p.addr(), p.cut, p.stall, p.close, nil
}

// Line opens a line. It returns the address and functions that slow, narrow and close it.
func Line(ctx context.Context, to string) (addr string, slow func(time.Duration), narrow func(int64), end func() error, err error) {
	l, err := openLine(ctx, to)
	if err != nil {
		return "", nil, nil, nil, err
	}
	return l.addr(), l.set, l.narrow, l.close, nil
}
