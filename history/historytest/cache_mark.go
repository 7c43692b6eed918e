package historytest

import "github.com/playhead/playhead/history"

func markReplaced(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first := c.record(0)
	old := c.mark(k, first)
	if old <= 0 {
		c.Errorf("first mark: got %d, want a time", old)
	}
	c.marked(k.UID, map[history.Key]history.Mark{k: old})
	mark := c.applied(history.Write{Key: k, Record: c.record(1), Base: first.Revision, Mark: true}).Mark
	if mark <= old {
		c.Errorf("second mark: got %d, want more than %d", mark, old)
	}
	c.marked(k.UID, map[history.Key]history.Mark{k: mark})
}

func markKept(c *cacheCase) {
	k := key(c.user(), 1, 1)
	first := c.record(0)
	mark := c.mark(k, first)
	if got := c.applied(history.Write{Key: k, Record: c.record(1), Base: first.Revision}).Mark; got != 0 {
		c.Errorf("Apply without asking for a mark: got mark %d", got)
	}
	c.marked(k.UID, map[history.Key]history.Mark{k: mark})
}

// markUnique marks one key as fast as it can, settles it now and then, and must
// never see a mark twice.
func markUnique(c *cacheCase) {
	k := key(c.user(), 1, 1)
	seen := map[history.Mark]bool{}
	w := history.Write{Key: k, Mark: true}
	for i := range 200 {
		w.Record = c.record(int64(i))
		mark := c.applied(w).Mark
		if mark == 0 || seen[mark] {
			c.Fatalf("mark %d of %s: got %d again", i, k, mark)
		}
		seen[mark], w.Base = true, w.Record.Revision
		if i%3 == 0 {
			c.settle(history.Dirty{Key: k, Mark: mark})
		}
	}
}
