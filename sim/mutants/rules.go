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
	merge       = "history/merge.go"
	meta        = "history/meta.go"
	record      = "history/record.go"
	shown       = "history/shown.go"
	viewing     = "history/merge.go"
	play        = "history/play.go"
	query       = "history/contracts.go"
	rebase      = "history/rebase.go"
	trusted     = "internal/clock/trusted.go"
	pause       = "history/user.go"
	cache       = "sim/cache.go"
	archive     = "sim/archive.go"
	fold        = "history-service/write/fold.go"
	need        = "history-service/write/need.go"
	write       = "history-service/write/write.go"
	recent      = "history-service/state/recent.go"
	states      = "history-service/state/state.go"
	decide      = "history-service/write/decide.go"
	reclaim     = "history-service/write/reclaim.go"
	namespaces  = "history-service/read/namespace.go"
	reports     = "history-service/report/decode.go"
	decode      = "history-service/rpc/apply.go"
	page        = "history-service/read/page.go"
	walk        = "history-service/read/walk.go"
	entries     = "history-service/read/entries.go"
	tokens      = "history-service/read/tokens.go"
	points      = "history-service/read/points.go"
	changes     = "history-service/read/changes.go"
	warm        = "history-service/read/warm.go"
	flush       = "history-service/aggregate/hold.go"
	complete    = "history-service/view/view.go"
	jobLoops    = "history-job/archive/loops.go"
	jobRound    = "history-job/archive/archive.go"
	jobPut      = "history-job/archive/put.go"
	jobFold     = "history-job/archive/complete.go"
	jobMachine  = "history-job/recovery/machine.go"
	jobContent  = "history-job/recovery/content.go"
	jobMark     = "history-job/recovery/watermark.go"
	jobRecovery = "history-job/recovery/recovery.go"
	jobCompare  = "history-job/recovery/compare.go"
	jobRestore  = "history-job/recovery/restore.go"

	redisApply = "history/redis/lua/apply.lua"
	redisClean = "history/redis/lua/mark_clean.lua"
	redisWarm  = "history/redis/lua/warm.lua"

	countRules = "history/count/count.go"
	jobCounts  = "history-job/counts/counts.go"
	hbCount    = "history/hbase/count.go"
	pbPromote  = "history/pebble/promote.go"
	told       = "history/told.go"
	jobPlays   = "history-job/archive/plays.go"

	compactGo      = "history/hbase/compact.go"
	pbCompact      = "history/pebble/segments.go"
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
	rereadSince = edit{jobMark, "return m.mark.since.Add(-margin)", "return m.mark.since"}
	markRenewed = []edit{
		{cache, "if old, marked := c.marks[k]; !marked || c.last < old {", "if true {"},
		{cache, "\tif w.Base == 0 || w.Base&history.CleanBit != 0 {\n\t\tc.mark(", "\tif w.Mark || w.Base == 0 || w.Base&history.CleanBit != 0 {\n\t\tc.mark("},
	}
)

const eitherIsEnough = "marks tell the age of the backlog, and the queue is reread from two sweeps before that: either is enough alone (`marks-forgotten` breaks both)."

