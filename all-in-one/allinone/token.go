package allinone

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/playhead/playhead/bff/token"
)

// secretFile holds, in the data directory, the secret that the process made.
const secretFile = "token-secret"

// signingSecret returns the secret that was given, or the process's own, which is made at
// the first start and readable by its user alone.
func signingSecret(cfg Config) ([]byte, error) {
	if len(cfg.Secret) > 0 {
		return cfg.Secret, nil
	}
	path := filepath.Join(cfg.Dir, secretFile)
	text, err := token.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeSecret(path)
	}
	return text, err
}

// makeSecret writes the file under another name first: a crash leaves a whole
// signingSecret or none.
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

// Token returns a token for a user, for trying things.
func (p *Process) Token(uid string, life time.Duration) (string, error) {
	return token.Mint(p.secret, uid, p.cfg.Audience, life)
}

// tokenLife is how long the printed token is good for.
const tokenLife = 30 * 24 * time.Hour

// Greet prints where everything is, and a token for trying things.
func (p *Process) Greet(out io.Writer, uid string) {
	token, err := p.Token(uid, tokenLife)
	if err != nil {
		token = fmt.Sprintf("(none: %v)", err)
	}
	fmt.Fprintf(out, `Playhead is running, until Ctrl-C.

  your page  http://%s/#token=%s
  HTTP API   http://%[1]s   (http://%[1]s/docs describes it)
  gRPC       %[3]s
  metrics    http://%[4]s/metrics
  data       %[5]s

A token for user %[6]q, good for 30 days:

  export TOKEN=%[2]s

Report where somebody stopped, and read it back:

  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/heartbeats --json '{"heartbeats":[{"object":{"id":"100","type":1},
    "kind":"stop","position_ms":90000,"duration_ms":600000,"event_time":"'$(date -u +%%FT%%TZ)'"}]}'
  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/history
`, p.HTTP(), token, p.RPC(), p.listeners["admin"].Addr(), p.cfg.Dir, uid)
}
