package pebble

import (
	"context"

	"github.com/playhead/playhead/history"
)

// Archive implements [history.Archive] with the half of a [DB] that keeps records.
type Archive struct{ half }

var _ history.Archive = (*Archive)(nil)

// Archive returns the half of the store that keeps records.
func (d *DB) Archive() *Archive {
	return &Archive{half{db: d, space: spaceArchive, life: archiveLife, lock: &d.archive, memory: d.none}}
}

// Get implements [history.Archive].
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
	entries, err := a.load(ctx, keys)
	if err != nil {
		return nil, err
	}
	records := make([]*history.Record, len(keys))
	for i, e := range entries {
		if e.Err != nil {
			return nil, e.Err
		}
		records[i] = e.Record.After(e.User.ClearedAt(keys[i].Object.Type))
	}
	return records, nil
}

// Row implements [history.Archive].
func (a *Archive) Row(ctx context.Context, uid string) (history.Row, error) {
	if err := a.db.enter(ctx); err != nil {
		return history.Row{}, err
	}
	defer a.db.leave()
	row, err := a.rowOf(uid, a.oldest())
	if err != nil {
		return history.Row{}, err
	}
	return row, nil
}

func (a *Archive) rowOf(uid string, oldest int64) (row history.Row, err error) {
	r, err := a.row(uid)
	if err != nil {
		return row, err
	}
	var u history.User
	for text, v := range r.all(&err) {
		if len(text) == 0 {
			u, err = a.state(v, oldest)
			row.Cleared, row.Pause = u.Cleared, u.Pause
		} else {
			err = a.add(&row, text, v, oldest)
		}
		if err != nil {
			break
		}
	}
	return row, err
}

func (a *Archive) add(row *history.Row, text, value []byte, oldest int64) error {
	o, err := parseObject(text)
	if err != nil {
		return err
	}
	r, err := a.record(value, oldest)
	u := history.User{Cleared: row.Cleared}
	if r = r.After(u.ClearedAt(o.Type)); r != nil {
		row.Items = append(row.Items, history.Item{Object: o, Record: r})
	}
	return err
}
