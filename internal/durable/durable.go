// Package durable replaces files in one step and makes names durable.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile leaves either the former or the new content after a crash, and the new one after it has returned. Only the
// file's user may read it. It writes to path with ".new" first, so one call at a time may replace a file.
func WriteFile(path string, content []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // the caller's choice
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the caller's choice
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
