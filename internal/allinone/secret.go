package allinone

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/playhead/playhead/bff/token"
)

// secretFile holds, in the data directory, the secret that the process made.
const secretFile = "token-secret"

// secret returns the secret that was given, or the process's own, which is made at
// the first start and readable by its user alone.
func secret(cfg Config) ([]byte, error) {
	if len(cfg.Secret) > 0 {
		return cfg.Secret, nil
	}
	path := filepath.Join(cfg.Dir, secretFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeSecret(path)
	case err != nil:
		return nil, fmt.Errorf("token secret: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

// makeSecret writes the file under another name first: a crash leaves a whole
// secret or none.
func makeSecret(path string) ([]byte, error) {
	raw := make([]byte, token.MinSecret)
	_, _ = rand.Read(raw) // never fails
	text := []byte(hex.EncodeToString(raw))
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("token secret: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("token secret: %w", err)
	}
	return text, nil
}
