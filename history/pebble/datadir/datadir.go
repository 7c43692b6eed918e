// Package datadir claims the directory of a store for one process.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

// Claim locks a directory, which it creates if it is missing, and returns its path without symbolic links. It fails
// with [history.ErrLocked] if a process has it, and refuses a directory with other files. The caller closes the lock.
func Claim(files vfs.FS, dir string) (path string, lock *pebble.Lock, err error) {
	if path, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	if err := wal.MakeDir(files, path); errors.Is(err, fs.ErrNotExist) {
		return "", nil, errors.New(err.Error() + ": choose another data directory") // nothing was lost
	} else if err != nil {
		return "", nil, err
	}
	if err := checkForeign(files, path); err != nil {
		return "", nil, err
	}
	// The lock depends on the path, so resolve symlinks.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	lock, err = lockDirectory(files, path)
	return path, lock, err
}

// checkForeign rejects a directory with other files. A store has a lock file, created first, or a Pebble marker.
func checkForeign(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	foreign := ""
	for _, name := range names {
		switch {
		case name == "LOCK", strings.HasPrefix(name, "marker."):
			return nil
		case name != "lost+found" && !strings.HasPrefix(name, "."):
			foreign = name
		}
	}
	if foreign != "" {
		return fmt.Errorf("data directory %s holds something else, such as %s: choose an empty one, or another name", dir, foreign)
	}
	return nil
}

// lockDirectory tells a directory in use from an unwritable one. If another process holds the lock, locking fails
// rather than opening the file.
func lockDirectory(files vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, files)
	if err == nil {
		return lock, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, err
	}
	return nil, fmt.Errorf("data directory %s is %w: stop it, or choose another directory (%w)",
		dir, history.ErrLocked, err)
}
