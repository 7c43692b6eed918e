package allinone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// deadFile holds, in the data directory, what could not be archived: a line of JSON
// each, to be read by a person. The embedded archive refuses next to nothing, so that
// there is no need for more.
const deadFile = "dead-letters.ndjson"

// deadLetterFile appends dead letters to a file. It implements [history.DeadLetters].
type deadLetterFile struct {
	path string
	mu   sync.Mutex
}

type deadLine struct {
	Time   time.Time `json:"time"`
	Key    string    `json:"key,omitempty"`
	Origin string    `json:"origin"`
	Reason string    `json:"reason"`
	Letter []byte    `json:"letter"` // all of it, as the queue would hold it
}

// Add returns when the letters are on disk.
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
