package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"slices"
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

// jwk is a key of a set (RFC 7517).
type jwk struct {
	Kty string  `json:"kty"`
	Kid string  `json:"kid"`
	Use string  `json:"use"`
	Crv string  `json:"crv"`
	X   encoded `json:"x"`
	Y   encoded `json:"y"`
	N   encoded `json:"n"`
	E   encoded `json:"e"`
	D   encoded `json:"d"`
}

// encoded is what stands there in base64url.
type encoded []byte

// UnmarshalText decodes it.
func (e *encoded) UnmarshalText(text []byte) (err error) {
	*e, err = base64.RawURLEncoding.DecodeString(string(text))
	return err
}

// parseKeys returns the public keys of a set by their names. Kinds of keys that it does
// not know are left out, as sets may have them; none at all is an error, and so is a
// private key, which has no business here.
func parseKeys(text []byte) (map[string]crypto.PublicKey, error) {
	var set struct{ Keys []jwk }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	byName := make(map[string]crypto.PublicKey)
	for i, k := range set.Keys {
		if len(k.D) > 0 {
			return nil, fmt.Errorf("keys[%d] is private", i)
		}
		key, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if _, twice := byName[k.Kid]; twice {
			return nil, fmt.Errorf("keys[%d]: there is another %q", i, k.Kid)
		}
		if key != nil && k.Use != "enc" {
			byName[k.Kid] = key
		}
	}
	if len(byName) == 0 {
		return nil, errors.New("no key of RSA, P-256 or Ed25519 to verify with")
	}
	return byName, nil
}

// public returns nil for a kind that it does not know.
func (k *jwk) public() (crypto.PublicKey, error) {
	switch k.Kty + " " + k.Crv {
	case "RSA ":
		return k.rsa()
	case "EC P-256":
		if len(k.X) != 32 || len(k.Y) != 32 {
			return nil, errors.New("x and y: want 32 bytes each")
		}
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, k.X, k.Y))
	case "OKP Ed25519":
		if len(k.X) != ed25519.PublicKeySize {
			return nil, errors.New("x: want 32 bytes")
		}
		return ed25519.PublicKey(k.X), nil
	}
	return nil, nil
}

func (k *jwk) rsa() (crypto.PublicKey, error) {
	n, e := new(big.Int).SetBytes(k.N), new(big.Int).SetBytes(k.E)
	if n.BitLen() < 2048 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
		return nil, errors.New("n and e: want 2048 bits or more, and an exponent that is usual")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}
