package write

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/report"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// batch is the reports of one call, by key.
type batch struct {
	rules   *history.Rulebook
	now     int64 // arrival time, Unix milliseconds
	reports []report.Report
	groups  []*group
	// namespace is the uid of the target namespace, empty for the namespaces of the reports' types.
	namespace string
	// begun is the number of comparisons started before the store.
	begun uint64

	// Memory for the groups, reused by the next batch.
	room    []group
	indexes []int
	byKey   map[history.Key]*group

	// Memory for the records of one fold, see [group.add].
	delta history.Record
	folds [2]history.Record
}

// group is the reports of one key, to be written as one record.
type group struct {
	batch   *batch
	key     history.Key
	reports []int          // indexes into batch.reports.
	held    aggregate.Held // the service's last write of the key.

	base       *history.Record // record in the cache.
	archived   *history.Record // record in the archive, if fetched.
	asked      bool            // the archive has answered.
	older      *history.Record // folded in as well: the held record after a conflict.
	user       history.User
	cold       bool            // the archive may have clear marks that the cache lacks.
	next       *history.Record // base and events, nil if empty.
	first      *history.Record // to be written before next, if any; see [Writer.countDeleted].
	beginsHold bool            // see history.Write.BeginsHold.
	done       bool            // stored, failed, or nothing to store.
	failed     bool            // a store did not answer.
	lost       bool            // a write lost to another writer.
	unshared   bool            // no cache, hold or reader has next, so it may be changed.
	visible    bool            // the key had a visible record.
	granted    grant           // the etag matched by an event of the batch, in fold.go.

	written *history.Record // record now in the cache; nil if nothing was written.
	ended   bool            // an event ended the viewing.
}

// group groups the undecided reports by key.
func (b *batch) group() {
	n := len(b.reports)
	b.groups, b.room = slices.Grow(b.groups, n), slices.Grow(b.room, n)
	b.indexes = slices.Grow(b.indexes, n)[:n] // each group begins with one index
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

// inNamespace returns the stored key of k: with the uid of its type's namespace, or of the batch's namespace.
func (b *batch) inNamespace(k history.Key) history.Key {
	if b.namespace != "" {
		k.UID = b.namespace
	} else {
		k.UID = b.rules.NamespaceOf(k.UID, k.Object.Type)
	}
	return k
}

func (b *batch) reset() {
	clear(b.groups)
	clear(b.room)
	clear(b.byKey)
	*b = batch{groups: b.groups[:0], room: b.room[:0], indexes: b.indexes[:0], byKey: b.byKey}
}

// sort orders the events by time. A record lists a bounded number of completed viewings and counts no older
// ones, so a long history sent newest first would lose plays.
func (g *group) sort() {
	slices.SortStableFunc(g.reports, func(i, j int) int {
		return cmp.Compare(g.batch.reports[i].At, g.batch.reports[j].At)
	})
}

func (g *group) before() *history.Record {
	if g.base != nil {
		return g.base
	}
	return g.archived
}

// fail marks all events of the group as unavailable.
func (g *group) fail() {
	g.done, g.failed = true, true
	for _, i := range g.reports {
		g.batch.reports[i].Status = historyv1.Status_STATUS_UNAVAILABLE
	}
}
