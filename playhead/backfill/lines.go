package backfill

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"sync"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/imports"
)

// Lines of a file are export lines with a user, as GET /v1/export has them, and two more kinds.

// deletedLine is a deleted object.
type deletedLine struct {
	User    string       `json:"user"`
	Object  codec.Object `json:"object"`
	Deleted string       `json:"deleted"`
}

// userLine is a user's own state: the clear marks by type, 0 for all, and the begin of an active pause.
type userLine struct {
	User    string            `json:"user"`
	Cleared map[uint32]string `json:"cleared,omitempty"`
	Paused  string            `json:"paused,omitempty"`
}

// ToLines is a target that writes a file of lines. It has them once for each item: a later line does not replace an
// earlier one, but both are folded in when they are read.
type ToLines struct {
	mu  sync.Mutex
	out *bufio.Writer
	f   *os.File
}

// Create creates the file, or continues it.
func Create(path string, resume bool) (*ToLines, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if resume {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return &ToLines{out: bufio.NewWriter(f), f: f}, nil
}

// Close flushes the file to the disk.
func (t *ToLines) Close() error {
	return errors.Join(t.out.Flush(), t.f.Sync(), t.f.Close())
}

// Fold implements [Target]. The lines are in the file when it returns.
func (t *ToLines) Fold(_ context.Context, items []Item) ([]Result, error) {
	results := make([]Result, len(items))
	var b bytes.Buffer
	for i := range items {
		line, err := lineOf(&items[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", items[i].Key, err)
		}
		b.Write(append(line, '\n'))
		results[i].Outcome = New
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.out.Write(b.Bytes()); err != nil {
		return nil, err
	}
	return results, t.out.Flush()
}

func lineOf(i *Item) ([]byte, error) {
	uid, _ := history.UserOf(i.Key.UID)
	if u := i.User; u != nil {
		line := userLine{User: uid, Cleared: make(map[uint32]string)}
		for typ, at := range u.Cleared {
			line.Cleared[typ] = codec.FormatTime(at)
		}
		if u.Pause.On() {
			line.Paused = codec.FormatTime(u.Pause.Since)
		}
		return json.Marshal(line)
	}
	r := i.Record
	if r == nil {
		for e := range Beats(i.Event, 0) {
			r = history.Merge(r, e.Record())
		}
	}
	if r.Deleted() {
		o := i.Key.Object
		return json.Marshal(deletedLine{uid, codec.Object{ID: o.ID, Type: o.Type}, codec.FormatTime(r.Version.Time())})
	}
	whole, err := view.Whole(r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(codec.NewExportLine(uid, view.Item(i.Key.Object, r, nil), whole))
}

// FromLines is a source of a file of lines.
type FromLines struct{ Path string }

// maxLine bounds a line.
const maxLine = 1 << 20

// IsLines reports whether a file begins with such a line.
func IsLines(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, maxLine).ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	var first struct {
		User    string
		Version int
		Cleared json.RawMessage
		Paused  string
		Deleted string
	}
	return json.Unmarshal(line, &first) == nil && first.User != "" && (first.Version > 0 || first.Cleared != nil || first.Paused != "" || first.Deleted != "")
}

// Identity implements [Source].
func (l *FromLines) Identity() (string, error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return "", err
	}
	head := make([]byte, min(about.Size(), headBytes))
	_, err = io.ReadFull(f, head)
	return fmt.Sprintf("lines:%d:%x", about.Size(), sha256.Sum256(head)), err
}

// Items implements [Source]. A mark is the number of a line.
func (l *FromLines) Items(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		from, err := parseMark(after)
		if err == nil {
			err = l.read(ctx, from, yield)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{}, err)
		}
	}
}

var errStopped = errors.New("stopped")

func (l *FromLines) read(ctx context.Context, from int64, yield func(Item, error) bool) error {
	f, err := os.Open(l.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, maxLine)
	for n := int64(1); ctx.Err() == nil; n++ {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", l.Path, err)
		}
		if n > from && (long || len(bytes.TrimSpace(line)) > 0) {
			i := Item{Place: imports.Place{File: l.Path, Line: n}}
			if n%marks == 0 {
				i.Mark = strconv.FormatInt(n, 10)
			}
			if i.Outcome, i.Reason = Rejected, "longer than 1 MiB"; !long {
				i.Outcome, i.Reason = 0, ""
				parseLine(&i, line)
			}
			if !yield(i, nil) {
				return errStopped
			}
		}
		if err != nil {
			return nil
		}
	}
	return ctx.Err()
}

// parseLine sets the content of an item, or rejects it.
func parseLine(i *Item, line []byte) {
	var in struct {
		User    string
		Object  *codec.Object
		Deleted string
		Cleared map[uint32]string
		Paused  string
	}
	err := json.Unmarshal(line, &in)
	if err == nil {
		err = history.ValidateUID(in.User)
	}
	switch {
	case err != nil:
	case codec.IsExportLine(line):
		err = parseRecord(i, in.User, line)
	case in.Object != nil && in.Deleted != "":
		e := history.Event{Key: history.Key{UID: in.User, Object: history.Object{ID: in.Object.ID, Type: in.Object.Type}}, Kind: history.KindDelete}
		if e.At, err = codec.ParseTime("deleted", []byte(in.Deleted)); err == nil {
			err = e.Validate()
		}
		i.Key, i.Record = e.Key, e.Record()
	case in.Cleared != nil || in.Paused != "":
		u := &history.User{Cleared: make(map[uint32]int64)}
		for typ, text := range in.Cleared {
			if u.Cleared[typ], err = codec.ParseTime("cleared", []byte(text)); err != nil {
				break
			}
		}
		if in.Paused != "" && err == nil {
			u.Pause.Since, err = codec.ParseTime("paused", []byte(in.Paused))
		}
		i.Key, i.User = history.UserKey(in.User), u
	default:
		err = errors.New("want a line of an export, with version, or deleted, cleared or paused")
	}
	if err != nil {
		*i = Item{Place: i.Place, Mark: i.Mark, Outcome: Rejected, Reason: err.Error()}
	}
}

func parseRecord(i *Item, uid string, line []byte) error {
	m, wrong := codec.DecodeExportLine(uid, line)
	if wrong != nil {
		return fmt.Errorf("%s: %s", wrong.Field, wrong.Reason)
	}
	r, err := view.Record(m.GetRecord())
	if err != nil {
		return err
	}
	i.Key = history.Key{UID: uid, Object: history.Object{ID: m.GetObject().GetId(), Type: m.GetObject().GetType()}}
	i.Record = r
	if err := i.Key.Object.Validate(); err != nil {
		return err
	}
	return r.Validate(nowMS())
}
