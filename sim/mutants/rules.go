package main

// edit replaces a text that occurs once in a file.
type edit struct{ file, old, new string }

// mutant is the product with one rule broken.
type mutant struct {
	name  string
	rule  string // the broken rule, for the table
	edits []edit
	in    string // package whose simulator finds it; default sim
	test  string // test that finds it instead of the simulator
	// equivalent says why nothing can find the mutant
	equivalent string
	// shows is the steps that expose a rarely found mutant
	shows string
}

const (
	merge      = "history/merge.go"
	meta       = "history/meta.go"
	record     = "history/record.go"
	shown      = "history/shown.go"
	viewing    = "history/merge.go"
	play       = "history/play.go"
	watched    = "history/watched.go"
	query      = "history/cache.go"
	rebase     = "history/rebase.go"
	trusted    = "internal/clock/trusted.go"
	pause      = "history/user.go"
	cache      = "sim/cache.go"
	archive    = "sim/archive.go"
	fold       = "history-service/write/fold.go"
	write      = "history-service/write/write.go"
	writer     = "history-service/write/writer.go"
	decide     = "history-service/write/decide.go"
	reclaim    = "history-service/write/reclaim.go"
	namespace  = "history-service/write/namespace.go"
	namespaces = "history-service/read/namespace.go"
	reports    = "history-service/report/decode.go"
	decode     = "history-service/rpc/apply.go"
	page       = "history-service/read/page.go"
	walk       = "history-service/read/walk.go"
	entries    = "history-service/read/entries.go"
	tokens     = "history-service/read/tokens.go"
	points     = "history-service/read/points.go"
	changes    = "history-service/read/changes.go"
	warm       = "history-service/read/warm.go"
	flush      = "history-service/aggregate/hold.go"
	complete   = "history-service/view/view.go"
	jobGo      = "history-job/job/job.go"
	jobPut     = "history-job/job/archive.go"
	jobFold    = "history-job/job/complete.go"
	jobRepair  = "history-job/job/repair.go"
	jobEpoch   = "history-job/job/epoch.go"
	jobState   = "history-job/job/state.go"

	compactGo      = "history/hbase/compact.go"
	pbCompact      = "history/pebble/compact.go"
	hbPut          = "history/hbase/put.go"
	hbGet          = "history/hbase/get.go"
	hbSegments     = "history/hbase/segments.go"
	hbErase        = "history/hbase/erase.go"
	hbCodec        = "history/hbase/codec.go"
	segmentCompact = "history/segment/compact.go"
	segmentRead    = "history/segment/read.go"
)

// Each of these two is equivalent without the other.
var (
	rereadSince = edit{jobRepair, "return j.waiting.since.Add(-2 * j.cfg.SweepAge)", "return j.waiting.since"}
	markRenewed = []edit{
		{cache, "if old, marked := c.marks[k]; !marked || c.last < old {", "if true {"},
		{cache, "\tif w.Base == 0 || w.Base&history.CleanBit != 0 {\n\t\tc.mark(", "\tif w.Mark || w.Base == 0 || w.Base&history.CleanBit != 0 {\n\t\tc.mark("},
	}
)

const eitherIsEnough = "marks say how long something has waited, and the queue is read again from two sweeps before that: either is enough without the other (`marks-forgotten` breaks both)."

