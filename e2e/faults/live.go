package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	readers = 4
	// readPeriod is the time between two reads of a reader, each of all objects of one user.
	readPeriod = 25 * time.Millisecond
)

// read reads what the workers' users watch, points and pages in turns, at each service, and
// judges that nothing acknowledged before a read began is missing in it.
func (l *load) read(ctx context.Context, r *rand.Rand) {
	t := time.NewTicker(readPeriod)
	defer t.Stop()
	for n := 0; ; n++ {
		if uid, objects := l.book.someone(r); uid != "" {
			l.readOne(ctx, l.doors[n%len(l.doors)], uid, objects, n/len(l.doors)%2 == 0 && !l.pages)
		}
		select {
		case <-t.C:
		case <-l.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// readOne reads and judges. A read that fails shows nothing wrong.
func (l *load) readOne(ctx context.Context, d rpcDoor, uid string, objects []history.Object, points bool) { //nolint:revive // one read, spelled out
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	since := l.book.count()
	shown, where := make(map[history.Object]*historyv1.Item), "page meanwhile"
	if points {
		where = "point meanwhile"
		resp, err := d.Points(ctx, pointsOf(uid, objects))
		if err != nil {
			return
		}
		for i, it := range resp.GetItems() {
			shown[objects[i]] = it
		}
	} else {
		resp, err := d.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: 100})
		if err != nil {
			return
		}
		for _, it := range resp.GetItems() {
			shown[history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}] = it
		}
	}
	for _, o := range objects {
		k := history.Key{UID: uid, Object: o}
		f := l.book.judgeRead(k, shown[o], since)
		l.mu.Lock()
		l.res.read(k, where, f)
		l.mu.Unlock()
	}
}

func pointsOf(uid string, objects []history.Object) *historyv1.PointsRequest {
	req := &historyv1.PointsRequest{Uid: uid}
	for _, o := range objects {
		req.Objects = append(req.Objects, &historyv1.Object{Id: o.ID, Type: o.Type})
	}
	return req
}

// someone returns a user who was written to not long ago, with all objects.
func (b *book) someone(r *rand.Rand) (uid string, objects []history.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.recent) == 0 {
		return "", nil
	}
	uid = b.recent[r.IntN(len(b.recent))]
	for n := range perUser {
		o := objectOf(n)
		if b.stories[history.Key{UID: uid, Object: o}] != nil {
			objects = append(objects, o)
		}
	}
	return uid, objects
}

// objectOf returns one of the objects of the load.
func objectOf(n int) history.Object {
	return history.Object{ID: fmt.Sprintf("o_%d", n), Type: uint32(1 + n%3)} //nolint:gosec // small
}

// judgeRead compares what a reader was shown of a key with what had been acknowledged when
// the read began: since is how many acknowledgements there were. What happened later, or
// was not acknowledged, may be in it or not. Of an incomplete item a part may be missing.
func (b *book) judgeRead(k history.Key, it *historyv1.Item, since int) *fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stories[k]
	floor, maybe := b.floors(k, s, since)
	all, _ := s.after(floor)
	sure := only(all, func(e *event) bool { return e.acked && e.turn <= since && e.Kind != history.KindDelete })
	want := latest(sure)
	if it.GetObject() == nil {
		if want == nil || maybe >= want.At {
			return nil
		}
		return lost("nothing is shown, %s was acknowledged before", want)
	}
	v := viewOfItem(it)
	got, f := s.shown(v, floor, want)
	if f != nil || it.GetIncomplete() {
		return f
	}
	if maybe > floor { // what else is hidden nobody knows
		sure = only(sure, func(e *event) bool { return e.At > maybe || e == got })
	}
	if f := v.sums(all, sure, floor); f != nil {
		return f
	}
	return v.details(got, all, sure)
}

// floors returns up to when a key was certainly deleted or cleared when the read began, and
// up to when it may have been since.
func (b *book) floors(k history.Key, s *story, since int) (floor, maybe int64) {
	note := func(at int64, acked bool, turn int) {
		maybe = max(maybe, at)
		if acked && turn <= since {
			floor = max(floor, at)
		}
	}
	for _, e := range s.events {
		if e.Kind == history.KindDelete {
			note(e.At, e.acked, e.turn)
		}
	}
	for _, c := range b.clears[k.UID] {
		if c.covers(k.Object.Type) {
			note(c.until, c.acked, c.turn)
		}
	}
	return floor, maybe
}
