package allinone

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// livesFile has, in the data directory, a name for each start. A copy of the directory that is put back does not know those
// that came after it, and so not what apps were told then: see [rpc.Config].
const livesFile = "lives"

// maxLives bounds how many starts a directory knows.
const maxLives = 1000

// beginLife adds another life to those that the directory knows, and returns them.
func beginLife(dir string) ([]string, error) {
	path := filepath.Join(dir, livesFile)
	text, err := os.ReadFile(path) //nolint:gosec // the operator's directory
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lives of the data: %w", err)
	}
	lives := append(strings.Fields(string(text)), rand.Text())
	lives = lives[max(0, len(lives)-maxLives):]
	err = errors.Join(os.WriteFile(path+".new", []byte(strings.Join(lives, "\n")+"\n"), 0o600), os.Rename(path+".new", path))
	if err != nil {
		return nil, fmt.Errorf("lives of the data: %w", err)
	}
	return lives, nil
}