// mutants break the stores' rules in their models; history/historytest holds the adapters to the models'
// contract.
var mutants = []mutant{
	// The merge.
	{name: "peaks", rule: "the merge drops the furthest position", edits: []edit{{merge, "\tm.mergePeaks(other)\n", ""}}},
	{name: "completions", rule: "the merge drops plays", edits: []edit{{merge, "\tm.mergeCompletions(other)\n", ""}}},
	{name: "watches", rule: "the merge drops watched time", edits: []edit{{merge, "\tm.mergeWatches(other)\n", ""}}},
	{name: "non-early", rule: "the merge drops the resume point", edits: []edit{{merge, "\tm.mergeResumePoint(other)\n", ""}}},
	{name: "meta", rule: "the merge drops metadata", edits: []edit{{merge, "\tm.mergeMeta(other)\n", ""}}},
	{name: "meta-whole", rule: "new metadata replaces all older keys", edits: []edit{{meta, "\tall := r.metaEntries(room[:0])\n", "\tall := room[:0]\n"}}},
	{name: "meta-removed", rule: "the merge drops removed metadata keys", edits: []edit{{meta, "\tr.Meta, r.MetaVersion = versioned(all, r.Meta, o.Meta)\n", "\tall = slices.DeleteFunc(all, func(e MetaEntry[string]) bool { return e.Removed })\n\tr.Meta, r.MetaVersion = versioned(all, r.Meta, o.Meta)\n"}}},
	{name: "meta-version", rule: "all metadata keys get the newest version", edits: []edit{{meta, "\t\te.Version = cmp.Or(e.Version, r.MetaVersion)\n", "\t\te.Version = r.MetaVersion\n"}}},
	{name: "duration", rule: "the merge drops the duration", edits: []edit{{merge, "\tm.mergeDuration(other)\n", ""}}},
	{name: "reset", rule: "a delete removes only content that is known when it arrives", edits: []edit{{merge, "removed := max(a.RemovedAt, b.RemovedAt)", "removed := a.RemovedAt"}}},
	{name: "reset-at", rule: "a delete keeps content of its own millisecond", edits: []edit{{record, "rec.RemovedAt = e.At", "rec.RemovedAt = e.At - 1"}}},
	{name: "latest", rule: "the latest report is the last to arrive", edits: []edit{{merge, "if compareLatest(a, b) < 0 {", "if true {"}}},
	{name: "watched-twice", rule: "watched time of one session is added twice", edits: []edit{
		{viewing, "if w.Viewing != o.Viewing || w.At > o.At || w.Watched > o.Watched {", "if w != o {"},
		{shown, "if o.Viewing == w.Viewing {", "if false {"},
	}},
	{name: "watched-deleted", rule: "watched time of a session from before a delete counts", edits: []edit{{shown, "if r.Restored || ", "if true || "}}},
	{name: "watched-paused", rule: "watched time counts while recording is off", edits: []edit{{record, "if e.Watched > 0 && p.Meets(e.StartedAt, e.At) {", "if false {"}}},
	{name: "plays-twice", rule: "a session that reports its end twice counts twice", edits: []edit{{play, "p.Viewing == g.viewing && g.has(p.At) {", "false {"}}},
	{name: "scrub", rule: "a scrub to the end counts as a play", edits: []edit{{play, "g.longest > limit(c.Reach) || g.scrubbed(c, lows)", "g.longest > limit(c.Reach)"}}},
	{name: "play-starts", rule: "a start after the end begins no new play", edits: []edit{{play, "		mark(s.At, s.Position == 0 && s.Duration == 0)\n", "		_ = s.At\n"}}},
	{name: "play-lows", rule: "the merge drops stays below the end", edits: []edit{{merge, "\t\tm.setLows(lows)\n", "\t\t_ = lows\n\t\tm.setLows(nil)\n"}}},
	{name: "early", rule: "the first seconds of a session replace the resume point", edits: []edit{{shown, "if r.ResumesEarlier() {", "if false {"}}},
	{name: "whole", rule: "a record born without the archive counts as whole", edits: []edit{{fold, "delta.Partial = mayLack(&g.user, g.base)", "delta.Partial = false"}}},
	{name: "whole-damaged", rule: "a record written over a damaged one counts as whole", edits: []edit{{fold, "delta.Partial = mayLack(&g.user, g.base)", "delta.Partial = !g.user.Complete()"}}},
	{name: "whole-or", rule: "a partial input makes the merge partial", equivalent: "a record stays partial for longer; the job and readers merge the archive's record in again.", edits: []edit{{merge, "m.Partial = a.Partial && b.Partial", "m.Partial = a.Partial || b.Partial"}}},
	{name: "cell-time", rule: "contents of equal event times get equal cell times", edits: []edit{{record, "r.CellTime = max(r.Version.Time(), r.CellTime+1)", "r.CellTime = r.Version.Time()"}}},
	{name: "cut-time", rule: "new content gets no later cell time than cleared content", shows: "late reports move a record's cell time ahead of its event time; a clear removes it, and the next report is a millisecond later: its put loses.", edits: []edit{{record, "r.CellTime = max(r.CellTime, u.CutTime+1)", "_ = u.CutTime"}}},
	{name: "skew", rule: "the time of a wrong clock is not corrected", edits: []edit{{decode, "\te.At += skew\n", ""}}},
	{name: "future", rule: "reports from the future keep their time", edits: []edit{{decode, "\tr.At = min(r.At, now)\n", ""}}},
	{name: "clamp", rule: "watched time may exceed elapsed time", edits: []edit{{decode, "\tr.Clamp()\n", ""}}},

	// The cache.
	{name: "clean-compare", rule: "marking clean does not compare", edits: []edit{{cache, "case e.Record.Revision == s.Revision:", "default:"}}},
	{name: "clean-bit", rule: "marking clean does not set the bit", edits: []edit{{cache, "\t\tr.Revision |= history.CleanBit\n\t\tc.users[s.Key.UID]", "\t\tc.users[s.Key.UID]"}}},
	{name: "clean-user", rule: "marking a user's state clean does not compare", edits: []edit{{cache, "if e.User.Revision == s.Revision {", "if true {"}}},
	{name: "apply-bit", rule: "a write succeeds although its base became clean meanwhile", edits: []edit{{cache, "current.Revision == w.Base", "history.SameContent(current.Revision, w.Base)"}}},
	{name: "apply-compare", rule: "a write does not compare", edits: []edit{{cache, "return current != nil && current.Revision == w.Base", "return current != nil"}}},
	{name: "mark-clean", rule: "no mark after a clean base", edits: []edit{{cache, " || w.Base&history.CleanBit != 0", ""}}},
	{name: "mark-new", rule: "no mark for a new record", edits: []edit{{cache, "if w.Base == 0 || w.Base&", "if w.Base&"}}},
	{name: "clear-put", rule: "a clear is not applied to a write without a base", edits: []edit{{cache, "current == nil && w.Cleared >= a.user.ClearedAt(w.Key.Object.Type) &&", "current == nil &&"}}},
	{name: "clear-keeps", rule: "a clear keeps the covered records", equivalent: "every reader hides and the job drops content that a clear mark covers, also within a later record.", edits: []edit{{cache, "\tc.cut(uid)\n\tc.renumber(a)", "\tc.renumber(a)"}}},
	{name: "clear-revisions", rule: "a clear keeps the revisions of the remaining records", edits: []edit{{cache, "\tc.cut(uid)\n\tc.renumber(a)\n", "\tc.cut(uid)\n\ta.user.Revision = history.NewRevision()\n\tc.made[a.user.Revision] = true\n"}}},
	{name: "clear-mark", rule: "a clear sets no dirty mark", edits: []edit{{cache, "\tc.mark(history.UserKey(uid))\n\treturn a.user.Cleared", "\treturn a.user.Cleared"}}},
	{name: "clear-older", rule: "an older clear overwrites a later one", edits: []edit{{cache, "joined[typ] = max(joined[typ], until)", "joined[typ] = until"}}},
	{name: "pause-write", rule: "a birth ignores a pause unknown to its writer", shows: "a service with a fast clock has a birth in flight when recording is switched off by one with a slow clock; a reader does not see the record, and then it lands.", edits: []edit{{cache, " && w.Pause == a.user.Pause", ""}}},
	{name: "pause-compare", rule: "a switch that lands twice overwrites a later one", edits: []edit{{cache, "if c.account(uid).user.Pause != from {", "if false {"}}},
	{name: "born-whole", rule: "a late birth counts as whole", shows: "a birth of a complete user is written, and lands again after a later report of its object was archived and dropped: the cache shows the first report only.", edits: []edit{{cache, "(w.Record.Partial || a.user.Complete())", "true"}}},
	{name: "pause-revisions", rule: "a pause keeps the revisions", edits: []edit{{cache, "m.Revision = history.NewRevision() | r.Revision&history.CleanBit", "_ = m"}}},
	{name: "pause-bit", rule: "a pause clears the clean bit", edits: []edit{{cache, "history.NewRevision() | r.Revision&history.CleanBit", "history.NewRevision()"}}},
	{name: "pause-settles", rule: "a pause marks unarchived records clean", edits: []edit{{cache, "history.NewRevision() | r.Revision&history.CleanBit", "history.NewRevision() | history.CleanBit"}}},
	{name: "trim-dirty", rule: "a trim drops dirty records", edits: []edit{{cache, "it.Record.Version < bound && it.Record.Clean()", "it.Record.Version < bound"}}},
	{name: "watermark-low", rule: "the low watermark is not raised above dropped records", edits: []edit{{cache, "it.Record.Version+1)\n\t\t}\n\t}\n}", "0)\n\t\t}\n\t}\n}"}}},
	{name: "watermark-tombstones", rule: "the low watermark is not raised above dropped tombstones", edits: []edit{{cache, "a.user.LowWatermark = max(a.user.LowWatermark, it.Record.Version+1)", "if !tombstones {\n\t\t\t\ta.user.LowWatermark = max(a.user.LowWatermark, it.Record.Version+1)\n\t\t\t}"}}},
	{name: "warm-over", rule: "a warm-up overwrites records written meanwhile", edits: []edit{{cache, "if has := a.records[it.Object]; has != nil {", "if has := a.records[it.Object]; false {"}}},
	{name: "warm-older", rule: "a warm-up with a record newer than the cache's keeps the low watermark", shows: "an object is played, then another, then the first again, and everything is archived. The cache forgets the user. An upload of the first object is older than the second. After the warm-up, pages of one item are read before the row is merged in: they omit the first object.", edits: []edit{{cache, "u.LowWatermark = max(u.LowWatermark, it.Record.Version+1)", "_ = it"}}},
	{name: "warm-dirty", rule: "warmed records count as unarchived", edits: []edit{{cache, "\t\tr.Revision |= history.CleanBit\n\t\ta.records", "\t\ta.records"}}},
	{name: "warm-revisions", rule: "a warm-up with new clear marks keeps the revisions of cached records", shows: "a service holds a record of a cold user, the warm-up brings a clear mark, and an earlier report is merged into the held record. Readers hide the cleared content, but it takes room in a record with 128 plays or 8 positions (the sequence fill).", edits: []edit{{cache, "if u.Pause != pause || !maps.Equal(u.Cleared, cleared) {", "if u.Pause != pause {"}}},
	{name: "warm-back", rule: "a record restored from the archive after a clear keeps the archive's revision", shows: "a service holds a record from before a clear that only the archive knows, and the record returns with the held revision. Readers hide the cleared content, but it takes room in a record with 128 plays or 8 positions (the sequence fill).", edits: []edit{{cache, "r.Revision == 0 || u.ClearedAt(it.Object.Type) > 0 {", "r.Revision == 0 {"}}},
	{name: "answer-cold", rule: "an answer for a cold user counts as whole", edits: []edit{{write, "items[i].Incomplete || g.cold", "items[i].Incomplete"}}},
	{name: "answer-failed", rule: "the answer to a failed report has the held record", edits: []edit{{write, "if g.failed || !all", "if !all"}}},
	{name: "warm-again", rule: "a warm user is warmed again from an old row", edits: []edit{{cache, "\tif a.user.Warm {\n\t\treturn nil\n\t}\n", ""}, {cache, "if has := a.records[it.Object]; has != nil {", "if has := a.records[it.Object]; false {"}}},
	{name: "walk-once", rule: "a walk through pages does not look for records that moved past it", edits: []edit{{walk, "if p.more = since > 0; err", "if p.more = false; err"}}},
	{name: "cursor", rule: "a cursor is off by one", edits: []edit{{query, "q.After.Compare(c) < 0)", "q.After.Compare(c) <= 0)"}}},
	{name: "more", rule: "a full page reports no more pages", edits: []edit{{cache, "page.More = len(page.Items) > q.Limit; page.More", "page.More = len(page.Items) > q.Limit+1; len(page.Items) > q.Limit"}}},

	// The archive.
	{name: "put-late", rule: "a late put overwrites a newer one", edits: []edit{{archive, "old != nil && old.CellTime > c.Record.CellTime", "false && old != nil"}}},
	{name: "put-pause", rule: "an older pause overwrites a newer one", edits: []edit{{archive, "r.user.Pause.Newer(u.Pause)", "u.Pause"}}},
	{name: "get-cleared", rule: "the archive shows cleared records", equivalent: "every reader and the job apply the cache's clear marks, and a cold user's arrive with the row.", edits: []edit{{archive, "e.Record = cell.After(r.user.ClearedAt(k.Object.Type)); cell != nil", "e.Record = cell; cell != nil"}}},

	// The service.
	{name: "lost-answer", rule: "an unanswered write is acknowledged", edits: []edit{{write, "\tdefault:\n\t\tg.fail()\n\t}\n}", "\tdefault:\n\t\tg.written, g.done = w.Record, true\n\t}\n}"}}},
	{name: "load-failed", rule: "an unanswered load counts as empty", equivalent: "the next write has no base and fails if there is a record, and the conflict loads it. Only an etag is compared with the archive, and a false conflict is not judged.", edits: []edit{{write, "\t\t\tgroups[i].fail()\n\t\t\tcontinue\n", ""}}},
	{name: "no-refold", rule: "after a conflict the held record is written unchanged", edits: []edit{{write, "g.next = history.Merge(g.cut(current.Record), g.older)", "g.next = history.Merge(nil, history.Merge(g.older, g.held.Record))"}}},
	{name: "conflict-forgets", rule: "after a conflict the reports are not merged again", edits: []edit{{write, "\tg.next = history.Merge(g.cut(current.Record), g.older)\n\tg.fold()\n", "\tg.next, g.done = history.Merge(g.cut(current.Record), g.older), true\n"}}},
	{name: "paused", rule: "a pause is ignored", edits: []edit{{fold, "g.user.Pause.Refuses(e.At, g.batch.reports[i].Late, g.batch.now)", "false"}}},
	{name: "held-pause", rule: "a hold forgets the pause of its write", edits: []edit{{write, "g.held.Next(g.written, &g.user, g.cold)", "g.held.Next(g.written, &history.User{Cleared: g.user.Cleared}, g.cold)"}}},
	{name: "cleared", rule: "a report from before a clear is acknowledged", edits: []edit{{fold, "if e.At <= cleared {", "if false {"}}},
	{name: "delete-behind", rule: "a delete by a slow clock keeps the record", edits: []edit{{fold, "at := g.next; at != nil && at.Version.Time() <= g.batch.reports[i].Covers", "at := g.next; false && at != nil"}}},
	{name: "clear-behind", rule: "a clear by a slow clock keeps records", edits: []edit{{decide, "asked = max(asked, newest)", "_ = newest"}}},
	{name: "switch-behind", rule: "a switch by a slow clock covers recorded reports", equivalent: "recorded content stays; only a retried report of it is answered as paused.", edits: []edit{{decide, "w.latestDecision()), played)", "w.latestDecision()), 0*played)"}}},
	{name: "not-queued", rule: "a queued acknowledgement has no queued record", shows: "the queue refuses a record acknowledged as queued, and all services and the cache are lost.", edits: []edit{{write, "\tfor _, d := range unsent {\n\t\tgroups[d.Key].fail()\n\t}\n", ""}}},
	{name: "queued-keys", rule: "the queue has only keys", edits: []edit{{write, "history.Announcement{Key: g.key, Record: r, ", "history.Announcement{Key: g.key, "}}},
	{name: "held-whole", rule: "a held record makes a partial one whole", shows: "one service holds a whole record, another one's report of it is archived, and the cache forgets the user. A partial birth follows, and the warm-up cannot merge the row into it. The first service's next write counts as whole and lacks the other's report.", edits: []edit{{write, "!mayLack(&current.User, current.Record)", "current.User.Complete()"}}},
	{name: "cold-point", rule: "a point of a cold user reads only the cache", edits: []edit{{entries, "return !e.User.Warm })", "return false })"}}},
	{name: "changes-on", rule: "changes list a dirty record only once", edits: []edit{{tokens, "t.place, t.changing = t.low, false", "t.place, t.changing = log.Last, false"}}},
	{name: "changes-first", rule: "the first token skips dirty records", edits: []edit{{changes, "t.place = log.Entries[i].Place - 1\n", "t.place = log.Entries[i].Place\n"}}},
	{name: "changes-life", rule: "a token stays valid in another epoch of the cache", edits: []edit{{changes, "since.log == 0 || since.epoch != epoch", "since.log == 0"}}},
	{name: "changes-dropped", rule: "a token stays valid although a trim dropped later entries", edits: []edit{{tokens, "from >= log.Dropped", "from+1 > 0"}}},
	{name: "changes-whole", rule: "records dropped from the cache count as removed", edits: []edit{{changes, "return keys, entries, clean, r.foldWhole(ctx, keys, entries)", "return keys, entries, clean, nil"}}},
	{name: "changes-begin", rule: "a new log omits dirty records", edits: []edit{{cache, "if !a.records[o].Clean() {", "if false {"}}},
	{name: "changes-clean", rule: "a write on a clean record makes no entry", edits: []edit{{cache, "current == nil || current.Clean() {", "current == nil {"}}},
	{name: "changes-clear", rule: "a log survives a clear", edits: []edit{{cache, "\ta.log = changeLog{}\n\tc.cut(uid)", "\tc.cut(uid)"}}},
	{name: "changes-trim", rule: "a trim drops entries of dirty records", edits: []edit{{cache, "if r := a.records[e.Object]; r != nil && !r.Clean() {", "if false {"}}},
	{name: "sure", rule: "a page ends at the low watermark", edits: []edit{{page, "\tcase listed.User.Complete():", "\tcase listed.User.Complete(), listed.User.Warm:"}}},
	{name: "warm-watermark", rule: "an incomplete warm-up counts as complete", edits: []edit{{warm, "if page.More {\n\t\tw.LowWatermark", "if false {\n\t\tw.LowWatermark"}, {warm, "w.LowWatermark = max(w.LowWatermark, it.Record.Version+1)", "_ = it"}}},
	{name: "warm-clears", rule: "a warm-up omits the clear marks", edits: []edit{{warm, "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}", "history.WarmSet{CutTime: page.User.CutTime, Pause: page.User.Pause}"}}},
	{name: "warm-pause", rule: "a warm-up omits the pause", edits: []edit{{warm, "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime, Pause: page.User.Pause}", "history.WarmSet{Cleared: page.User.Cleared, CutTime: page.User.CutTime}"}}},
	{name: "serve-partial", rule: "a read shows a partial record as whole", edits: []edit{{complete, "return r != nil && r.Partial && !r.Clean() || Damaged(r)", "return Damaged(r)"}}},

	// The job.
	{name: "clean-first", rule: "records are marked clean before the put", edits: []edit{
		{jobRound, "\tif err := a.put(ctx, &b); err != nil {\n\t\treturn nil, err\n\t}\n", ""},
		{jobRound, "\ta.trim(ctx, b.keys)\n\ttold, err :=", "\tif err := a.put(ctx, &b); err != nil {\n\t\treturn nil, err\n\t}\n\ta.trim(ctx, b.keys)\n\ttold, err :="},
	}},
	{name: "put-once", rule: "a partly failed put is marked clean as a whole", edits: []edit{{jobPut, "part.add(k, e)", "_ = err"}}},
	{name: "left-clean", rule: "records without an answer from the archive are marked clean", edits: []edit{{jobPut, "\tb.remove(left)\n", ""}}},
	{name: "no-users", rule: "clear marks and pauses do not reach the archive", edits: []edit{{jobPut, "k.IsUser() && (len(u.Cleared) > 0", "false && (len(u.Cleared) > 0"}}},
	{name: "no-fold", rule: "a partial record is archived unmerged", edits: []edit{{jobFold, "case e.Record != nil && (e.Record.Partial || suspect):", "case e.Record != nil && e.Record.State == 0 && suspect:"}}},
	{name: "clean-now", rule: "the job marks clean the content it reads after the put", edits: []edit{{jobRound, "\tput := append(b.contents(), b.clean...)\n", "\tif loaded, err = a.load(ctx, b.keys); err != nil {\n\t\treturn nil, err\n\t}\n\tb.keys, b.entries = loaded.keys, loaded.entries\n\tput := append(b.contents(), b.clean...)\n"}}},
	{name: "skip-dirty", rule: "the job skips dirty records", edits: []edit{{jobFold, "case e.Record.Clean() && (a.cfg.Plays == nil || !e.Record.Unsure()): // already archived", "case e.Record != nil && !e.Record.Clean():\n\t\tcase e.Record.Clean():"}}},
	{name: "no-restore", rule: "queued records are not restored", edits: []edit{{jobRestore, "if merged == nil || history.Same(merged, held) && !laterCell(g.contents[k], e.Record) {", "if true {"}}},
	{name: "left-behind", rule: "records that could not be compared with a new cache are not compared later", edits: []edit{{jobCompare, "r.cfg.Machine.verified(part, left)", "r.cfg.Machine.verified(part, left[:0])"}}},
	{name: "restore-cleared", rule: "cleared records are restored", edits: []edit{{jobRestore, "return e.User.Cut(r, k.Object.Type)", "return r"}}},
	{name: "restore-whole", rule: "restored records count as whole", edits: []edit{{jobRestore, "w.Record.Partial = true", "w.Record.Partial = false"}}},
	{name: "no-repair", rule: "an older cache is not repaired", edits: []edit{{jobRecovery, "err = r.compare(ctx, seen.epoch)", "err = ctx.Err()"}}},
	{name: "no-fence", rule: "contents of a cache that was not yet compared are put", shows: "the cache comes back older after the job has loaded contents of the epoch before; the job puts them before it reads the new epoch.", edits: []edit{{jobRound, "if err := a.cfg.Epochs.Verify(ctx, epoch); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{name: "repair-beside", rule: "a repair does not wait for concurrent puts", shows: "a put waits while the cache comes back older and the service that held the record is dead; the repair reads the archive before the put lands: the cache stays older than the archive, without a mark.", edits: []edit{{jobRecovery, "\tresume, err := r.cfg.Archiver.Pause(ctx)\n", "\tresume, err := func() {}, ctx.Err()\n"}}},
	{name: "no-doubt", rule: "content archived after the cache came back older is not merged with the other job's", shows: "a job archives a content, and another gets the partition; the cache comes back older, and the other job puts a content based on the older one before the first has compared.", edits: []edit{{jobMachine, "return s < Trusted", "return s < Suspect"}}},
	{name: "commit-first", rule: "offsets are committed before the put", equivalent: "a key keeps its mark until it is clean, and the sweep finds it; queued records are reread after a cache loss.", edits: []edit{
		{jobLoops, "\t\terr = a.Archive(traced, keys)\n", "\t\tif err := as.Commit(ctx, d); err != nil {\n\t\t\treturn err\n\t\t}\n\t\terr = a.Archive(traced, keys)\n"},
	}},
	{name: "no-reclaim", rule: "a service does not restore held records", edits: []edit{{reclaim, "\t\terr = w.Reclaim(ctx)\n", "\t\terr = nil\n"}}},
	{name: "no-decisions", rule: "a service does not restore decisions", edits: []edit{{reclaim, "if err := w.states.Restore(ctx, w.cfg.Deadline); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{name: "no-clears", rule: "a service does not restore clears", edits: []edit{{recent, "!d.missing(&e.User)", "d.clear.Until > 0"}}},
	{name: "old-pause", rule: "a service restores an older pause", edits: []edit{{recent, "!d.missing(&e.User)", "d.clear.Until > 0 && !d.missing(&e.User)"}}},
	{name: "held-beside", rule: "a service forgets a held record when another writer has put one meanwhile", shows: "two reports of one key are in flight in one service when the cache is lost; the first was acknowledged before, and the second is written after it, without the first: only the held record has that.", edits: []edit{{flush, "h.Concurrent = history.Merge(was.Concurrent, was.Record)", "h.Concurrent = nil"}}},
	{name: "announced", rule: "a service forgets announced records", shows: "a viewing ends and is announced; before a job has archived it, the cache is lost: the service that acknowledged it a second ago has forgotten it.", edits: []edit{{flush, "a.confirmed - a.cfg.Retain", "a.confirmed"}}},

	// Rules across components.
	{name: "unrelied", rule: "an unarchived report is acknowledged again without a write", shows: "a write's answer is lost, and the report, retried at another service, is answered as unchanged; the cache is lost before the record is archived: no service holds it.", edits: []edit{{fold, "g.done && g.next != nil && !g.base.Clean() && g.relied()", "false && g.relied()"}}},
	{name: "old-events", rule: "an event below the low watermark does not read the archive", equivalent: "the record stays partial and below the low watermark, so readers and the job merge the archived record in; only the answer differs: stored instead of stale.", edits: []edit{{need, "history.VersionOf(g.batch.reports[i].At, 0) < g.user.LowWatermark", "false && g.reports[i] > 0"}}},
	{name: "held-reset", rule: "a held version of a removed record counts as the latest", equivalent: "the record stays partial, so readers and the job merge the tombstone in; until then the item is incomplete, which is not judged.", edits: []edit{{need, "if g.older != nil && g.next.RemovedAt < g.older.Version.Time() {", "if false {"}}},
	{name: "row-decides", rule: "below the low watermark the archive's first page decides", edits: []edit{{page, "return r == nil || view.Incomplete(r) || r.Version < old[i].Record.Version", "entries[i].Record = old[i].Record\n\t\treturn r == nil && false"}}},
	{name: "page-decides", rule: "below the low watermark the archive's page decides although the row has changed since", shows: "an object's latest report is archived and dropped from the cache after a page was read and before the cache is asked (TestPageBesideTheJob).", edits: []edit{{page, "page.Unchanged != nil && page.Unchanged()", "page.Unchanged != nil"}}},
	{name: "conflict-clears", rule: "a cleared held record is merged in", equivalent: "readers, the job and every restore drop content from before a clear, piece by piece; only the bounds of records (8 peaks, 128 plays) could tell.", edits: []edit{{write, "history.Merge(g.older, g.before()).After(current.User.ClearedAt(g.key.Object.Type))", "history.Merge(g.older, g.before())"}}},
	{name: "no-suspects", rule: "a repair finds nothing wrong", edits: []edit{{jobCompare, "if c.key.IsUser() || !same && !trimmed {", "if c.key.IsUser() && !same && !trimmed && len(segment) < 0 {"}}},
	{name: "no-reread", rule: "the queue is not reread after a cache loss", edits: []edit{{jobRecovery, "err = r.readAgain(ctx);", "err = ctx.Err();"}}},
	{name: "unconfirmed", rule: "held records are announced and forgotten without a check of the cache's epoch", shows: "the cache is lost and stays unavailable for longer than the services' retention: when it is back they have forgotten all held records.", edits: []edit{{flush, "\t\ta.last = time.Time{}\n\t\treturn false\n", ""}}},
	{name: "cut-archived", rule: "new content gets no later cell time than content that the archive hides", shows: "late reports move a record's cell time ahead of its event time, and it is archived and dropped; a clear covers it, and the next report is a millisecond later: its put loses.", edits: []edit{{jobFold, "u.CutTime = max(u.CutTime, old.User.CutTime)", "_ = old.User"}}},
	{name: "listed-below", rule: "cached items missing from the archive's page are not compared with the archive", shows: "the cache has an older, clean content of an object than the archive, as after it came back older; a page at the older time shows it (TestOlderThanTheArchive).", edits: []edit{{page, "if ok || whole {", "if ok || whole || !view.Incomplete(it.Record) {"}}},
	{name: "stretch-end", rule: "a page exceeds the part of the archive that was read", shows: "the first objects in the archive's list are deleted in the cache, and the cache lists older ones: the page includes those (TestPagesOfTwoLists).", edits: []edit{{page, "(!s.cached || end.Compare(s.end) < 0)", "!s.cached"}}},
	{name: "join-ends", rule: "a page ends at a cached item that the archive hides", shows: "a user is cold; the cache lists a late upload that the archive's clear of its type hides, and then an unarchived report of another type; the archive has older records: the page goes on after that.", edits: []edit{{page, "if s.cached || s.archived {\n\t\ti, _", "if s.archived && !s.cached {\n\t\ti, _"}}},

	// Marks and dismissals.
	{name: "cleared-base", rule: "decisions apply to records that the archive hides", edits: []edit{{write, "g.user.MergeCleared(entries[i].User.Cleared)", "_ = 0"}}},
	{name: "held-invisible", rule: "decisions do not apply to records that only a service holds", shows: "a record was cleared and played again, and the cache has forgotten the user; a late report from before the clear is born without the rest, and the user decides about the object before the warm-up.", edits: []edit{{fold, "g.visible = g.next.Visible(", "g.visible = g.before().Visible("}}},
	{name: "dismissed", rule: "the merge drops dismissals", edits: []edit{{merge, "m.Dismissed = max(latest.Dismissed, other.Dismissed)", "m.Dismissed = latest.Dismissed"}}},
	{name: "dismissed-same", rule: "a dismissal does not count as a change", edits: []edit{{record, "a.Dismissed == b.Dismissed && ", ""}}},
	{name: "dismissed-deleted", rule: "a delete keeps the dismissal", equivalent: "every report after the delete is later than the dismissal, which is never shown.", edits: []edit{{merge, "\tif r.Dismissed.Time() <= r.RemovedAt {\n\t\tr.Dismissed = 0\n\t}\n", ""}}},
	{name: "dismissed-behind", rule: "an object dismissed by a slow clock is offered", edits: []edit{{shown, "at = max(at, r.Version.Time(), r.Dismissed.Time())", "at = max(at, r.Dismissed.Time())"}}},
	{name: "dismissed-played", rule: "a dismissed object is not offered after another play", edits: []edit{{shown, "VersionOf(at, RankDismissed) && at >= r.ViewedAt() {", "VersionOf(at, RankDismissed) {"}}},
	{name: "offered", rule: "an object offered again is dismissed", edits: []edit{{fold, "g.next.Dismiss(r.At, r.Decision == report.Dismiss)", "g.next.Dismiss(r.At, true)"}}},
	{name: "offered-partial", rule: "offering an object again does not read the archive", edits: []edit{{reports, "r.Decision != 0 || r.Kind.Marks()", "r.Decision == Dismiss || r.Kind.Marks()"}}},
	{name: "unwatched", rule: "a mark as unwatched keeps plays", edits: []edit{{record, "rec.PlaysBeforeAt = e.At // all earlier plays stop counting", "_ = e.At"}}},
	{name: "unwatched-late", rule: "late plays from before a mark as unwatched count", edits: []edit{{merge, "staysAfter(uniteStays(r.Completions, o.Completions, endGap), r.PlaysBeforeAt, endGap)", "uniteStays(r.Completions, o.Completions, endGap)"}}},
	{name: "marked-nothing", rule: "a mark as unwatched creates a record of an unplayed object", edits: []edit{{fold, "case visible == nil && (e.Kind != history.KindWatched || r.OnlyRecorded), visible != nil", "case visible != nil"}}},
	{name: "marked-new", rule: "a mark restricted to recorded objects creates a record", edits: []edit{{fold, " || r.OnlyRecorded", ""}}},
	{name: "marked-again", rule: "a mark restricted to uncompleted objects counts completed ones", edits: []edit{{fold, "case visible != nil && r.UnlessCompleted && (", "case false && ("}}},
	{name: "marked-blind", rule: "marks are made without the archive", edits: []edit{{reports, "r.Decision != 0 || r.Kind.Marks()", "r.Decision != 0"}}},

	// Restored backups.
	{name: "restored-deleted", rule: "a delete keeps earlier restored records", edits: []edit{{merge, "m.RemovedAt, m.Restored = removed, false\n\tm.forget()", "if m.RemovedAt = removed; !m.Restored {\n\t\tm.forget()\n\t}"}}},
	{name: "restored-before", rule: "a deleted record is restored by the time of a clear only", edits: []edit{{fold, "cut = max(cut, g.next.RemovedAt)", "_ = cut"}}},
	{name: "restored-blind", rule: "a restore does not read the archive", equivalent: "a later removal is in the cache, or the record is below the low watermark; then a restore reads the archive like any report.", edits: []edit{{need, "case r.Whole != nil, r.Decision", "case r.Decision"}}},
	{name: "restored-held", rule: "a restored record is merged into the held one", equivalent: "the write's compare detects any change, and an unneeded write still reads the cache.", edits: []edit{{need, "held:        {nothing, cache, nothing, cache},", "held:        {nothing, cache, nothing, nothing},"}}},

	// Memory of services and jobs.
	{name: "reclaim-once", rule: "a service does not retry a failed restore", edits: []edit{{reclaim, "\t\tw.compare.Miss()\n\t\treturn err\n", "\t\tw.epoch = epoch\n\t\treturn err\n"}}},
	{name: "reclaim-beside", rule: "records stored during a comparison with the cache are not compared again", edits: []edit{{write, "\tw.compare.Remembered(b.begun)\n", ""}}},
	{name: "lost-held", rule: "a held record missing from the cache is no conflict", equivalent: "the written content gets an earlier cell time than the held record, which stays held and is compared with the cache.", edits: []edit{{write, "(e.Record == nil || !history.SameContent(e.Record.Revision, held.Revision))", "e.Record != nil && !history.SameContent(e.Record.Revision, held.Revision)"}}},
	{name: "decided-last", rule: "of several clears a service remembers the last answer", equivalent: "the cache answers a clear with the latest one. It takes two answers that overtake each other, and a cache loss before either clear is archived.", edits: []edit{{recent, "one.clear.Until > all[i].clear.Until ||", "one.clear.Until > 0 ||"}}},
	{name: "below-cached", rule: "below the low watermark a page shows the cache's record although the archive's is later", equivalent: "the archive is ahead only of a cache that came back older, until a job has compared the two. The oracle treats that content as uncertain until then. TestRowThatIsNewerThanTheCache finds it.", edits: []edit{{page, " || r.Version < old[i].Record.Version", ""}}},
	{name: "pause-deletes", rule: "a pause ignores deletes", edits: []edit{{fold, "if e.Kind != history.KindDelete && g.user", "if g.user"}}},
	{name: "switch-lost", rule: "a switch that lost to a concurrent one is acknowledged", edits: []edit{{decide, "!errors.Is(err, history.ErrConflict) {\n\t\t\treturn pause, err", "err == nil || errors.Is(err, history.ErrConflict) {\n\t\t\treturn pause, nil"}}},
	{name: "since-watermark", rule: "a page since a time before the low watermark does not read the archive", edits: []edit{{page, "q.Since > 0 && history.VersionOf(q.Since, 0) >= listed.User.LowWatermark", "q.Since > 0"}}},
	{name: "archived-whole", rule: "a record from the archive counts as whole", edits: []edit{{write, "asPartial(g.cut(entries[i].Record), &current)", "g.cut(entries[i].Record)"}}},
	{name: "job-cell", rule: "the job's merge gets no later cell time than its inputs", edits: []edit{{jobFold, "\tm.Partial = false\n\treturn m", "\tm.Partial, m.CellTime = false, e.Record.CellTime\n\treturn m"}}},
	{name: "base-late", rule: "after a conflict the archive is not read", shows: "one service holds a record that a device names by its etag; another service deletes it, and the tombstone is archived and dropped; the device's next report, through the first service, is stored.", edits: []edit{{write, "\t\tw.askArchive(ctx, late)\n", "\t\t_ = late\n"}}},
	{name: "reclaim-blind", rule: "a held version of a removed record is restored without the archived record", equivalent: "the record stays partial, so readers and the job merge the archived record in; the service itself does the same while the archive is unavailable.", edits: []edit{{reclaim, "_ = w.foldArchived(ctx, asked)", "_ = asked"}}},

	// Repairs after a cache loss.
	{name: "repair-pause", rule: "a repair does not restore a switch", edits: []edit{{jobCompare, "if e.User.Pause.Newer(page.User.Pause) == e.User.Pause {", "if e.Err == nil {"}}},
	{name: "repair-clear", rule: "a repair does not restore a clear", edits: []edit{{jobCompare, "if e.User.Cleared[typ] >= until {", "if until > 0 {"}}},
	{name: "repair-trimmed", rule: "a repair takes every record missing from a warm user for trimmed", edits: []edit{{jobCompare, "e.Record == nil && e.User.Warm && c.version < e.User.LowWatermark", "e.Record == nil && e.User.Warm"}}},
	{name: "repair-left", rule: "a repair never retries unanswered comparisons", edits: []edit{{jobCompare, "r.cfg.Machine.verified(part, left)", "_ = left"}}},
	{name: "reread-since", rule: "the queue is reread from the last sweep only", equivalent: eitherIsEnough, edits: []edit{rereadSince}},
	{name: "put-given-up", rule: "a repair does not wait for abandoned puts", edits: []edit{{jobPut, "\t\ta.abandon()\n\t\treturn err\n\t}\n\treturn a.without(", "\t\treturn err\n\t}\n\treturn a.without("}}},
	{name: "mark-renewed", rule: "a new hold sets a new mark", equivalent: eitherIsEnough, edits: markRenewed},
	{name: "marks-forgotten", rule: "a new hold sets a new mark, and the queue is reread from the last sweep only", edits: append([]edit{rereadSince}, markRenewed...)},
	{name: "marks-unseen", rule: "the reread ignores old marks and other buckets' marks", edits: []edit{{jobMark, "!oldest.IsZero() && oldest.Before(at) {", "oldest.After(at) {"}}},
	{name: "marks-trusted", rule: "new marks of rewritten records count as their age after a cache loss", edits: []edit{{jobMark, "at.Before(w.since) || at.Add(-age).After(w.uncertain) {", "!at.Equal(w.since) {"}}},
	{name: "memo-unread", rule: "a starting job ignores the age of its backlog in the commit metadata", edits: []edit{{jobMark, "\t\tm.mark.since = since\n", ""}}},
	{name: "memo-now", rule: "the commit metadata says that everything is archived by now", edits: []edit{{jobMark, "metadata{m.mark.since, ", "metadata{time.Now(), "}}},
	{name: "memo-first", rule: "a starting job commits before its commit metadata is written", edits: []edit{{jobMachine, "return s >= Rereading", "return s >= Unknown"}}},
	{name: "start-trusted", rule: "a starting job puts content based on an older cache", edits: []edit{{jobMark, "\tif !known {\n", "\tif !known && began.After(since) {\n"}}},
	{name: "twins", rule: "of two contents of one version the job remembers the first", edits: []edit{{jobContent, "\t\t\tout[i].revision = 0\n", "\t\t\tbreak\n"}}},
	{name: "put-order", rule: "of two writes put in the wrong order the earlier one is held", equivalent: "the later one is held too, so the held records are complete, and the base of the next write fails the compare.", edits: []edit{{flush, "case e.held.Record.CellTime <= held.Record.CellTime:", "case true:"}}},
	{name: "restore-cell", rule: "a restored record is put without a later cell time than the archive's", equivalent: "for a while after a new epoch every record is merged with the archive's before its put.", edits: []edit{{jobRestore, " && !laterCell(g.contents[k], e.Record)", ""}}},
	{name: "relied-clear", rule: "a service does not remember a clear that a delete relies on", edits: []edit{{decide, "Status_STATUS_CLEARED {\n\t\tw.states.Relied(", "Status_STATUS_CLEARED && w == nil {\n\t\tw.states.Relied("}}},
	{name: "no-switches", rule: "a service does not restore a switch", edits: []edit{{states, "\ts.remember(change{uid: uid, pause: to}, begun)\n", "\t_ = begun\n"}}},
	{name: "pause-cold", rule: "a switch of a cold user ignores the archive", edits: []edit{{points, "return entries[0].User, nil", "return history.User{Cleared: entries[0].User.Cleared, Warm: true}, nil"}}},
	{name: "put-cleared", rule: "the job puts cleared records", equivalent: "the archive hides records that its clear marks cover, and every reader applies the cache's.", edits: []edit{{jobPut, "r := present(k, &e)\n", "r := e.Record\n"}}},
	{name: "fold-cleared", rule: "the job merges cleared records in", equivalent: "the archive applies its own clear marks, and readers the cache's; only the bounds of records could tell.", edits: []edit{{jobFold, "history.Merge(e.Record, u.Cut(old.Record, o.Type))", "history.Merge(e.Record, old.Record)"}}},
	{name: "peaks-at", rule: "a delete keeps the position of its own millisecond", edits: []edit{{merge, "r.Peaks[0].At <= r.RemovedAt", "r.Peaks[0].At < r.RemovedAt"}}},
	{name: "plays-at", rule: "a delete keeps plays of its own millisecond", edits: []edit{{play, "if s.At <= at {", "if s.At < at {"}}},
	{name: "deleted-duration", rule: "a delete keeps the duration", edits: []edit{{merge, "if r.DurationVersion.Time() <= r.RemovedAt {", "if false {"}}},
	{name: "deleted-meta", rule: "a delete keeps metadata", edits: []edit{{merge, "\tr.forgetMeta()\n", ""}}},
	{name: "deleted-keys", rule: "a delete keeps older metadata keys among newer ones", edits: []edit{{meta, "{ return e.Version.Time() <= r.RemovedAt })", "{ return false })"}}},

	// Trusted time and rebase; tests find these.
	{name: "horizon", in: "./internal/clock", test: "TestTrusted", rule: "expiry uses the wall clock", edits: []edit{{trusted, "\tif now.Before(steady) {\n\t\treturn now\n\t}\n\treturn steady\n", "\t_ = steady\n\treturn now\n"}}},
	{name: "horizon-compact", in: "./history/hbase", test: "TestCompactWaitsForTheHorizon", rule: "records expire although the clock is not trusted", edits: []edit{{compactGo, "; lag > mostLag {", "; lag < 0 {"}}},
	{name: "rebase-peaks", in: "./history", test: "TestRebase", rule: "a rebase keeps positions in the future", edits: []edit{{rebase, "m.Peaks[i].At = times.at(m.Peaks[i].At)", "_ = times.at(m.Peaks[i].At)"}}},
	{name: "rebase-order", in: "./history", test: "TestRebase", rule: "a rebase does not keep the order of times", edits: []edit{{rebase, "to = min(to, before-1)", "to = min(to, before)"}}},

	// The scripts in Redis; tests find these.
	{name: "redis-ttl", in: "./history/redis", test: "TestContentsExpire", rule: "an archived record never expires in Redis", edits: []edit{{redisClean, "    expire(key, list, ttl) -- first", "    -- first"}}},
	{name: "redis-ttl-list", in: "./history/redis", test: "TestContentsExpire", rule: "a record outlives its list in Redis, so a clear does not find it", edits: []edit{{redisClean, "math.max(1, math.min(ttl, left - 43200))", "ttl"}}},
	{name: "redis-ttl-warm", in: "./history/redis", test: "TestContentsExpire", rule: "a warm-up lets an unarchived record expire", edits: []edit{{redisWarm, "call('EXPIRE', KEYS[i], ttl, 'XX')", "call('EXPIRE', KEYS[i], ttl)"}}},
	{name: "redis-warm-all", in: "./history/redis", test: "TestCache/Fake/WarmAll", rule: "a batch of warm-ups does not name the records that a clear mark renumbers", edits: []edit{{"history/redis/user.go", "if c.overwrites(sets[i]) {", "if false {"}}},
	{name: "redis-mark", in: "./history/redis", test: "TestNoContentWithoutMark", rule: "a content is stored although its mark was refused", edits: []edit{{redisApply, "call('ZADD', sub(list, 1, 8) .. 'dirty'", "try('ZADD', sub(list, 1, 8) .. 'dirty'"}}},
	{name: "redis-type", in: "./history/redis", test: "TestWrongType", rule: "a key of another type counts as missing", edits: []edit{{redisApply, "local errors, new = foreign(), {}", "local errors, new = {}, {}"}}},
	{name: "redis-base", in: "./history/redis", test: "TestConflictKeepsContent", rule: "a write replaces what is not its base", edits: []edit{{redisApply, "if prior == base and (", "if base ~= none or ("}}},

	// Classes of types.
	{name: "class-pause", rule: "a switch of recording does not reach the classes' namespaces", edits: []edit{{states, "if !d.missing(own) {", "if !d.missing(own) || d.clear.Until == 0 {"}}},
	{name: "class-clear", rule: "a clear is answered before it reaches the classes' namespaces", edits: []edit{{decide, "\tif err := w.states.Follow(ctx, uid); err != nil {\n\t\treturn nil, fmt.Errorf(\"clear", "\tif err := ctx.Err(); err != nil {\n\t\treturn nil, fmt.Errorf(\"clear"}}},
	{name: "class-owner", rule: "readers apply only a class's own clear marks to its records", edits: []edit{{namespaces, "\t\te.User.MergeCleared(cleared)\n", "\t\t_ = cleared\n"}}},
	{name: "class-newest", rule: "a clear by a slow clock keeps records in classes", edits: []edit{{points, "range r.namespaces(uid, q.Type) {", "range r.namespaces(uid, q.Type)[:1] {"}}},
	{name: "class-changes", rule: "changes omit the classes' namespaces", edits: []edit{{changes, "n < len(since.namespaces) && since.known; n++ {", "n < 1 && since.known; n++ {"}}},

	// The counts.
	{name: "count-removed", rule: "another removal keeps all that was counted", edits: []edit{{countRules, "p.At <= s.RemovedAt {", "s.RemovedAt > m.RemovedAt {"}}},
	{name: "count-taken", rule: "a removal takes plays away", edits: []edit{{countRules, "p.Day() <= closed || p.At <= s.RemovedAt {", "p.Day() <= closed {"}}},
	{name: "count-whole", rule: "the whole is added, not the difference", edits: []edit{{countRules, "\t\tchange.add(p.Day(), Sum{Plays: -int64(p.Plays), Watched: -p.Watched}) //nolint:gosec // some thousands\n", ""}}},
	{name: "count-overtaken", rule: "an overtaken statement counts", edits: []edit{{countRules, "m.CellTime != 0 && m.Has(s)", "false"}}},
	{name: "count-removals", rule: "statements are ordered by cell time alone", edits: []edit{{countRules, "cmp.Or(cmp.Compare(s.RemovedAt, m.RemovedAt), cmp.Compare(s.CellTime, m.CellTime)) <= 0", "cmp.Compare(s.CellTime, m.CellTime) <= 0"}}},
	{name: "count-viewers", rule: "a viewer counts with each statement", edits: []edit{{countRules, "viewer(after) - viewer(before)", "viewer(after)"}}},
	{name: "count-restored", rule: "restored plays count again", edits: []edit{{shown, "\tif r.Restored {\n\t\tr = r.cut(r.RemovedAt)\n\t}\n", ""}}},
	{name: "count-unwatched", in: "./history/count", test: "TestOf", rule: "a record that was marked as unwatched says nothing", edits: []edit{{shown, "r.PlaysBeforeAt == 0 && ", ""}}},
	{name: "count-first", rule: "records are marked clean without their statements", edits: []edit{{jobRound, "\tif err := a.publishCounts(ctx, &b); err != nil {\n\t\treturn nil, err\n\t}\n", ""}}},
	{name: "count-unsent", in: "./history-job", test: "TestCountsUnsent", rule: "records whose statements are unanswered are marked clean", edits: []edit{{jobPut, "\treturn a.without(ctx, b, keys, nil)\n", "\treturn nil\n"}}},
	{name: "count-cleared", rule: "what a clear mark covers counts", edits: []edit{{jobPut, "\t\tif r := present(k, &e); r != nil {\n\t\t\tif s, ok", "\t\tif r := e.Record; r != nil {\n\t\t\tif s, ok"}}},
	{name: "count-cold", rule: "what an archived clear mark covers counts, if the cache lost the mark", edits: []edit{{jobFold, "\t\te.User.MergeCleared(old[k].User.Cleared)\n", ""}}},
	{name: "cleared-clean", rule: "a record that an archived clear mark covers is put and told", edits: []edit{{jobFold, "\tpartial = cleared(b, partial, old)\n", ""}}},
	{name: "count-deleted", rule: "a delete removes plays that nobody has said", edits: []edit{{write, "\t\tw.countDeleted(ctx, b)\n", ""}}},
	{name: "count-partial", in: "./history-service/rpc", test: "TestDeletedCountsArchived", rule: "a delete says what a partial record says", edits: []edit{{decide, "case all.CellTime > cached.CellTime || !history.Same(all, cached):", "case all == nil:"}}},
	{name: "count-refused", in: "./history-service/rpc", test: "TestDeletedCountsUnavailable", rule: "a delete goes on although its statement was not sent", edits: []edit{{decide, "groups[unsent[i].Key()].fail()", "_ = groups[unsent[i].Key()]"}}},
	{name: "count-commit", rule: "statements are committed that the counters have not answered for", edits: []edit{{jobCounts, "if left = unsent; len(left) == 0 {", "if left = unsent; true {"}}},
	{name: "count-mark", rule: "totals change without the mark", edits: []edit{{hbCount, "\t\tcolumns[markFamily] = marks\n", "\t\t_ = marks\n"}}},
	{name: "count-embedded", in: "./history/pebble", test: "TestPromoteCounts", rule: "the embedded store archives without counting", edits: []edit{{pbPromote, "if !c.db.config.Counting.Types.Has(k.Object.Type) {", "if c.db != nil {"}}},

	// The stream of plays.
	{name: "plays-note", in: "./history-job", test: "TestPlaysChaos", rule: "no note precedes the messages", edits: []edit{{jobPlays, "if a.cfg.Plays == nil {\n\t\treturn nil\n", "if a.cfg.Plays != nil || b != nil {\n\t\treturn nil\n"}}},
	{name: "plays-unsent", in: "./history-job", test: "TestPlaysUnsent", rule: "unsent messages count as sent", edits: []edit{{jobPlays, "\tcase !sent:\n\t\ta.leave(len(owing.keys))\n\t\treturn nil, nil\n", ""}}},
	{name: "plays-retracted", in: "./history-job", test: "TestPlaysChaos", rule: "plays are not retracted", edits: []edit{{told, "\t\t\tadd(PlayRetracted, p)\n", "\t\t\t_ = p\n"}}},
	{name: "plays-unsure", in: "./history-job", test: "TestPlaysChaos", rule: "what may have been sent is not sent again", edits: []edit{{told, "!has || !t.sure {", "!has {"}}},
	{name: "plays-deleted", in: "./history-job", test: "TestPlaysChaos", rule: "deletes are not sent", edits: []edit{{told, "if until := r.goneUntil(); until > t.until {\n\t\tm := PlayMessage{", "if until := r.goneUntil(); until < 0 {\n\t\tm := PlayMessage{"}}},
	{name: "plays-order", in: "./history-job", test: "TestPlaysChaos", rule: "plays precede what removes others", edits: []edit{{jobPlays, "\t\t\treturn -1\n\t\tcase b.Kind", "\t\t\treturn 1\n\t\tcase b.Kind"}, {jobPlays, "\t\t\treturn 1\n\t\t}\n\t\treturn cmp", "\t\t\treturn -1\n\t\t}\n\t\treturn cmp"}}},
	{name: "plays-cleared", in: "./history-job", test: "TestPlaysChaos", rule: "clears are not sent", edits: []edit{{jobPlays, "\t\t\tmessages = append(messages, history.ClearMessages(k.UID, &e.User)...)\n", ""}}},

	// Segments and their archive.
	{name: "compact-late", rule: "old records are put into columns that compactions delete", edits: []edit{{hbPut, "if c.Record.Version.Time() < late.before {", "if false {"}}},
	{name: "compact-margin", rule: "a compaction moves records that may still be put", edits: []edit{{compactGo, "return r.began - r.Archive.segments.mark.Load().after - r.margin()", "return r.began"}}},
	{name: "compact-period", rule: "late columns are compacted during their puts", edits: []edit{{compactGo, "return (period + 2) * r.margin()", "return period * r.margin()"}}},
	{name: "compact-order", rule: "live cells are deleted before the segments are written", edits: []edit{{compactGo, "{r.clean, r.write, r.drop, r.remove}", "{r.clean, r.drop, r.write, r.remove}"}}},
	{name: "compact-silent", rule: "readers do not learn of segments", edits: []edit{{compactGo, "\treturn r.announce(ctx, m)\n", "\t_ = m\n\treturn nil\n"}}},
	{name: "compact-compare", rule: "a chunk list overwrites a concurrent one", edits: []edit{{compactGo, "won, err = r.client.CheckAndPut(put, segmentFamily, segmentColumn, r.bytes)", "_, err = r.client.Put(put)\n\t\twon = err == nil"}}},
	{name: "compact-lost", rule: "a compaction that has lost deletes the records it moved", edits: []edit{{compactGo, "\tif err == nil && !won {", "\tif err == nil && !won && r.bytes == nil && r.items == nil {"}}},
	{name: "compact-unread", rule: "a list is switched to chunks that were not read back", edits: []edit{{compactGo, "\t\tif err := r.allTo(ctx, server, puts); err != nil {\n\t\t\treturn err\n\t\t}\n", "\t\tif err := r.allTo(ctx, server, puts); err != nil || gets != nil {\n\t\t\treturn nil\n\t\t}\n"}}},
	{name: "compact-horizon", rule: "unlisted chunks are deleted too early", edits: []edit{{compactGo, "before := r.began - r.horizon().Milliseconds()", "before := r.began + 1"}}},
	{name: "compact-in-time", rule: "a compaction switches after any time", equivalent: "a compaction whose calls all end in time is never that late: it takes a process suspended between two calls, and none is here.", edits: []edit{{compactGo, "if r.now()-r.began > r.horizon().Milliseconds()/2 {", "if false {"}}},
	{name: "compact-marker", rule: "a compaction deletes a column up to now", edits: []edit{{compactGo, "r.deleteLive(ctx, r.cleanBefore()-1,", "r.deleteLive(ctx, r.began,"}}},
	{name: "compact-cleared", rule: "a compaction lists records that were cleared meanwhile", equivalent: "readers apply the clear marks of the live segment, and the next compaction removes the records; until then an erasure has left them in segments.", edits: []edit{{compactGo, "if r.live.cleared[typ] < until {", "if r.live.cleared[typ]+until < 0 {"}}},
	{name: "compact-discard", rule: "a compaction that has lost to itself deletes its chunks", edits: []edit{{compactGo, "!listed[c.Name] {", "c.Name != \"\" || listed == nil {"}}},
	{name: "compact-cut", rule: "a compaction drops the cell times of cleared records", equivalent: "the cell times in segments are earlier than those of all later puts into live columns. It takes a late put between a switch and #compacted, and a reader with the old list in memory.", edits: []edit{{compactGo, "if cut <= max(least, r.live.cut) ||", "if cut >= 0 || cut <= max(least, r.live.cut) ||"}}},
	{name: "compact-tombstones", rule: "a compaction drops tombstones", edits: []edit{{compactGo, "\t\tr.leaving = append(r.leaving, o)\n", "\t\tr.leaving = append(r.leaving, o)\n\t\tif o.record.Deleted() {\n\t\t\tcontinue\n\t\t}\n"}}},
	{name: "compact-twice", rule: "of two columns of an object a compaction takes the last", edits: []edit{{compactGo, "r.items[i].Record = segment.Resolve(r.items[i].Record, o.record)", "r.items[i].Record = o.record"}}},
	{name: "compact-begins", rule: "compactions begin while others put old records into columns that compactions delete", equivalent: "it takes two contents of one cell time, the later one put by a process that does not know of compaction yet.", edits: []edit{{hbSegments, "m.since+3*m.margin-a.now()", "m.since-a.now()"}}},
	{name: "compact-begun", rule: "old records are put into columns that compactions delete after these have begun", equivalent: "it takes two contents of one cell time, the later one put by a process that does not know of compaction yet.", edits: []edit{{hbSegments, "now < m.since+m.margin", "now < m.since+12*m.margin"}}},
	{name: "read-known", rule: "a reader uses its cached list", edits: []edit{{hbSegments, "return uid + \"\\x00v\" + strconv.FormatUint(version, 10)", "return uid + \"\\x00v\" + strconv.FormatUint(version-version, 10)"}}},
	{name: "page-late", rule: "a page omits late columns", edits: []edit{{hbGet, "families = append(families, lateFamily)", "families = append(families, family)"}}},
	{name: "get-live", rule: "a get reads only the live segment", edits: []edit{{hbGet, "q.options(a.segments.known())", "q.options(false)"}}},
	{name: "live-counts", rule: "a live record wins, whatever the segments have", edits: []edit{{segmentRead, "compacted == nil || live != nil && live.CellTime > compacted.CellTime:", "compacted == nil || live != nil:"}}},
	{name: "live-twins", rule: "of two contents of one cell time the live one wins", equivalent: "no content put within 2 s is in segments yet, and content based on an older cache is merged with the archive's first: it never gets the same or an earlier cell time.", edits: []edit{{segmentRead, "both := *history.Merge(live, compacted)", "both := *live"}}},
	{name: "late-counts", rule: "of two columns of an object the earlier content wins", edits: []edit{{hbCodec, "b.damage == nil && b.at > a.at", "b.damage == nil && b.at < a.at"}}},
	{name: "find-late", rule: "a chunk is not searched for an object with a live record from the chunk's time", edits: []edit{{segmentRead, "(live[n] == nil || live[n].CellTime <= info.CellTime) && info.Filter.Has(hashes[n])", "live[n] == nil && info.Filter.Has(hashes[n])"}}},
	{name: "stitch-live", rule: "a page shows a segment's record in addition to its live record", edits: []edit{{segmentRead, " || r != nil && left.Version == r.Version {", " {"}}},
	{name: "stitch-part", rule: "a page shows a live record in addition to its segment's record", equivalent: "no content put within 2 s is in segments yet, and content based on an older cache is merged with the archive's first: it never gets the same or an earlier cell time.", edits: []edit{{segmentRead, "\tif left.Version != it.Record.Version {\n\t\treturn nil", "\tif left.Version != it.Record.Version && left == nil {\n\t\treturn nil"}}},
	{name: "superseded", rule: "recompacted records stay in their old chunk", edits: []edit{{segmentCompact, "\t\t\t\t} else {\n\t\t\t\t\tc.remove(place, ", "\t\t\t\t} else if n.Record == nil {\n\t\t\t\t\tc.remove(place, "}}},
	{name: "part-tombstone", rule: "records that a tombstone covers stay in segments", equivalent: "the live tombstone hides it, and replaces it in the segment when it is compacted.", edits: []edit{{segmentCompact, "s != nil && s.Record.CellTime > it.Record.CellTime &&", "s != nil && s.Record == nil &&"}}},
	{name: "part-clear", rule: "records that clear marks cover stay in segments", edits: []edit{{segmentCompact, "if maps.Equal(w.Cleared, w.old.Cleared) {\n\t\treturn nil", "if w.old != nil {\n\t\treturn nil"}}},
	{name: "erase-switch", rule: "an erasure deletes listed chunks", edits: []edit{{hbErase, "\tif err := r.store(ctx); err != nil { // even without changes", "\tif err := ctx.Err(); err != nil { // also"}}},

	// The embedded store.
	{name: "embedded-drop", in: "./history/pebble", rule: "the embedded store's compaction drops puts since its read", edits: []edit{{pbCompact, "if r.db.compacting.changed[text] {", "if false {"}}},
	{name: "embedded-state", in: "./history/pebble", rule: "the embedded store's compaction overwrites the user's state with the one it read", edits: []edit{{pbCompact, "\tif r.db.compacting.all {\n", "\tif false {\n"}}},
}
