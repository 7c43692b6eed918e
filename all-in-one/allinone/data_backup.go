package allinone

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/durable"
	"github.com/playhead/playhead/internal/run"
)

// Backup describes a backup of a data directory: a directory that a process can be started on. It is a file of it,
// backup.json, written last.
type Backup struct {
	Made    time.Time    `json:"made"`
	Version string       `json:"version"` // of the program
	Files   []BackupFile `json:"files"`   // all but backup.json, by name
}

// BackupFile is a file of a backup, with a path in it.
type BackupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

const backupFile = "backup.json"

// Size is the size of all files in bytes.
func (b *Backup) Size() (size int64) {
	for _, f := range b.Files {
		size += f.Size
	}
	return size
}

// BackUp copies the data directory to a new directory on the same machine, while the process runs. The copy has every
// report and every removal that was acknowledged before the call. dir is the expected data directory.
func (p *Process) BackUp(ctx context.Context, dir, to string) (*Backup, error) {
	if err := p.has(dir); err != nil {
		return nil, err
	}
	if !p.backups.TryLock() {
		return nil, errors.New("another backup is being made")
	}
	defer p.backups.Unlock()
	began := time.Now()
	b, err := (&backup{db: p.db, dir: dir, to: to, running: true, dead: p.dead}).make(ctx)
	if err == nil {
		p.cfg.Logger.Info("backup made", "dir", to, "files", len(b.Files), "bytes", b.Size(), "took", time.Since(began).String())
	}
	return b, err
}

// has fails unless dir is the data directory.
func (p *Process) has(dir string) error {
	own, err := os.Stat(p.cfg.Dir)
	wanted, err2 := os.Stat(dir)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if !os.SameFile(own, wanted) {
		return fmt.Errorf("the process has the data directory %s, not %s", p.cfg.Dir, dir)
	}
	return nil
}

// BackUpStopped copies the data directory of a process that does not run.
func BackUpStopped(ctx context.Context, db *pebble.DB, dir, to string) (*Backup, error) {
	return (&backup{db: db, dir: dir, to: to, dead: &deadLetterFile{path: filepath.Join(dir, deadFile)}}).make(ctx)
}

// backup is a backup in the making. Its files come together in the directory to.partial, which a start refuses, and get
// their name in one step.
type backup struct {
	db      *pebble.DB
	dir, to string
	running bool
	dead    *deadLetterFile
	made    Backup
}

func (b *backup) make(ctx context.Context) (_ *Backup, err error) {
	if err := b.checkTarget(); err != nil {
		return nil, err
	}
	b.made = Backup{Made: time.Now().UTC().Truncate(time.Millisecond), Version: run.Version("playhead")}
	snapshot, drop, err := b.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	partial := b.to + ".partial"
	if err := beginPartial(partial); err != nil {
		return nil, fmt.Errorf("back up to %s: %w", b.to, err)
	}
	if err := b.fill(ctx, snapshot, partial); err != nil {
		return nil, errors.Join(fmt.Errorf("back up to %s: %w", b.to, err), dropPartial(partial))
	}
	_ = os.Remove(b.to) // an empty directory; otherwise the next step fails
	if err := os.Rename(partial, b.to); err != nil {
		return nil, errors.Join(err, dropPartial(partial))
	}
	return &b.made, durable.SyncDir(filepath.Dir(b.to))
}

// beginPartial makes the directory with an empty list of files. Nothing accepts that list, so a crash leaves no
// directory that looks whole.
func beginPartial(dir string) error {
	if IsBackup(dir) { // of an interrupted run
		if err := dropPartial(dir); err != nil {
			return err
		}
	}
	_ = os.Remove(dir) // an empty directory; otherwise the next step fails
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, backupFile), nil)
}

