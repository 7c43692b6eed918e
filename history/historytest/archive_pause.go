package historytest

import "github.com/playhead/playhead/history"

// pauses stores pauses in any order: the one that was changed last stays, beside the
// clear marks and the records of the time.
func (a archive) pauses() {
	uid, now := freshUID(), hourAgo()
	c := cellAt(keyOf(uid, "1_1"), now+500, 1)
	a.put(c)
	all := []history.Pause{
		{Since: now + 300},
		{Since: now + 100},
		{},
		{Since: now + 100, Until: now + 200},
		{Since: now + 300, Until: now + 400},
		{Since: now + 300},
		{Since: now + 401},
	}
	var newest history.Pause
	for i, p := range all {
		u := history.User{Pause: p, Cleared: map[uint32]int64{0: now + int64(i)}}
		if err := a.store.PutUser(a.t.Context(), uid, u); err != nil {
			a.t.Fatalf("put %+v of %s: %v", u, uid, err)
		}
		newest = newest.Newer(p)
		row := a.row(uid)
		if row.Pause != newest || row.Cleared[0] != now+int64(i) || len(row.Items) != 1 {
			a.t.Errorf("row after %+v: got %+v, want pause %+v, and the record", u, row, newest)
		}
	}
	a.want(c.Key, c.Record.After(now+int64(len(all)-1)))
}

// pauseForever stores a pause that is older than what the archive keeps of records.
func (a archive) pauseForever() {
	uid := freshUID()
	p := history.Pause{Since: hourAgo() - 2*history.ArchiveLife}
	if err := a.store.PutUser(a.t.Context(), uid, history.User{Pause: p}); err != nil {
		a.t.Fatal(err)
	}
	if row := a.row(uid); row.Pause != p {
		a.t.Errorf("row: got %+v, want pause %+v", row, p)
	}
}
