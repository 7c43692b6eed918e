package allinone_test

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// read asks for one object, which must not be there from before a delete or a clear
// that was acknowledged.
func (m *machine) read() {
	k := m.key()
	resp, err := m.service().Points(m.t.Context(), &historyv1.PointsRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: k.Object.ID, Type: 1}}})
	if err != nil || resp.Items[0].GetObject() == nil {
		return
	}
	gone := m.cleared[k.UID]
	if r := m.acked[k]; r != nil {
		gone = max(gone, r.Reset)
	}
	if at := resp.Items[0].GetEventTimeMs(); at <= gone {
		m.t.Fatalf("%s is seen as of %d, deleted until %d", k, at, gone)
	}
}

// quiet ends all trouble, lets the sweep find what dead services held, and compares.
func (m *machine) quiet() {
	for _, engine := range []string{"cache", "archive", "queue"} {
		m.set(engine, 0)
	}
	time.Sleep(3*modelHold + time.Minute)
	synctest.Wait()
	left, err := m.db.Cache().Overdue(m.t.Context(), buckets(), -time.Hour, 1<<20)
	if err != nil || len(left) > 0 {
		m.t.Fatalf("marks %v are left, %v", left, err)
	}
	for _, uid := range []string{"ann", "bob"} {
		m.compare(uid)
	}
}

// compare looks at the archive and the pages of a user.
func (m *machine) compare(uid string) {
	row, err := m.db.Archive().Row(m.t.Context(), uid)
	if err != nil {
		m.t.Fatal(err)
	}
	cleared := row.Cleared[0]
	if cleared < m.cleared[uid] || cleared > m.tried[uid] {
		m.t.Fatalf("%s is cleared until %d in the archive; acknowledged %d, tried %d", uid, cleared, m.cleared[uid], m.tried[uid])
	}
	if p := m.pause(uid); row.Pause != p {
		m.t.Fatalf("%s is paused as %+v in the archive, and as %+v in the cache", uid, row.Pause, p)
	}
	got, visible := map[history.Object]*history.Record{}, 0
	for _, it := range row.Items {
		got[it.Object] = it.Record
		if !it.Record.Deleted() {
			visible++
		}
	}
	for k, sent := range m.sent {
		if k.UID == uid {
			m.between(k, got[k.Object], m.acked[k].After(cleared), sent.After(cleared))
		}
	}
	if pages := m.pages(uid); len(pages) != visible {
		m.t.Fatalf("%s: the pages have %v, the archive has %d", uid, pages, visible)
	}
}

// between checks that the archive has all that was acknowledged, and nothing that was
// not sent: folds are ordered by what they include.
func (m *machine) between(k history.Key, got, acked, sent *history.Record) {
	got, acked, sent = plain(got), plain(acked), plain(sent)
	if all := plain(history.Merge(got, acked)); !history.Same(all, got) {
		m.t.Fatalf("%s: something acknowledged is lost:\ngot   %+v\nacked %+v", k, got, acked)
	}
	if all := plain(history.Merge(sent, got)); !history.Same(all, sent) {
		m.t.Fatalf("%s: something is there that was not sent:\ngot  %+v\nsent %+v", k, got, sent)
	}
}

// plain leaves out what a fold may differ in without saying anything else.
func plain(r *history.Record) *history.Record {
	if r == nil {
		return nil
	}
	p := *r
	p.Partial, p.Revision = false, 0
	return &p
}

// pages reads all pages of a user, in order and without a repeat.
func (m *machine) pages(uid string) (ids []string) {
	req := &historyv1.ListRequest{Uid: uid, Limit: 3}
	for last := int64(0); ; {
		resp, err := m.services[0].List(m.t.Context(), req)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, it := range resp.Items {
			if at := it.GetEventTimeMs(); slices.Contains(ids, it.Object.Id) || last != 0 && at > last {
				m.t.Fatalf("%s: %s is at the wrong place, after %v", uid, it.Object.Id, ids)
			}
			ids, last = append(ids, it.Object.Id), it.GetEventTimeMs()
		}
		if req.Cursor = resp.Cursor; !resp.HasMore {
			return ids
		}
	}
}
