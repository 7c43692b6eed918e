package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/run"
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

type backupFlags struct {
	Dir      string        `arg:"" help:"New directory of the backup, on the machine of the process."`
	Verify   bool          `help:"Read a backup, and compare it with what was written."`
	Data     string        `help:"Data directory." default:"playhead-data"`
	Admin    string        `help:"Address of the admin port of the process, if it runs." default:"127.0.0.1:7071"`
	Patience time.Duration `help:"How long it may take." default:"24h" positive:""`
}

// Help returns the introduction to --help.
func (*backupFlags) Help() string {
	return `Copies the data directory of playhead serve, which goes on meanwhile, or of a stopped one. The backup has all that was acknowledged before the command, ` +
		`and the secret of the tokens. It gets its name when it is complete. To restore it, start playhead serve --data on a copy. See docs/backup.md.`
}

func backUp(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f backupFlags
	if err := run.Parse("playhead backup", &f, args, getenv, out); err != nil {
		return err
	}
	if err := connect.Addresses("--admin", f.Admin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Patience)
	defer cancel()
	began := time.Now()
	b, done, err := f.run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d files, %.1f MiB, as of %s, %s in %v\n", f.Dir, len(b.Files), float64(b.Size())/(1<<20), b.Made.Format(time.RFC3339), done, time.Since(began).Round(time.Millisecond))
	return nil
}

func (f *backupFlags) run(ctx context.Context) (b *allinone.Backup, done string, err error) {
	if f.Verify {
		b, err = allinone.VerifyBackup(ctx, f.Dir)
		return b, "verified", err
	}
	to, err1 := filepath.Abs(f.Dir)
	data, err2 := filepath.Abs(f.Data)
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", err
	}
	db, err := openData(data, pebble.Config{})
	switch {
	case errors.Is(err, history.ErrLocked):
		b, err = f.ask(ctx, data, to)
	case err == nil:
		b, err = allinone.BackUpStopped(ctx, db, data, to)
		err = errors.Join(err, db.Close())
	}
	return b, "made", err
}

// ask has the running process make the backup.
func (f *backupFlags) ask(ctx context.Context, data, to string) (*allinone.Backup, error) {
	b := new(allinone.Backup)
	return b, askOwner(ctx, f.Admin, "/backup", url.Values{"data": {data}, "to": {to}}, b)
}
