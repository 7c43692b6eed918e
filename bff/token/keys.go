package token

import (
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// recheck is how often the file is looked at: a key that is put there or taken away is
// good or bad that much later, at the latest.
const recheck = 10 * time.Second

var errNoKey = errors.New("no key of that name")

// keys are the public keys of a file, which is read again when it has changed.
type keys struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	size    int64 // of what was read last
	changed time.Time
	byName  map[string]crypto.PublicKey
}

func openKeys(path string, log *slog.Logger) (*keys, error) {
	k := &keys{path: path, log: log}
	if err := k.refresh(); err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	k.checked = time.Now()
	return k, nil
}

// find returns a key by its name. The only key of a file needs none.
func (k *keys) find(name string) (crypto.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.checked) >= recheck {
		k.checked = now
		if err := k.refresh(); err != nil { // half a file, perhaps; the keys that are known stay good
			k.log.Error("token keys not read", "err", err)
		}
	}
	if name == "" && len(k.byName) == 1 {
		for _, key := range k.byName {
			return key, nil
		}
	}
	if key, ok := k.byName[name]; ok {
		return key, nil
	}
	return nil, errNoKey
}

// refresh reads the file if it is another one than last time.
func (k *keys) refresh() error {
	info, err := os.Stat(k.path)
	if err != nil {
		return err
	}
	if info.Size() == k.size && info.ModTime().Equal(k.changed) {
		return nil
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return err
	}
	byName, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	k.byName, k.size, k.changed = byName, info.Size(), info.ModTime()
	k.log.Info("token keys read", "keys", len(byName))
	return nil
}
