package write

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/report"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// batch is one call: its reports by key.
type batch struct {
	rules   *history.Rulebook
	now     int64 // when it came, in Unix milliseconds
	reports []report.Report
	groups  []*group
	// latest is for deletes without a time of their own, which cover what their user sees, whatever the clocks.
	latest bool
	// covers gives each delete the time of the record that it meets, if that is later than the delete, but no later than this time.
	covers int64
	// imported says that the reports are whole records, of an import. Their keys are always loaded
	// from the cache: a hold does not know of clears.
	imported bool
	// rebased says that the reports are keys whose records are to be rebased, each to the time of its report: see [Writer.Rebase].
	rebased bool
	// namespace is the uid of the namespace that is written to, empty for the namespaces of the reports' types.
	namespace string
	// begun is how many comparisons had begun before the batch was stored.
	begun uint64

	// The memory of the groups. The next batch uses it again.
	room    []group
	indexes []int
	byKey   map[history.Key]*group

	// Memory for the records of one fold, see [group.add].
	delta history.Record
	folds [2]history.Record
}

// group is the events of one key on their way into one record.
type group struct {
	batch   *batch
	key     history.Key
	reports []int          // indexes into batch.reports
	held    aggregate.Held // what the service last wrote of the key

	base       *history.Record // what the cache holds
	archived   *history.Record // what the archive holds instead, where that was asked
	older      *history.Record // what is folded in as well: the held record after a conflict, or what other namespaces have
	user       history.User
	cold       bool            // the archive may have clear marks that the cache has not
	moved      bool            // the archive may have more of the record in other namespaces
	next       *history.Record // base and events, nil when there is nothing
	beginsHold bool            // the next write begins a hold: history.Write.BeginsHold
	done       bool            // stored, failed, or nothing to store
	failed     bool            // a store did not answer
	lost       bool            // a write lost against another writer
	unshared   bool            // no cache, hold or reader has next: it may be changed
	visible    bool            // the key had a record that readers saw
	granted    grant           // the etag that an event of the batch has matched, in fold.go

	written *history.Record // what the cache holds since; nil when nothing was written
	ended   bool            // an event ended the viewing
}

// group divides the reports that are not yet decided by key.
func (b *batch) group() {
	n := len(b.reports)
	b.groups, b.room = slices.Grow(b.groups, n), slices.Grow(b.room, n)
	b.indexes = slices.Grow(b.indexes, n)[:n] // each group begins with one of them
	if n > 1 && b.byKey == nil {
		b.byKey = make(map[history.Key]*group, n)
	}
	for i := range b.reports {
		r := &b.reports[i]
		if r.Status != historyv1.Status_STATUS_UNSPECIFIED {
			continue
		}
		k := b.inNamespace(r.Key)
		g := b.byKey[k]
		if g == nil {
			b.room = append(b.room, group{batch: b, key: k, reports: b.indexes[i : i : i+1]})
			g = &b.room[len(b.room)-1]
			b.groups = append(b.groups, g)
			if n > 1 {
				b.byKey[k] = g
			}
		}
		g.reports = append(g.reports, i)
	}
}

// inNamespace returns the key under which the stores have k: with the uid of the namespace of its type, or of the batch's namespace.
func (b *batch) inNamespace(k history.Key) history.Key {
	if b.namespace != "" {
		k.UID = b.namespace
	} else {
		k.UID = b.rules.NamespaceOf(k.UID, k.Object.Type)
	}
	return k
}

// reset empties a batch and keeps its memory.
func (b *batch) reset() {
	clear(b.groups)
	clear(b.room)
	clear(b.byKey)
	*b = batch{groups: b.groups[:0], room: b.room[:0], indexes: b.indexes[:0], byKey: b.byKey}
}

// sort orders the events by time. A record remembers a bounded number of completed
// viewings and counts no older ones, so that a long history sent newest first would
// lose plays.
func (g *group) sort() {
	slices.SortStableFunc(g.reports, func(i, j int) int {
		return cmp.Compare(g.batch.reports[i].At, g.batch.reports[j].At)
	})
}

// before is the record as it stood before the batch.
func (g *group) before() *history.Record {
	if g.base != nil {
		return g.base
	}
	return g.archived
}

// fail decides every event of the group that a store did not answer for.
func (g *group) fail() {
	g.done, g.failed = true, true
	for _, i := range g.reports {
		g.batch.reports[i].Status = historyv1.Status_STATUS_UNAVAILABLE
	}
}
