package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// killAlone kills the all-in-one in a loop under load. With a torn tail, every file
// of its log ends in half a write when it comes back.
func killAlone(torn bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-"+t.res.Case))
		if err != nil {
			return err
		}
		err = t.underLoad(ctx, func(ctx context.Context) error {
			for range 12 {
				if err := pause(ctx, time.Duration(200+t.rand.IntN(1000))*time.Millisecond); err != nil {
					return err
				}
				a.unit.crash()
				if torn {
					if err := a.tear(); err != nil {
						return err
					}
				}
				a.unit.up()
				t.load.epoch.Add(1)
				if err := a.unit.awaitReady(ctx, 20*time.Second); err != nil {
					return err
				}
			}
			return nil
		})
		return errors.Join(err, a.settle(ctx), a.close())
	}
}

// tear appends half a write to the newest log of the store.
func (a *alone) tear() error {
	logs, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	if more, _ := filepath.Glob(filepath.Join(a.dir, "*", "*.log")); err == nil {
		logs = append(logs, more...)
	}
	var newest string
	var at time.Time
	for _, path := range logs {
		if st, err := os.Stat(path); err == nil && st.ModTime().After(at) {
			newest, at = path, st.ModTime()
		}
	}
	f, err := os.OpenFile(newest, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("tear the log: %w", err)
	}
	garbage := make([]byte, 1+a.rand.IntN(300))
	for i := range garbage {
		garbage[i] = byte(a.rand.Uint32())
	}
	_, err = f.Write(garbage)
	return errors.Join(err, f.Close())
}
