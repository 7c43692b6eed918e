package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history/pebble"
)

// openData opens the data directory of --data, of an all-in-one that is not running.
func openData(dir string, c pebble.Config) (*pebble.DB, error) {
	err := hasStore(dir)
	if err == nil {
		var db *pebble.DB
		if db, err = pebble.Open(dir, c); err == nil {
			return db, nil
		}
	}
	return nil, fmt.Errorf("--data: %w", err)
}

// hasStore fails for a directory that is missing or empty, where [pebble.Open] would make a store, and for a backup, which
// it would change.
func hasStore(dir string) error {
	files, err := os.ReadDir(dir)
	if err == nil && len(files) == 0 {
		err = errors.New("it is empty")
	}
	if err == nil && allinone.IsBackup(dir) {
		err = errors.New("it is a backup: start playhead serve on a copy first")
	}
	if err != nil {
		return fmt.Errorf("no store in %s: %w", dir, err)
	}
	return nil
}