// mutants break the stores' rules in their models; history/historytest holds the adapters to the models'
// contract.
var mutants = []mutant{
	// The merge.
	{name: "peaks", rule: "the fold forgets the furthest position", edits: []edit{{merge, "\tm.mergePeaks(other)\n", ""}}},
	{name: "completions", rule: "the fold forgets plays", edits: []edit{{merge, "\tm.mergeCompletions(other)\n", ""}}},
	{name: "watches", rule: "the fold forgets watched time", edits: []edit{{merge, "\tm.mergeWatches(other)\n", ""}}},
	{name: "non-early", rule: "the fold forgets where to go on", edits: []edit{{merge, "\tm.mergeResumePoint(other)\n", ""}}},
	{name: "meta", rule: "the fold forgets metadata", edits: []edit{{merge, "\tm.mergeMeta(other)\n", ""}}},
	{name: "meta-whole", rule: "metadata takes the place of all that there was", edits: []edit{{meta, "\tall := r.metaEntries(room[:0])\n", "\tall := room[:0]\n"}}},
	{name: "meta-removed", rule: "the fold forgets which keys were removed", edits: []edit{{meta, "\tr.Meta, r.MetaVersion = versioned(all, r.Meta, o.Meta)\n", "\tall = slices.DeleteFunc(all, func(e MetaEntry[string]) bool { return e.Removed })\n\tr.Meta, r.MetaVersion = versioned(all, r.Meta, o.Meta)\n"}}},
	{name: "meta-version", rule: "all keys of metadata have the newest version", edits: []edit{{meta, "\t\te.Version = cmp.Or(e.Version, r.MetaVersion)\n", "\t\te.Version = r.MetaVersion\n"}}},
	{name: "duration", rule: "the fold forgets the duration", edits: []edit{{merge, "\tm.mergeDuration(other)\n", ""}}},
	{name: "reset", rule: "a delete takes away only what is known when it comes", edits: []edit{{merge, "removed := max(a.RemovedAt, b.RemovedAt)", "removed := a.RemovedAt"}}},
	{name: "reset-at", rule: "a delete leaves what is of its own millisecond", edits: []edit{{record, "rec.RemovedAt = e.At", "rec.RemovedAt = e.At - 1"}}},
	{name: "latest", rule: "the latest report is the one that came last", edits: []edit{{merge, "if compareLatest(a, b) < 0 {", "if true {"}}},
	{name: "watched-twice", rule: "watched time of one session is added twice", edits: []edit{
		{viewing, "if w.Viewing != o.Viewing || w.At > o.At || w.Watched > o.Watched {", "if w != o {"},
		{watched, "if o.Viewing == w.Viewing {", "if false {"},
	}},
	{name: "watched-deleted", rule: "what a session had played before a delete counts", edits: []edit{{watched, "if r.Restored || ", "if true || "}}},
	{name: "watched-paused", rule: "what a session plays while recording is off counts", edits: []edit{{record, "if e.Watched > 0 && p.Meets(e.StartedAt, e.At) {", "if false {"}}},
	{name: "plays-twice", rule: "a session that reports its end twice counts twice", edits: []edit{{play, "p.Viewing == g.viewing && g.has(p.At) {", "false {"}}},
	{name: "scrub", rule: "a moment at the end is a play", edits: []edit{{play, "g.longest > limit(c.Reach) || g.scrubbed(c, lows)", "g.longest > limit(c.Reach)"}}},
	{name: "play-starts", rule: "a start after the end begins no play", edits: []edit{{play, "		mark(s.At, s.Position == 0 && s.Duration == 0)\n", "		_ = s.At\n"}}},
	{name: "play-lows", rule: "the fold forgets stays below the end", edits: []edit{{merge, "\t\tm.setLows(lows)\n", "\t\t_ = lows\n\t\tm.setLows(nil)\n"}}},
	{name: "early", rule: "the first seconds of a session take away where to go on", edits: []edit{{shown, "if r.ResumesEarlier() {", "if false {"}}},
	{name: "whole", rule: "what is born without the archive counts as whole", edits: []edit{{fold, "delta.Partial = g.lacks()", "delta.Partial = false"}}},
	{name: "whole-damaged", rule: "what is written over a damaged record counts as whole", edits: []edit{{fold, "return !g.user.Complete() || g.base != nil && g.base.Partial", "return !g.user.Complete()"}}},
	{name: "whole-or", rule: "a whole part makes the fold partial and not the reverse", equivalent: "a record stays partial for longer: the job folds the archive into it again, and readers do.", edits: []edit{{merge, "m.Partial = a.Partial && b.Partial", "m.Partial = a.Partial || b.Partial"}}},
	{name: "cell-time", rule: "contents of one time have one cell time", edits: []edit{{record, "r.CellTime = max(r.Version.Time(), r.CellTime+1)", "r.CellTime = r.Version.Time()"}}},
	{name: "cut-time", rule: "a content does not come after what a clear removed", shows: "late reports have brought the cell time of a record ahead of its event time; a clear removes it, and the next report is a millisecond later: its put loses.", edits: []edit{{record, "r.CellTime = max(r.CellTime, u.CutTime+1)", "_ = u.CutTime"}}},
	{name: "skew", rule: "the time of a wrong clock is not corrected", edits: []edit{{decode, "\te.At += skew\n", ""}}},
	{name: "future", rule: "reports of the time to come are taken as they are", edits: []edit{{decode, "\tr.At = min(r.At, now)\n", ""}}},
	{name: "clamp", rule: "more is watched than time has passed", edits: []edit{{decode, "\tr.Clamp()\n", ""}}},

	// The cache.
	{name: "clean-compare", rule: "marking clean does not compare", edits: []edit{{cache, "case e.Record.Revision == s.Revision:", "default:"}}},
	{name: "clean-bit", rule: "marking clean does not set the bit", edits: []edit{{cache, "\t\tr.Revision |= history.CleanBit\n\t\tc.users[s.Key.UID]", "\t\tc.users[s.Key.UID]"}}},
	{name: "clean-user", rule: "marking clean of a user's state does not compare", edits: []edit{{cache, "if e.User.Revision == s.Revision {", "if true {"}}},
	{name: "apply-bit", rule: "a write passes whose base was clean meanwhile", edits: []edit{{cache, "current.Revision == w.Base", "history.SameContent(current.Revision, w.Base)"}}},
	{name: "apply-compare", rule: "a write does not compare", edits: []edit{{cache, "return current != nil && current.Revision == w.Base", "return current != nil"}}},
	{name: "mark-clean", rule: "no mark after a clean base", edits: []edit{{cache, " || w.Base&history.CleanBit != 0", ""}}},
	{name: "mark-new", rule: "no mark for a new record", edits: []edit{{cache, "if w.Base == 0 || w.Base&", "if w.Base&"}}},
	{name: "clear-put", rule: "a clear is not applied to a write without a base", edits: []edit{{cache, "current == nil && w.Cleared >= a.user.ClearedAt(w.Key.Object.Type) &&", "current == nil &&"}}},
	{name: "clear-keeps", rule: "a clear leaves the records that it covers", equivalent: "what a clear mark covers is hidden from every reader and left out by the job, also inside of a later record.", edits: []edit{{cache, "\tc.cut(uid)\n\tc.renumber(a)", "\tc.renumber(a)"}}},
	{name: "clear-revisions", rule: "a clear leaves the revisions of what it leaves", edits: []edit{{cache, "\tc.cut(uid)\n\tc.renumber(a)\n", "\tc.cut(uid)\n\ta.user.Revision = history.NewRevision()\n\tc.made[a.user.Revision] = true\n"}}},
	{name: "clear-mark", rule: "a clear sets no dirty mark", edits: []edit{{cache, "\tc.mark(history.UserKey(uid))\n\treturn a.user.Cleared", "\treturn a.user.Cleared"}}},
	{name: "clear-older", rule: "an older clear undoes a later one", edits: []edit{{cache, "joined[typ] = max(joined[typ], until)", "joined[typ] = until"}}},
	{name: "pause-write", rule: "a birth does not look for a pause that its maker did not know", shows: "a birth is under way, made by a service whose clock is ahead, when recording is switched off by one whose clock is behind; a reader does not see it, and then it lands.", edits: []edit{{cache, " && w.Pause == a.user.Pause", ""}}},
	{name: "pause-compare", rule: "a switch that lands twice undoes a later one", edits: []edit{{cache, "if c.account(uid).user.Pause != from {", "if false {"}}},
	{name: "born-whole", rule: "a birth that comes late counts as whole", shows: "a birth of a complete user is written, and lands once more after a later report of its object was archived and dropped: the cache shows the first report alone.", edits: []edit{{cache, "(w.Record.Partial || a.user.Complete())", "true"}}},
	{name: "pause-revisions", rule: "a pause leaves the revisions", edits: []edit{{cache, "m.Revision = history.NewRevision() | r.Revision&history.CleanBit", "_ = m"}}},
	{name: "pause-bit", rule: "a pause loses that a record was clean", edits: []edit{{cache, "history.NewRevision() | r.Revision&history.CleanBit", "history.NewRevision()"}}},
	{name: "pause-settles", rule: "a pause settles what is not archived", edits: []edit{{cache, "history.NewRevision() | r.Revision&history.CleanBit", "history.NewRevision() | history.CleanBit"}}},
	{name: "trim-dirty", rule: "a trim drops a dirty one", edits: []edit{{cache, "it.Record.Version < bound && it.Record.Clean()", "it.Record.Version < bound"}}},
	{name: "watermark-low", rule: "the low watermark is not raised above what is dropped", edits: []edit{{cache, "it.Record.Version+1)\n\t\t}\n\t}\n}", "0)\n\t\t}\n\t}\n}"}}},
	{name: "watermark-tombstones", rule: "the low watermark is not raised above dropped tombstones", edits: []edit{{cache, "a.user.LowWatermark = max(a.user.LowWatermark, it.Record.Version+1)", "if !tombstones {\n\t\t\t\ta.user.LowWatermark = max(a.user.LowWatermark, it.Record.Version+1)\n\t\t\t}"}}},
	{name: "warm-over", rule: "a warm-up overwrites what came meanwhile", edits: []edit{{cache, "if has := a.records[it.Object]; has != nil {", "if has := a.records[it.Object]; false {"}}},
	{name: "warm-older", rule: "a warm-up with something newer than the cache's leaves the low watermark", shows: "an object is played, then another one, then the first one again, and all is archived; the cache forgets the user; an upload of the first object is older than the second; the user is warmed, and pages of one item are read before anybody has folded the row in: the first object is left out.", edits: []edit{{cache, "u.LowWatermark = max(u.LowWatermark, it.Record.Version+1)", "_ = it"}}},
	{name: "warm-dirty", rule: "what is warmed up counts as not archived", edits: []edit{{cache, "\t\tr.Revision |= history.CleanBit\n\t\ta.records", "\t\ta.records"}}},
	{name: "warm-revisions", rule: "a warm-up that brings clear marks leaves the revisions of what is there", shows: "a service holds a record of a cold user, the warm-up brings a clear mark, and a report of before it is folded into what is held: what is of before the clear is hidden from every reader, and takes the room of a record that has 128 plays or 8 positions (the sequence fill).", edits: []edit{{cache, "if u.Pause != pause || !maps.Equal(u.Cleared, cleared) {", "if u.Pause != pause {"}}},
	{name: "warm-back", rule: "what comes back from the archive behind a clear has the archive's revision", shows: "a service holds a record from before a clear that only the archive knows, and it comes back under the revision that is held: what is of before the clear is hidden from every reader, and takes the room of a record that has 128 plays or 8 positions (the sequence fill).", edits: []edit{{cache, "r.Revision == 0 || u.ClearedAt(it.Object.Type) > 0 {", "r.Revision == 0 {"}}},
	{name: "answer-cold", rule: "an answer of a cold user is whole", edits: []edit{{write, "items[i].Incomplete || g.cold || g.moved", "items[i].Incomplete || g.moved"}}},
	{name: "answer-failed", rule: "a report that failed is answered with the record that was held", edits: []edit{{write, "if g.failed || !all", "if !all"}}},
	{name: "warm-again", rule: "a warm user is warmed again with an old row", edits: []edit{{cache, "\tif a.user.Warm {\n\t\treturn nil\n\t}\n", ""}, {cache, "if has := a.records[it.Object]; has != nil {", "if has := a.records[it.Object]; false {"}}},
	{name: "walk-once", rule: "a walk through pages does not look for what has moved past it", edits: []edit{{walk, "if p.more = since > 0; err", "if p.more = false; err"}}},
	{name: "cursor", rule: "a cursor is off by one", edits: []edit{{query, "q.After.Compare(c) < 0)", "q.After.Compare(c) <= 0)"}}},
	{name: "more", rule: "a full page says that there is no more", edits: []edit{{cache, "page.More = len(page.Items) > q.Limit; page.More", "page.More = len(page.Items) > q.Limit+1; len(page.Items) > q.Limit"}}},

	// The archive.
	{name: "put-late", rule: "a put that comes late takes the place of a newer one", edits: []edit{{archive, "old != nil && old.CellTime > c.Record.CellTime", "false && old != nil"}}},
	{name: "put-pause", rule: "an older pause undoes a newer one", edits: []edit{{archive, "r.user.Pause.Newer(u.Pause)", "u.Pause"}}},
	{name: "get-cleared", rule: "the archive shows what was cleared", equivalent: "every reader and the job apply the clear marks of the cache, and a cold user's come with the row.", edits: []edit{{archive, "e.Record = cell.After(r.user.ClearedAt(k.Object.Type)); cell != nil", "e.Record = cell; cell != nil"}}},

	// The service.
	{name: "lost-answer", rule: "a write without an answer is acknowledged", edits: []edit{{write, "\tdefault:\n\t\tg.fail()\n\t}\n}", "\tdefault:\n\t\tg.written, g.done = w.Record, true\n\t}\n}"}}},
	{name: "load-failed", rule: "a read without an answer counts as an empty one", equivalent: "the write without a base that follows fails where there is a record, and the conflict brings it; only an etag is compared with what the archive has, and a conflict that is none is not judged.", edits: []edit{{write, "\t\t\tgroups[i].fail()\n\t\t\tcontinue\n", ""}}},
	{name: "no-refold", rule: "after a conflict what was held is written as it is", edits: []edit{{write, "g.next = history.Merge(g.cut(current.Record), g.older)", "g.next = history.Merge(nil, history.Merge(g.older, g.held.Record))"}}},
	{name: "conflict-forgets", rule: "after a conflict the reports are not folded again", edits: []edit{{write, "\tg.next = history.Merge(g.cut(current.Record), g.older)\n\tg.fold()\n", "\tg.next, g.done = history.Merge(g.cut(current.Record), g.older), true\n"}}},
	{name: "paused", rule: "a pause is ignored", edits: []edit{{fold, "g.user.Pause.Refuses(e.At, g.batch.reports[i].Late, g.batch.now)", "false"}}},
	{name: "held-pause", rule: "a hold forgets the pause under which it was written", edits: []edit{{write, "g.held.Next(g.written, &g.user, g.cold)", "g.held.Next(g.written, &history.User{Cleared: g.user.Cleared}, g.cold)"}}},
	{name: "cleared", rule: "a report from before a clear is acknowledged", edits: []edit{{fold, "if e.At <= cleared {", "if false {"}}},
	{name: "delete-behind", rule: "a delete by a clock that is behind leaves the record", edits: []edit{{fold, "at := g.next; at != nil && at.Version.Time() <= g.batch.covers", "at := g.next; false && at != nil"}}},
	{name: "clear-behind", rule: "a clear by a clock that is behind leaves records", edits: []edit{{decide, "asked = max(asked, newest)", "_ = newest"}}},
	{name: "switch-behind", rule: "a switch by a clock that is behind covers what was recorded", equivalent: "what was recorded stays; only a report of it that is sent again is answered as paused.", edits: []edit{{decide, "w.latestDecision()), played)", "w.latestDecision()), 0*played)"}}},
	{name: "not-queued", rule: "what is acknowledged as queued is not in the queue", shows: "the queue does not take a record that is acknowledged as queued, and all services and the cache are lost.", edits: []edit{{write, "\tfor _, d := range unsent {\n\t\tgroups[d.Key].fail()\n\t}\n", ""}}},
	{name: "queued-keys", rule: "the queue has the key alone", edits: []edit{{write, "history.Announcement{Key: g.key, Record: r}", "history.Announcement{Key: g.key}"}}},
	{name: "held-whole", rule: "what was held makes a partial record whole", shows: "one service holds a whole record, another one's report of it is archived, and the cache forgets the user; a partial birth follows, the warm-up cannot fold the row into it, and the first service reports on: what it writes counts as whole and lacks the second one's report.", edits: []edit{{write, "current.User.Complete() && (current.Record == nil || !current.Record.Partial)", "current.User.Complete()"}}},
	{name: "cold-point", rule: "a point read of a cold user asks the cache alone", edits: []edit{{entries, "return !e.User.Warm })", "return false })"}}},
	{name: "changes-on", rule: "what is not clean is told once", edits: []edit{{tokens, "t.place, t.changing = t.low, false", "t.place, t.changing = log.Last, false"}}},
	{name: "changes-first", rule: "the first token comes after what is not clean", edits: []edit{{changes, "t.place = log.Entries[i].Place - 1\n", "t.place = log.Entries[i].Place\n"}}},
	{name: "changes-life", rule: "a token is good in another epoch of the cache", edits: []edit{{changes, "since.log == 0 || since.epoch != epoch", "since.log == 0"}}},
	{name: "changes-dropped", rule: "a token is good whatever a trim has dropped", edits: []edit{{tokens, "from >= log.Dropped", "from+1 > 0"}}},
	{name: "changes-whole", rule: "what has left the cache counts as removed", edits: []edit{{changes, "return keys, entries, clean, r.foldWhole(ctx, keys, entries)", "return keys, entries, clean, nil"}}},
	{name: "changes-begin", rule: "a log begins without what is not clean", edits: []edit{{cache, "if !a.records[o].Clean() {", "if false {"}}},
	{name: "changes-clean", rule: "a write on what is clean makes no entry", edits: []edit{{cache, "current == nil || current.Clean() {", "current == nil {"}}},
	{name: "changes-clear", rule: "a log goes on after a clear", edits: []edit{{cache, "\ta.log = changeLog{}\n\tc.cut(uid)", "\tc.cut(uid)"}}},
	{name: "changes-trim", rule: "a trim drops the entry of what is not clean", edits: []edit{{cache, "if r := a.records[e.Object]; r != nil && !r.Clean() {", "if false {"}}},
	{name: "sure", rule: "a page ends at the low watermark", edits: []edit{{page, "\tcase listed.User.Complete():", "\tcase listed.User.Complete(), listed.User.Warm:"}}},
	{name: "warm-watermark", rule: "a warm-up that leaves records out says that it is all", edits: []edit{{warm, "if page.More {\n\t\tw.LowWatermark", "if false {\n\t\tw.LowWatermark"}, {warm, "w.LowWatermark = max(w.LowWatermark, it.Record.Version+1)", "_ = it"}}},
	{name: "warm-clears", rule: "a warm-up leaves out the clear marks", edits: []edit{{warm, "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}", "history.WarmSet{CutTime: page.User.CutTime, Pause: page.User.Pause}"}}},
	{name: "warm-pause", rule: "a warm-up leaves out the pause", edits: []edit{{warm, "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}", "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime}"}}},
	{name: "serve-partial", rule: "a read shows a partial record as if it were whole", edits: []edit{{complete, "return r != nil && r.Partial && !r.Clean() || Damaged(r)", "return Damaged(r)"}}},

	// The job.
	{name: "clean-first", rule: "marking clean before put", edits: []edit{
		{jobPut, "\tif err := j.put(ctx, &b); err != nil {\n\t\treturn nil, err\n\t}\n\tput := append(b.contents(), b.clean...)\n", "\tput := append(b.contents(), b.clean...)\n"},
		{jobPut, "\tj.trim(ctx, b.keys)\n\treturn again, nil\n", "\tif err := j.put(ctx, &b); err != nil {\n\t\treturn nil, err\n\t}\n\tj.trim(ctx, b.keys)\n\treturn again, nil\n"},
	}},
	{name: "put-once", rule: "a put that failed in part is clean in whole", edits: []edit{{jobPut, "again, last = append(again, cells[i]), err", "_ = err"}}},
	{name: "left-clean", rule: "what the archive did not answer for is clean", edits: []edit{{jobPut, "if !left[k] {", "if len(left) > 0 {"}}},
	{name: "no-users", rule: "clear marks and pauses do not reach the archive", edits: []edit{{jobPut, "k.IsUser() && (len(u.Cleared) > 0", "false && (len(u.Cleared) > 0"}}},
	{name: "no-fold", rule: "a partial record is archived as it is", edits: []edit{{jobFold, "case e.Record != nil && (e.Record.Partial || suspect):", "case e.Record != nil && e.Record.State == 0 && suspect:"}}},
	{name: "clean-now", rule: "the job marks clean what it read after the put", edits: []edit{{jobPut, "\tput := append(b.contents(), b.clean...)\n", "\tif loaded, err = j.load(ctx, b.keys); err != nil {\n\t\treturn nil, err\n\t}\n\tb.keys, b.entries = loaded.keys, loaded.entries\n\tput := append(b.contents(), b.clean...)\n"}}},
	{name: "skip-unsettled", rule: "the job leaves out what is not clean", edits: []edit{{jobFold, "case e.Record.Clean(): // the archive has it already", "case e.Record != nil && !e.Record.Clean():\n\t\tcase e.Record.Clean():"}}},
	{name: "no-restore", rule: "what the queue has is not given back", edits: []edit{{jobRepair, "if merged == nil || history.Same(merged, held) && !laterCell(g.contents[k], e.Record) {", "if true {"}}},
	{name: "left-behind", rule: "what could not be compared with a new cache is not compared later", edits: []edit{{jobRepair, "j.unverified.replace(part, left)", "j.unverified.replace(part, left[:0])"}}},
	{name: "restore-cleared", rule: "what was cleared is given back", edits: []edit{{jobRepair, "return e.User.Cut(r, k.Object.Type)", "return r"}}},
	{name: "restore-whole", rule: "what is given back counts as whole", edits: []edit{{jobRepair, "w.Record.Partial = true", "w.Record.Partial = false"}}},
	{name: "no-repair", rule: "a cache that came back older is not repaired", edits: []edit{{jobRepair, "if err := j.repair(ctx, name); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{name: "no-fence", rule: "contents of a cache that is not compared yet are put", shows: "the cache comes back older after the job has loaded contents of the epoch before; it puts them before it has asked which epoch the cache is in.", edits: []edit{{jobPut, "if err := j.sameEpoch(ctx, epoch); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{name: "repair-beside", rule: "a repair does not wait for puts under way", shows: "a put waits while the cache comes back older and the service that held the record is dead; the repair reads the archive before the put lands: the cache stays older than the archive, without a mark.", edits: []edit{{jobRepair, "\tcase j.archiving <- struct{}{}:\n\t\tdefer func() { <-j.archiving }()\n", "\tdefault:\n"}}},
	{name: "no-doubt", rule: "what is archived after the cache came back older is not folded with what another job has archived", shows: "a job archives a content and another one is given the key; the cache comes back older, and the other job, which knows nothing of it, puts what was made from the older content before the first one has compared.", edits: []edit{{jobFold, "j.epoch.young(j.cfg.Suspect)", "false"}}},
	{name: "commit-first", rule: "commit before put", equivalent: "a key keeps its mark until it is clean, and the sweep finds it; what is queued with its content is read again when the cache has lost anything.", edits: []edit{
		{jobGo, "\t\tkeys, left, err := j.restoreLost(ctx, d.Keys)\n", "\t\tif err := assignment.Commit(ctx, d); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tkeys, left, err := j.restoreLost(ctx, d.Keys)\n"},
	}},
	{name: "no-reclaim", rule: "a service does not bring back what it holds", edits: []edit{{reclaim, "\t\terr = w.Reclaim(ctx)\n", "\t\terr = nil\n"}}},
	{name: "no-decisions", rule: "a service does not bring back what was decided", edits: []edit{{reclaim, "if err := w.decideAgain(ctx); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{name: "no-clears", rule: "a service does not bring back clears", edits: []edit{{reclaim, "case d.clear.Until > u.ClearedAt(d.clear.Type):", "case d.clear.Until < 0:"}}},
	{name: "old-pause", rule: "a service brings back an older pause", edits: []edit{{reclaim, "case d.pause.Changed() > u.Pause.Changed():", "case d.pause.Since > 0:"}}},
	{name: "held-beside", rule: "a service forgets what it held when somebody else has put a record meanwhile", shows: "two reports of one key are under way in one service when the cache is lost; the first was acknowledged before, the second is written after it, without the first: only what is kept beside has that.", edits: []edit{{flush, "h.Concurrent = history.Merge(was.Concurrent, was.Record)", "h.Concurrent = nil"}}},
	{name: "announced", rule: "a service forgets what it has announced", shows: "a viewing ends and is announced; before a job has archived it, the cache is lost: the service that acknowledged it a second ago has forgotten it.", edits: []edit{{flush, "a.confirmed - a.cfg.Retain", "a.confirmed"}}},

	// Rules across components.
	{name: "unrelied", rule: "what is not archived is acknowledged again without a write", shows: "a write's answer is lost, and the report, sent again to another service, is answered as unchanged; the cache is lost before the record is archived: nobody holds it.", edits: []edit{{fold, "g.done && g.next != nil && !g.base.Clean() && g.relied()", "false && g.relied()"}}},
	{name: "old-events", rule: "an event from below the low watermark does not ask the archive", equivalent: "the record stays partial and its place below the low watermark, so that readers and the job fold the archive's segment in; only the word of the answer is another one, stored for stale.", edits: []edit{{write, "history.VersionOf(e.At, 0) < g.user.LowWatermark", "false && history.VersionOf(e.At, 0) < g.user.LowWatermark"}}},
	{name: "held-reset", rule: "what is held of a record that is gone is taken for the latest", equivalent: "the record stays partial, so that readers and the job fold the tombstone in; until then it says of itself that it is incomplete, which is not judged.", edits: []edit{{write, "if g.older != nil && g.next.RemovedAt < g.older.Version.Time() {", "if false {"}}},
	{name: "row-decides", rule: "below the low watermark the first page of the archive decides", edits: []edit{{page, "return r == nil || view.Incomplete(r) || r.Version < old[i].Record.Version", "entries[i].Record = old[i].Record\n\t\treturn r == nil && false"}}},
	{name: "conflict-clears", rule: "what was held is folded in although it was cleared", equivalent: "readers, the job and whoever gives a record back drop what is of the time before a clear, piece by piece; only the bounds of records (8 peaks, 128 plays) could tell.", edits: []edit{{write, "history.Merge(g.older, g.before()).After(current.User.ClearedAt(g.key.Object.Type))", "history.Merge(g.older, g.before())"}}},
	{name: "no-suspects", rule: "a repair finds nothing wrong", edits: []edit{{jobRepair, "if a.key.IsUser() || !same && !trimmed {", "if a.key.IsUser() && !same && !trimmed && len(segment) < 0 {"}}},
	{name: "no-reread", rule: "the queue is not read again when the cache was lost", edits: []edit{{jobRepair, "return j.reread(ctx, name)", "return nil"}}},
	{name: "unconfirmed", rule: "what is held is announced and forgotten whatever became of the cache", shows: "the cache is lost and stays away for longer than services remember what they announced: by the time it is back they have forgotten all they held.", edits: []edit{{flush, "\t\ta.last = time.Time{}\n\t\treturn false\n", ""}}},
	{name: "cut-archived", rule: "a content does not come after what the archive hides", shows: "late reports have brought the cell time of a record ahead of its event time, and it is archived and dropped; a clear covers it, and the next report is a millisecond later: its put loses.", edits: []edit{{jobFold, "u.CutTime = max(u.CutTime, old.User.CutTime)", "_ = old.User"}}},
	{name: "listed-below", rule: "what the cache lists is not compared with the archive where its page lacks it", shows: "the cache has an older content of an object than the archive, clean, as after it came back older; a page of the time of the older one shows it (TestOlderThanTheArchive).", edits: []edit{{page, "if ok || whole {", "if ok || whole || !view.Incomplete(it.Record) {"}}},
	{name: "stretch-end", rule: "a page goes beyond the end of what is read of the archive", shows: "the first objects that the archive lists are deleted in the cache, and the cache lists some from further back: the page goes on behind those (TestPagesOfTwoLists).", edits: []edit{{page, "(!s.cached || end.Compare(s.end) < 0)", "!s.cached"}}},
	{name: "join-ends", rule: "a page ends where the archive hides what the cache lists", shows: "a user is cold; the cache lists a late upload that the archive's clear of its type hides, and behind it a report of another type that is not archived; the archive has something older: the page goes on behind that.", edits: []edit{{page, "if s.cached || s.archived {\n\t\ti, _", "if s.archived && !s.cached {\n\t\ti, _"}}},

	// Marks and dismissals.
	{name: "cleared-base", rule: "what only the archive hides is there to decide about", edits: []edit{{write, "g.user.MergeCleared(entries[i].User.Cleared)", "_ = 0"}}},
	{name: "held-invisible", rule: "what only the service holds is not there to decide about", shows: "a record was cleared and played again, and the cache has forgotten the user; what comes late, from before the clear, is born without the rest, and the user decides about the object before the warm-up.", edits: []edit{{fold, "g.visible = g.next.Visible(", "g.visible = g.before().Visible("}}},
	{name: "dismissed", rule: "the fold forgets what was dismissed", edits: []edit{{merge, "m.Dismissed = max(latest.Dismissed, other.Dismissed)", "m.Dismissed = latest.Dismissed"}}},
	{name: "dismissed-same", rule: "what was dismissed is no change of a record", edits: []edit{{record, "a.Dismissed == b.Dismissed && ", ""}}},
	{name: "dismissed-deleted", rule: "a delete leaves what was dismissed", equivalent: "whatever comes after the delete is later than the decision, so that it is never shown.", edits: []edit{{merge, "\tif r.Dismissed.Time() <= r.RemovedAt {\n\t\tr.Dismissed = 0\n\t}\n", ""}}},
	{name: "dismissed-behind", rule: "what is dismissed by a clock that is behind is offered", edits: []edit{{shown, "at = max(at, r.Version.Time(), r.Dismissed.Time())", "at = max(at, r.Dismissed.Time())"}}},
	{name: "dismissed-played", rule: "what was played since is not offered", edits: []edit{{shown, "VersionOf(at, RankDismissed) && at >= r.ViewedAt() {", "VersionOf(at, RankDismissed) {"}}},
	{name: "offered", rule: "what is offered again is dismissed", edits: []edit{{fold, "g.next.Dismiss(r.At, r.Decision == report.Dismiss)", "g.next.Dismiss(r.At, true)"}}},
	{name: "offered-partial", rule: "whether there is anything to offer again is decided without the archive", edits: []edit{{reports, "r.Decision != 0 || r.Kind.Marks()", "r.Decision == Dismiss || r.Kind.Marks()"}}},
	{name: "unwatched", rule: "a mark as unwatched leaves plays", edits: []edit{{record, "rec.PlaysBeforeAt = e.At // and none of them counts", "_ = e.At"}}},
	{name: "unwatched-late", rule: "plays from before a mark as unwatched that come later count", edits: []edit{{merge, "staysAfter(uniteStays(r.Completions, o.Completions, endGap), r.PlaysBeforeAt, endGap)", "uniteStays(r.Completions, o.Completions, endGap)"}}},
	{name: "marked-nothing", rule: "a mark as unwatched leaves a record of what nobody played", edits: []edit{{fold, "case visible == nil && (e.Kind != history.KindWatched || r.OnlyRecorded), visible != nil", "case visible != nil"}}},
	{name: "marked-new", rule: "a mark of what has a record alone makes one", edits: []edit{{fold, " || r.OnlyRecorded", ""}}},
	{name: "marked-again", rule: "a mark of what has not been completed counts what has", edits: []edit{{fold, "case visible != nil && r.UnlessCompleted && (", "case false && ("}}},
	{name: "marked-blind", rule: "marks are made without the archive", edits: []edit{{reports, "r.Decision != 0 || r.Kind.Marks()", "r.Decision != 0"}}},

	// Restored backups.
	{name: "restored-deleted", rule: "a delete leaves what was brought back before it", edits: []edit{{merge, "m.RemovedAt, m.Restored = removed, false\n\tm.forget()", "if m.RemovedAt = removed; !m.Restored {\n\t\tm.forget()\n\t}"}}},
	{name: "restored-before", rule: "what was deleted comes back as of a clear alone", edits: []edit{{fold, "cut = max(cut, g.next.RemovedAt)", "_ = cut"}}},
	{name: "restored-blind", rule: "what is brought back does not look into the archive", equivalent: "what was removed after it is in the cache, or the record is from below the low watermark: then the archive is asked as for any report.", edits: []edit{{write, "case g.matched() || g.batch.latest || g.batch.imported || g.needsRecord():", "case g.matched() || g.batch.latest || g.needsRecord():"}}},
	{name: "restored-held", rule: "what is brought back is folded into what is held", equivalent: "the compare of the write finds out what has happened since, and where nothing is to be written the cache is asked.", edits: []edit{{write, "if g.batch.latest || g.batch.imported || g.batch.rebased {", "if g.batch.latest || g.batch.rebased {"}}},

	// Memory of services and jobs.
	{name: "reclaim-once", rule: "what a service could not bring back at once it does not bring back", edits: []edit{{reclaim, "\t\tw.compare.missed.Store(true)\n\t\treturn err\n", "\t\tw.epoch = epoch\n\t\treturn err\n"}}},
	{name: "reclaim-beside", rule: "what is stored beside a comparison with the cache is not compared again", edits: []edit{{write, "\tw.compare.remembered(b.begun)\n", ""}}},
	{name: "lost-held", rule: "that the cache lacks a held record is no conflict", equivalent: "what is written then has an earlier cell time than what is held, which stays held beside it, and is compared with the cache.", edits: []edit{{write, "(e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision))", "e.Record != nil && !history.SameContent(e.Record.Revision, held.Revision)"}}},
	{name: "decided-last", rule: "of several clears a service remembers the one that was told last", equivalent: "the cache answers a clear with the latest that stands: it takes two answers that overtake each other, and the loss of the cache before either clear is archived.", edits: []edit{{writer, "one.clear.Until > all[i].clear.Until ||", "one.clear.Until > 0 ||"}}},
	{name: "below-cached", rule: "below the low watermark a page shows the cache's record where the archive has a later one", equivalent: "the archive is ahead of the cache only where the cache came back older, until a job has compared the two; the oracle takes what was lost then for unsure until that is done. TestRowThatIsNewerThanTheCache finds it.", edits: []edit{{page, " || r.Version < old[i].Record.Version", ""}}},
	{name: "pause-deletes", rule: "a pause has deletes ignored", edits: []edit{{fold, "if e.Kind != history.KindDelete && g.user", "if g.user"}}},
	{name: "switch-lost", rule: "a switch that lost against another one is acknowledged", edits: []edit{{decide, "!errors.Is(err, history.ErrConflict) {\n\t\t\treturn pause, err", "err == nil || errors.Is(err, history.ErrConflict) {\n\t\t\treturn pause, nil"}}},
	{name: "since-watermark", rule: "a page since a time before the low watermark does not ask the archive", edits: []edit{{page, "q.Since > 0 && history.VersionOf(q.Since, 0) >= listed.User.LowWatermark", "q.Since > 0"}}},
	{name: "archived-whole", rule: "what a service had from the archive counts as whole", edits: []edit{{write, "asPartial(g.cut(entries[i].Record), &current)", "g.cut(entries[i].Record)"}}},
	{name: "job-cell", rule: "what the job completes does not come after what it was made from", edits: []edit{{jobFold, "\tm.Partial = false\n\treturn m", "\tm.Partial, m.CellTime = false, e.Record.CellTime\n\treturn m"}}},
	{name: "base-late", rule: "after a conflict the archive is not asked", shows: "one service holds a record that a device knows by its etag; another service deletes it, and the tombstone is archived and dropped; the device's next report, through the first service, is stored.", edits: []edit{{write, "\t\tw.loadDropped(ctx, late)\n", "\t\t_ = late\n"}}},
	{name: "reclaim-blind", rule: "what is held of a record that is gone is brought back without the archive's part", equivalent: "the record stays partial, so that readers and the job fold the archive's segment in; the service does the same by itself where the archive does not answer.", edits: []edit{{reclaim, "_ = w.foldArchived(ctx, needArchive(b.groups))", "_ = needArchive(b.groups)"}}},

	// Repairs after a cache loss.
	{name: "repair-pause", rule: "a repair does not bring back a switch", edits: []edit{{jobRepair, "if e.User.Pause.Newer(page.User.Pause) == e.User.Pause {", "if e.Err == nil {"}}},
	{name: "repair-clear", rule: "a repair does not bring back a clear", edits: []edit{{jobRepair, "if e.User.Cleared[typ] >= until {", "if until > 0 {"}}},
	{name: "repair-trimmed", rule: "a repair takes for trimmed whatever a warm user lacks", edits: []edit{{jobRepair, "e.Record == nil && e.User.Warm && a.version < e.User.LowWatermark", "e.Record == nil && e.User.Warm"}}},
	{name: "repair-left", rule: "what a repair had no answer for is never compared", edits: []edit{{jobRepair, "j.unverified.replace(part, left)", "_ = left"}}},
	{name: "reread-since", rule: "the queue is read again from the last sweep on", equivalent: eitherIsEnough, edits: []edit{rereadSince}},
	{name: "put-given-up", rule: "a repair does not wait for puts that were broken off", edits: []edit{{jobPut, "\t\tj.givenUp()\n\t\treturn err\n\t}\n\tunanswered", "\t\treturn err\n\t}\n\tunanswered"}}},
	{name: "mark-renewed", rule: "a new hold begins with a new mark", equivalent: eitherIsEnough, edits: markRenewed},
	{name: "marks-forgotten", rule: "a new hold begins with a new mark, and the queue is read again from the last sweep on", edits: append([]edit{rereadSince}, markRenewed...)},
	{name: "marks-unseen", rule: "what waits in other buckets, or for long, does not count for how far the queue is read again", edits: []edit{{jobState, "!oldest.IsZero() && oldest.Before(at) {", "oldest.After(at) {"}}},
	{name: "marks-trusted", rule: "new marks of what is written again after the cache was lost are taken for its age", edits: []edit{{jobState, "at.Before(w.since) || at.Add(-age).After(w.uncertain) {", "!at.Equal(w.since) {"}}},
	{name: "memo-unread", rule: "a job that starts does not know since when something waits", edits: []edit{{jobEpoch, "\t\tj.waiting.since = since\n", ""}}},
	{name: "memo-now", rule: "a memo says that all is archived by now", edits: []edit{{jobEpoch, "commitMetadata{j.waiting.since, ", "commitMetadata{time.Now(), "}}},
	{name: "memo-first", rule: "a job that starts commits before it has a memo", edits: []edit{{jobEpoch, "\tj.leaveMetadata()\n\tclose(j.begun)\n", "\tclose(j.begun)\n"}}},
	{name: "start-trusted", rule: "a job that starts puts what is made of an older cache", edits: []edit{{jobEpoch, "\t\tj.epoch.suspect()\n", ""}}},
	{name: "twins", rule: "of two contents of one version the job remembers the first", edits: []edit{{jobState, "\t\t\tout[i].revision = 0\n", "\t\t\tbreak\n"}}},
	{name: "put-order", rule: "of two writes that are put in the wrong order the earlier one is held", equivalent: "the later one is held beside it, so that what is held has all of it, and its base fails the compare.", edits: []edit{{flush, "case e.held.Record.CellTime <= held.Record.CellTime:", "case true:"}}},
	{name: "restore-cell", rule: "what is given back is not put after what the archive has", equivalent: "for a while after another epoch has begun every record is folded with the archive's before it is put.", edits: []edit{{jobRepair, " && !laterCell(g.contents[k], e.Record)", ""}}},
	{name: "relied-clear", rule: "a service does not remember the clear that a delete relies on", edits: []edit{{decide, "Status_STATUS_CLEARED {\n\t\tw.remember(", "Status_STATUS_CLEARED && w == nil {\n\t\tw.remember("}}},
	{name: "no-switches", rule: "a service does not bring back a switch", edits: []edit{{decide, "\tw.remember(decision{uid: req.GetUid(), pause: pause}, begun)\n", "\t_ = begun\n"}}},
	{name: "pause-cold", rule: "a switch of a cold user is made without what the archive knows", edits: []edit{{points, "return entries[0].User, nil", "return history.User{Cleared: entries[0].User.Cleared, Warm: true}, nil"}}},
	{name: "put-cleared", rule: "the job puts what is cleared", equivalent: "the archive hides what its clear marks cover, and every reader applies those of the cache.", edits: []edit{{jobPut, "r := e.Record.After(e.User.ClearedAt(k.Object.Type))", "r := e.Record"}}},
	{name: "fold-cleared", rule: "the job folds in what is cleared", equivalent: "the archive applies its clear marks itself, and readers those of the cache; only the bounds of records could tell.", edits: []edit{{jobFold, "history.Merge(e.Record, u.Cut(old.Record, o.Type))", "history.Merge(e.Record, old.Record)"}}},
	{name: "peaks-at", rule: "a delete leaves the position of its own millisecond", edits: []edit{{merge, "r.Peaks[0].At <= r.RemovedAt", "r.Peaks[0].At < r.RemovedAt"}}},
	{name: "plays-at", rule: "a delete leaves plays of its own millisecond", edits: []edit{{play, "if s.At <= at {", "if s.At < at {"}}},
	{name: "deleted-duration", rule: "a delete leaves the duration", edits: []edit{{merge, "if r.DurationVersion.Time() <= r.RemovedAt {", "if false {"}}},
	{name: "deleted-meta", rule: "a delete leaves metadata", edits: []edit{{merge, "\tr.forgetMeta()\n", ""}}},
	{name: "deleted-keys", rule: "a delete leaves older keys of metadata beside newer ones", edits: []edit{{meta, "{ return e.Version.Time() <= r.RemovedAt })", "{ return false })"}}},

	// Trusted time and rebase; tests find these.
	{name: "horizon", in: "./internal/clock", test: "TestTrusted", rule: "expiry goes by the wall clock", edits: []edit{{trusted, "\tif now.Before(steady) {\n\t\treturn now\n\t}\n\treturn steady\n", "\t_ = steady\n\treturn now\n"}}},
	{name: "horizon-roll", in: "./history/hbase", test: "TestRollWaitsForTheHorizon", rule: "records expire whatever time is trusted", edits: []edit{{compactGo, "; lag > mostLag {", "; lag < 0 {"}}},
	{name: "rebase-peaks", in: "./history", test: "TestRebase", rule: "a rebase leaves positions in the future", edits: []edit{{rebase, "m.Peaks[i].At = times.at(m.Peaks[i].At)", "_ = times.at(m.Peaks[i].At)"}}},
	{name: "rebase-order", in: "./history", test: "TestRebase", rule: "a rebase leaves the order of times to chance", edits: []edit{{rebase, "to = min(to, before-1)", "to = min(to, before)"}}},

	// Classes of types.
	{name: "class-pause", rule: "a switch of recording does not reach classes", edits: []edit{{namespace, "p != own.Pause {", "p != own.Pause && namespace == \"\" {"}}},
	{name: "class-clear", rule: "a clear is answered before it reaches classes", edits: []edit{{decide, "\tif err := w.follow(ctx, req.GetUid()); err != nil {\n\t\treturn nil, fmt.Errorf(\"clear", "\tif err := ctx.Err(); err != nil {\n\t\treturn nil, fmt.Errorf(\"clear"}}},
	{name: "class-owner", rule: "readers apply the clears of a class alone to what it has", edits: []edit{{namespaces, "\t\te.User.MergeCleared(cleared)\n", "\t\t_ = cleared\n"}}},
	{name: "class-delete", rule: "a delete leaves what is in other classes", edits: []edit{{decide, "if len(namespaces) == 1 {", "if len(namespaces) > 0 {"}}},
	{name: "class-report", rule: "a report does not go on from what other classes have", edits: []edit{{namespace, "if len(groups) == 0 || groups[0].batch.namespace", "if len(groups) >= 0 || groups[0].batch.namespace"}}},
	{name: "class-tombstone", rule: "a report does not know what was deleted in other classes", edits: []edit{{namespace, "e.Record.After(e.User.ClearedAt(keys[n].Object.Type))", "e.Record.Visible(keys[n].Object, &e.User)"}}},
	{name: "class-point", rule: "a point shows what the class of the type has", edits: []edit{{namespaces, "if home || moving && !k.IsUser() {", "if home || moving && k.IsUser() {"}}},
	{name: "class-trimmed", rule: "a point does not show what has left the cache of another class", edits: []edit{{points, "\tr.foldMoved(ctx, keys, entries)\n", ""}}},
	{name: "class-list", rule: "a page shows what each class has of an object", edits: []edit{{namespaces, "if r.cfg.Rules.Moving(r.nowMS()) && len(keys) > 0 {", "if r.cfg.Rules.Moving(r.nowMS()) && len(keys) < 0 {"}}},
	{name: "class-twice", rule: "a page shows an object once for each class that has it", edits: []edit{{namespaces, " && !known[it.Object]", ""}}},
	{name: "class-newest", rule: "a clear by a clock that is behind leaves what is in classes", edits: []edit{{points, "range r.namespaces(uid, q.Type) {", "range r.namespaces(uid, q.Type)[:1] {"}}},
	{name: "class-changes", rule: "an app is not told what has changed in classes", edits: []edit{{changes, "n < len(since.namespaces) && since.known; n++ {", "n < 1 && since.known; n++ {"}}},

	// Segments and their archive.
	{name: "compact-late", rule: "what is old is put where rolls delete", edits: []edit{{hbPut, "if c.Record.Version.Time() < late.before {", "if false {"}}},
	{name: "compact-margin", rule: "a roll takes what may still be put", edits: []edit{{compactGo, "return r.began - r.Archive.segments.mark.Load().after - r.margin()", "return r.began"}}},
	{name: "compact-period", rule: "columns of what is late are compacted while they are put", edits: []edit{{compactGo, "return (period + 2) * r.margin()", "return period * r.margin()"}}},
	{name: "compact-order", rule: "live cells are deleted before the parts are written", edits: []edit{{compactGo, "{r.clean, r.write, r.drop, r.remove}", "{r.clean, r.drop, r.write, r.remove}"}}},
	{name: "compact-silent", rule: "readers are not told that there are parts", edits: []edit{{compactGo, "\treturn r.announce(ctx, m)\n", "\t_ = m\n\treturn nil\n"}}},
	{name: "compact-compare", rule: "a list of chunks takes the place of whatever stands", edits: []edit{{compactGo, "won, err = r.client.CheckAndPut(put, segmentFamily, segmentColumn, r.bytes)", "_, err = r.client.Put(put)\n\t\twon = err == nil"}}},
	{name: "compact-lost", rule: "a roll that has lost deletes what it compacted", edits: []edit{{compactGo, "\tif err == nil && !won {", "\tif err == nil && !won && r.bytes == nil && r.items == nil {"}}},
	{name: "compact-unread", rule: "a list is switched to chunks that are not read back", edits: []edit{{compactGo, "\t\tif err := r.allTo(ctx, server, puts); err != nil {\n\t\t\treturn err\n\t\t}\n", "\t\tif err := r.allTo(ctx, server, puts); err != nil || gets != nil {\n\t\t\treturn nil\n\t\t}\n"}}},
	{name: "compact-horizon", rule: "chunks that are not listed yet are deleted", edits: []edit{{compactGo, "before := r.began - r.horizon().Milliseconds()", "before := r.began + 1"}}},
	{name: "compact-in-time", rule: "a roll switches after any time", equivalent: "a compact whose calls all end in time is not that late: it takes a process that stands still between two of them, which none does here.", edits: []edit{{compactGo, "if r.now()-r.began > r.horizon().Milliseconds()/2 {", "if false {"}}},
	{name: "compact-marker", rule: "a roll deletes a column up to now", edits: []edit{{compactGo, "r.deleteLive(ctx, r.cleanBefore()-1,", "r.deleteLive(ctx, r.began,"}}},
	{name: "compact-cleared", rule: "a roll lists again what was cleared meanwhile", equivalent: "readers go by the clear marks of the live segment, and the next compact takes it out again; until then an erasure has left it in segments.", edits: []edit{{compactGo, "if r.live.cleared[typ] < until {", "if r.live.cleared[typ]+until < 0 {"}}},
	{name: "compact-discard", rule: "a roll that has lost to itself deletes its chunks", edits: []edit{{compactGo, "!listed[c.Name] {", "c.Name != \"\" || listed == nil {"}}},
	{name: "compact-cut", rule: "a roll forgets the cell times of what was cleared", equivalent: "the cell times of what segments have are before those of all that is put into live columns. A late put would meet it between a switch and #compacted, beside a reader who has the list of before in memory.", edits: []edit{{compactGo, "if cut <= max(least, r.live.cut) ||", "if cut >= 0 || cut <= max(least, r.live.cut) ||"}}},
	{name: "compact-tombstones", rule: "a roll drops tombstones", edits: []edit{{compactGo, "\t\tr.leaving = append(r.leaving, o)\n", "\t\tr.leaving = append(r.leaving, o)\n\t\tif o.record.Deleted() {\n\t\t\tcontinue\n\t\t}\n"}}},
	{name: "compact-twice", rule: "of two columns of an object a roll takes the last", edits: []edit{{compactGo, "r.items[i].Record = segment.Resolve(r.items[i].Record, o.record)", "r.items[i].Record = o.record"}}},
	{name: "compact-begins", rule: "rolls begin while others put old records where rolls delete", equivalent: "it takes two contents of one cell time, the later one put by a process that knows of no compacting yet.", edits: []edit{{hbSegments, "m.since+3*m.margin-a.now()", "m.since-a.now()"}}},
	{name: "compact-begun", rule: "old records are put where rolls delete when rolls have begun", equivalent: "it takes two contents of one cell time, the later one put by a process that knows of no compacting yet.", edits: []edit{{hbSegments, "now < m.since+m.margin", "now < m.since+12*m.margin"}}},
	{name: "read-known", rule: "a reader goes by the list that it knows", edits: []edit{{hbSegments, "return uid + \"\\x00v\" + strconv.FormatUint(version, 10)", "return uid + \"\\x00v\" + strconv.FormatUint(version-version, 10)"}}},
	{name: "page-late", rule: "a page leaves out columns of what was late", edits: []edit{{hbGet, "families = append(families, lateFamily)", "families = append(families, family)"}}},
	{name: "get-live", rule: "a get asks the live part alone", edits: []edit{{hbGet, "q.options(a.segments.known())", "q.options(false)"}}},
	{name: "live-counts", rule: "a live record counts, whatever a part has", edits: []edit{{segmentRead, "compacted == nil || live != nil && live.CellTime > compacted.CellTime:", "compacted == nil || live != nil:"}}},
	{name: "live-twins", rule: "of two contents of one cell time the live one counts", equivalent: "of what is put within 2 s nothing is in segments yet, and what is made of an older cache is folded with the archive's first: a content of the same cell time, or of an earlier one, does not come behind.", edits: []edit{{segmentRead, "both := *history.Merge(live, compacted)", "both := *live"}}},
	{name: "late-counts", rule: "of two columns of an object the earlier content counts", edits: []edit{{hbCodec, "b.damage == nil && b.at > a.at", "b.damage == nil && b.at < a.at"}}},
	{name: "find-late", rule: "a live record of the time of a chunk is not looked for in it", edits: []edit{{segmentRead, "(live[n] == nil || live[n].CellTime <= info.CellTime) && info.Filter.Has(hashes[n])", "live[n] == nil && info.Filter.Has(hashes[n])"}}},
	{name: "stitch-live", rule: "a page has what a part has beside a live record of it", edits: []edit{{segmentRead, " || r != nil && left.Version == r.Version {", " {"}}},
	{name: "stitch-part", rule: "a page has a live record beside what a part has of it", equivalent: "of what is put within 2 s nothing is in segments yet, and what is made of an older cache is folded with the archive's first: a content of the same cell time, or of an earlier one, does not come behind.", edits: []edit{{segmentRead, "\tif left.Version != it.Record.Version {\n\t\treturn nil", "\tif left.Version != it.Record.Version && left == nil {\n\t\treturn nil"}}},
	{name: "superseded", rule: "what is compacted again stays in its old chunk", edits: []edit{{segmentCompact, "\t\t\t\t} else {\n\t\t\t\t\tc.remove(place, ", "\t\t\t\t} else if n.Record == nil {\n\t\t\t\t\tc.remove(place, "}}},
	{name: "part-tombstone", rule: "what a tombstone covers stays in parts", equivalent: "the live tombstone hides it, and takes its place in the segment when it is compacted.", edits: []edit{{segmentCompact, "s != nil && s.Record.CellTime > it.Record.CellTime &&", "s != nil && s.Record == nil &&"}}},
	{name: "part-clear", rule: "what clear marks cover stays in parts", edits: []edit{{segmentCompact, "if maps.Equal(w.Cleared, w.old.Cleared) {\n\t\treturn nil", "if w.old != nil {\n\t\treturn nil"}}},
	{name: "erase-switch", rule: "an erasure deletes chunks that are listed", edits: []edit{{hbErase, "\tif err := r.store(ctx); err != nil { // also", "\tif err := ctx.Err(); err != nil { // also"}}},

	// The embedded store.
	{name: "embedded-drop", in: "./history/pebble", rule: "a roll of the embedded store drops what was put since it was read", edits: []edit{{pbCompact, "if r.db.compacting.changed[text] {", "if false {"}}},
	{name: "embedded-state", in: "./history/pebble", rule: "a roll of the embedded store writes the user's state as it was read", edits: []edit{{pbCompact, "\tif r.db.compacting.all {\n", "\tif false {\n"}}},
}
