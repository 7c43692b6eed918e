package allinone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/durable"
)

// deadFile, in the data directory, holds dead letters: one line of JSON each, for a person to read. The
// embedded archive rejects next to nothing, so nothing more is needed.
const deadFile = "dead-letters.ndjson"

// deadLetterFile appends dead letters to a file. It implements [archive.DeadLetters] and [admin.Eraser].
type deadLetterFile struct {
	path string
	mu   sync.Mutex
}

type deadLine struct {
	Time   time.Time `json:"time"`
	Key    string    `json:"key,omitempty"`
	Origin string    `json:"origin"`
	Reason string    `json:"reason"`
	Letter []byte    `json:"letter"` // the whole letter, in the queue's format
}

// Add returns once the letters are on disk.
func (g *deadLetterFile) Add(_ context.Context, letters []history.Dead) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f, err := os.OpenFile(g.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("add dead letters: %w: %w", history.ErrUnavailable, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := json.NewEncoder(f)
	for _, d := range letters {
		line := deadLine{Time: time.UnixMilli(d.At).UTC(), Origin: d.Origin, Reason: d.Reason, Letter: wire.AppendDead(nil, d)}
		if d.Key.UID != "" {
			line.Key = d.Key.String()
		}
		if err := lines.Encode(line); err != nil {
			return fmt.Errorf("add dead letters: %w: %w", history.ErrUnavailable, err)
		}
	}
	return f.Sync()
}

// Held counts a user's stored items by place.
func (g *deadLetterFile) Held(_ context.Context, uid string, until int64) (map[string]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, gone, err := g.without(uid, until)
	return map[string]int{"dead letters": gone}, err
}

// Erase removes a user's data up to a time. It rewrites the file without the user's letters.
func (g *deadLetterFile) Erase(_ context.Context, uid string, until int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	left, gone, err := g.without(uid, until)
	if err != nil || gone == 0 {
		return err
	}
	return replaceFile(g.path, left)
}

// without returns the lines of other users, and the number of the user's lines.
func (g *deadLetterFile) without(uid string, until int64) (left []byte, gone int, err error) {
	all, err := os.ReadFile(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read dead letters: %w: %w", history.ErrUnavailable, err)
	}
	for text := range bytes.Lines(all) {
		var line deadLine
		if err := json.Unmarshal(text, &line); err == nil && line.of(uid) && (until == 0 || line.Time.UnixMilli() <= until) {
			gone++
		} else {
			left = append(left, text...)
		}
	}
	return left, gone, nil
}

// of reports whether a letter belongs to a user, in any namespace.
func (l *deadLine) of(uid string) bool {
	k, err := history.ParseKey(l.Key)
	user, _ := history.UserOf(k.UID)
	return err == nil && user == uid
}

func replaceFile(path string, content []byte) error {
	if err := durable.WriteFile(path, content); err != nil {
		return fmt.Errorf("write dead letters: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

// Remains says where erased bytes stay.
func (g *deadLetterFile) Remains(context.Context) []string { return nil }

// ReadDead passes all letters of a data directory to use. A line that is no letter is one without a record.
func ReadDead(dir string, use func(history.Dead) error) error {
	all, err := os.ReadFile(filepath.Join(dir, deadFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read dead letters: %w", err)
	}
	for text := range bytes.Lines(all) {
		var line deadLine
		err := json.Unmarshal(text, &line)
		var d history.Dead
		if err == nil {
			d, err = wire.Dead(line.Letter)
		}
		if err != nil {
			d = history.Dead{Payload: text, Origin: deadFile, Reason: err.Error()}
		}
		if err := use(d); err != nil {
			return err
		}
	}
	return nil
}
