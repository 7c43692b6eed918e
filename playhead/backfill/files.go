package backfill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/playhead/playhead/internal/imports"
)

// Files is a source of files of old viewings, directories of them, and "-" for standard input.
type Files struct {
	Options imports.Options
	Paths   []string

	source atomic.Pointer[imports.Source]
	total  atomic.Int64
}

// marks is the number of rows between two marks.
const marks = 256

// headBytes is how much of a file's begin tells it from others.
const headBytes = 64 << 10

// Items implements [Source]. A mark is the number of a row; the rows before are read again.
func (f *Files) Items(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		from, err := parseMark(after)
		if err != nil {
			yield(Item{}, err)
			return
		}
		_ = f.each(func(_ string, _ *os.File, about os.FileInfo) error { // only for the progress
			f.total.Add(about.Size())
			return nil
		})
		s := imports.Open(f.Options, f.Paths...)
		f.source.Store(s)
		for row, err := range s.Items(ctx) {
			if err != nil {
				yield(Item{}, err)
				return
			}
			if row.N > from && !yield(item(&row), nil) {
				return
			}
		}
	}
}

func parseMark(mark string) (int64, error) {
	if mark == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(mark, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("mark %q of the checkpoint: want the number of a row", mark)
	}
	return n, nil
}

func item(row *imports.Item) Item {
	i := Item{Place: row.Place, Reason: row.Reason}
	if row.N%marks == 0 {
		i.Mark = strconv.FormatInt(row.N, 10)
	}
	switch {
	case row.Outcome == imports.Skipped:
		i.Outcome = Skipped
	case row.Outcome == imports.Rejected:
		i.Outcome = Rejected
	case row.Event.Key.UID == "":
		i.Outcome, i.Reason = Rejected, "the file names no user: give one with --user, or a column with --map"
	default:
		e := row.Event
		i.Key, i.Event = e.Key, &e
	}
	return i
}

// Read implements [Sized], in bytes.
func (f *Files) Read() (read, total int64) {
	if s := f.source.Load(); s != nil {
		read = s.Consumed()
	}
	return read, f.total.Load()
}

// Identity implements [Source]: a hash of the names, sizes, times of change and first bytes of all files. To hash large
// files as a whole takes longer than to copy them.
func (f *Files) Identity() (string, error) {
	sum := sha256.New()
	err := f.each(func(name string, file *os.File, about os.FileInfo) error {
		size := about.Size()
		head := make([]byte, min(size, headBytes))
		if _, err := io.ReadFull(file, head); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(sum, "%s\x00%d\x00%d\x00%x\x00", name, size, about.ModTime().UnixNano(), sha256.Sum256(head))
		return nil
	})
	return "files:" + hex.EncodeToString(sum.Sum(nil)[:16]), err
}

var errNotAgain = errors.New("standard input cannot be read again: give a file")

// each opens all files, of directories too.
func (f *Files) each(do func(name string, file *os.File, about os.FileInfo) error) error {
	for _, path := range f.Paths {
		if path == "-" {
			return errNotAgain
		}
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			about, err := file.Stat()
			if err != nil || !about.Mode().IsRegular() {
				return err
			}
			return do(path, file, about)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
