package pebble

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

// begin compares the settings in the store with the config.
func (d *DB) begin() error {
	if err := d.beginRetention(); err != nil {
		return err
	}
	return d.beginSummaries()
}

// beginRetention compares the store's retention with the rules, or replaces it; see [Config.Change]. A store without
// one is new, or of an older version: its records live 90 days.
func (d *DB) beginRetention() error {
	rules, stored := d.config.Rules, []byte(nil)
	err := get(d.pebble, []byte{spaceRetention}, func(v []byte) error {
		stored = bytes.Clone(v)
		return nil
	})
	if err != nil {
		return err
	}
	was, err := d.storedRetention(stored)
	if err != nil {
		return err
	}
	if d.config.Change != nil {
		next := rules.Change(was, d.Opened().UnixMilli())
		if err := d.config.Change(was, next); err != nil {
			return err
		}
		was = next
	}
	next, err := rules.Agree(was)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.dir, rules.Remedy(err, "--data "+d.dir, d.dir))
	}
	if err := rules.ValidateSummaryTTL(d.config.Summary); err != nil {
		return err
	}
	v, err := json.Marshal(next)
	if err != nil || bytes.Equal(v, stored) {
		return err
	}
	t := new(wal.Waiter)
	err = d.Archive().change(t, func(e *edit) error { return set(e.batch, []byte{spaceRetention}, v) })
	if err != nil {
		return err
	}
	return d.wait(t)
}

func (d *DB) storedRetention(stored []byte) (r history.Retention, err error) {
	used, err := d.used()
	switch {
	case err != nil:
	case stored != nil:
		if err = json.Unmarshal(stored, &r); !used {
			r.Types = nil // any type may be in any class
		}
	case used:
		r.Keep = history.DefaultRetention
	default:
		r = d.config.Rules.Retention()
	}
	return r, err
}

// used reports whether the store has records, users or summaries.
func (d *DB) used() (used bool, err error) {
	for _, space := range []byte{spaceArchive, spaceCache, spaceSummaries} {
		for range d.each([]byte{space, 0}, []byte{space + 1}, &err) {
			used = true
			break
		}
	}
	return used, err
}

// Retention returns how long the store keeps records.
func (d *DB) Retention() history.Retention { return d.config.Rules.Retention() }