// dropPartial removes the list of files last.
func dropPartial(dir string) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if f.Name() != backupFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func (b *backup) checkTarget() error {
	if rel, err := filepath.Rel(b.dir, b.to); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("back up to %s: it is inside the data directory", b.to)
	}
	files, err := os.ReadDir(b.to)
	if err == nil && len(files) > 0 {
		return fmt.Errorf("back up to %s: it is not empty", b.to)
	}
	if _, err := os.Stat(filepath.Dir(b.to)); err != nil {
		return fmt.Errorf("back up to %s: %w", b.to, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// fill copies the snapshot of the store, and then the other files: dead letters are written before a record counts as
// archived.
func (b *backup) fill(ctx context.Context, snapshot, to string) error {
	size, err := sizeOf(snapshot)
	if err != nil {
		return err
	}
	if err := b.db.Room(filepath.Dir(b.to), size); err != nil {
		return err
	}
	names, err := filesOf(snapshot)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.add(ctx, filepath.Join(snapshot, name), to, name); err != nil {
			return err
		}
	}
	b.dead.mu.Lock()
	err = b.add(ctx, filepath.Join(b.dir, deadFile), to, deadFile)
	b.dead.mu.Unlock()
	for _, name := range []string{clockFile, secretFile} {
		err = errors.Join(err, b.add(ctx, filepath.Join(b.dir, name), to, name))
	}
	if err = errors.Join(err, b.addEpochs(ctx, to)); err != nil {
		return err
	}
	slices.SortFunc(b.made.Files, func(a, b BackupFile) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(b.made, "", "  ")
	if err != nil {
		return err
	}
	if err := syncDirs(to); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(to, backupFile), append(text, '\n'))
}

// addEpochs leaves out the epoch of a running process, which goes on: apps with later changes of it read everything again.
func (b *backup) addEpochs(ctx context.Context, to string) error {
	text, err := os.ReadFile(filepath.Join(b.dir, epochsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if epochs := strings.Fields(string(text)); b.running && len(epochs) > 0 {
		text = []byte(strings.Join(epochs[:len(epochs)-1], "\n") + "\n")
	}
	return b.write(ctx, bytes.NewReader(text), to, epochsFile)
}

// add copies a file, if there is one.
func (b *backup) add(ctx context.Context, from, to, name string) error {
	f, err := os.Open(from) //nolint:gosec // of the operator's directory
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(b.write(ctx, f, to, name), f.Close())
}

func (b *backup) write(ctx context.Context, in io.Reader, to, name string) error {
	path := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator's choice
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), until{ctx, in})
	b.made.Files = append(b.made.Files, BackupFile{Name: filepath.ToSlash(name), Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return errors.Join(err, out.Sync(), out.Close())
}

// until reads until ctx is done.
type until struct {
	ctx context.Context
	io.Reader
}

// Read reads from the file.
func (u until) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(b)
}

// IsBackup reports whether a directory is a backup that no process was started on.
func IsBackup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, backupFile))
	return err == nil
}

// VerifyBackup reads all files of a backup and compares them with what was written. It fails for a directory that is no
// complete backup.
func VerifyBackup(ctx context.Context, dir string) (*Backup, error) {
	text, err := os.ReadFile(filepath.Join(dir, backupFile)) //nolint:gosec // the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no backup: it has no %s, which is written last", dir, backupFile)
	}
	if err != nil {
		return nil, err
	}
	var b Backup
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("the backup %s is not complete: %s: %w", dir, backupFile, err)
	}
	there, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range b.Files {
		if err := f.verify(ctx, dir); err != nil {
			return nil, fmt.Errorf("the backup %s is not as it was made: %w", dir, err)
		}
		there = slices.DeleteFunc(there, func(name string) bool { return filepath.ToSlash(name) == f.Name })
	}
	if there = slices.DeleteFunc(there, func(name string) bool { return name == backupFile }); len(there) > 0 {
		return nil, fmt.Errorf("the backup %s is not as it was made: %s is not of it", dir, there[0])
	}
	return &b, nil
}

func (f *BackupFile) verify(ctx context.Context, dir string) error {
	in, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Name))) //nolint:gosec // the operator's choice
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, until{ctx, in})
	switch {
	case err != nil:
		return err
	case n != f.Size:
		return fmt.Errorf("%s has %d bytes, want %d", f.Name, n, f.Size)
	case hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return fmt.Errorf("%s has other bytes", f.Name)
	}
	return nil
}

// AcceptBackup turns a backup into a data directory, if dir is one and whole.
func AcceptBackup(ctx context.Context, dir string, log *slog.Logger) error {
	if !IsBackup(dir) {
		return nil
	}
	b, err := VerifyBackup(ctx, dir)
	if err != nil {
		return fmt.Errorf("%w: copy the backup again (removing %s would start without this check)", err, backupFile)
	}
	log.Warn("data directory is a backup, and from now on goes on from it", "dir", dir, "made", b.Made.String(), "version", b.Version)
	return errors.Join(os.Remove(filepath.Join(dir, backupFile)), durable.SyncDir(dir))
}

// filesOf lists the files of a directory and its folders, as paths in it.
func filesOf(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	return names, err
}

func sizeOf(dir string) (size int64, err error) {
	names, err := filesOf(dir)
	for _, name := range names {
		info, statErr := os.Stat(filepath.Join(dir, name))
		if err = errors.Join(err, statErr); err == nil {
			size += info.Size()
		}
	}
	return size, err
}

// syncDirs makes the names in a directory and its folders durable.
func syncDirs(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return durable.SyncDir(path)
	})
}
