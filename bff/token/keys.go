package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/internal/trust"
)

// recheck is the shortest time between two reads of a key set, and so the maximum delay of a key rotation.
const recheck = 10 * time.Second

// recheckEmpty is the same without any keys, such as while an issuer starts.
const recheckEmpty = time.Second

var errNoKey = errors.New("no key of that name")

// keys is a key set that is read again: a file when it changes, an issuer's set for an unknown name or after
// renew. After a failed read the previous keys stay.
type keys struct {
	from  string                          // file or issuer
	load  func() (text []byte, err error) // nil without an error: unchanged
	parse func(text []byte) (map[string]any, error)
	renew time.Duration
	log   *slog.Logger

	loading sync.Mutex // held by refresh

	mu      sync.Mutex
	checked time.Time // begin of the last read
	err     error     // of the last read
	byName  map[string]any
}

// openKeys returns the keys of a flag's file, which must be readable; nil without a file.
func openKeys(flag, path string, parse func(text []byte) (map[string]any, error), log *slog.Logger) (*keys, error) {
	if path == "" {
		return nil, nil
	}
	k := &keys{from: path, load: (&keyFile{path: path}).load, parse: parse, renew: recheck, log: log}
	if k.refresh(); k.err != nil {
		return nil, fmt.Errorf("%s: %w", flag, k.err)
	}
	return k, nil
}

// openIssuer returns the key set of an OpenID Connect issuer, which may be unreachable at first.
func openIssuer(issuer string, log *slog.Logger) (*keys, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !trust.Hosts(nil).Allow(u.Host)) {
		return nil, fmt.Errorf("--oidc-issuer %q: want a URL such as https://idp.example.com; http only for localhost, addresses and names without a dot", issuer)
	}
	k := &keys{from: issuer, load: (&keyServer{issuer: issuer, client: &http.Client{Timeout: keysPatience}}).load, parse: parseKeys, renew: time.Hour, log: log}
	k.refresh()
	return k, nil
}

// find returns a key by name. A single key needs no name. It fails with [ErrNoKeys] if no set was read yet. One
// caller waits for a read; the others go on with the previous keys.
func (k *keys) find(name string) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.lookup(name)
	wait := recheck
	if k.byName == nil {
		wait = recheckEmpty
	}
	if age := time.Since(k.checked); age >= k.renew || !ok && age >= wait {
		k.checked = time.Now()
		k.mu.Unlock()
		k.refresh()
		k.mu.Lock()
		key, ok = k.lookup(name)
	}
	switch {
	case ok:
		return key, nil
	case k.byName == nil:
		return nil, ErrNoKeys
	}
	return nil, errNoKey
}

func (k *keys) lookup(name string) (any, bool) {
	if name == "" && len(k.byName) == 1 {
		for _, key := range k.byName {
			return key, true
		}
	}
	key, ok := k.byName[name]
	return key, ok
}

func (k *keys) refresh() {
	k.loading.Lock()
	defer k.loading.Unlock()
	var byName map[string]any
	text, err := k.load()
	if text != nil && err == nil {
		if byName, err = k.parse(text); err != nil {
			err = fmt.Errorf("%s: %w", k.from, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checked = time.Now()
	if text == nil && err == nil { // unchanged, and perhaps still bad
		return
	}
	failed := k.err != nil
	k.err = err
	switch {
	case err == nil:
		if failed || !maps.EqualFunc(byName, k.byName, sameKey) {
			k.log.Info("token keys read", "from", k.from)
		}
		k.byName = byName
	case !failed:
		k.log.Error("token keys not read; will retry for each token with an unknown key", "error", err)
	}
}

// sameKey compares public keys, whose types all have the method Equal. Secrets have none.
func sameKey(a, b any) bool {
	k, ok := a.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && k.Equal(b)
}

// check fails while the last read of the keys failed.
func (k *keys) check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.err == nil:
		return nil
	case k.byName == nil:
		return fmt.Errorf("tokens are refused: %w", k.err)
	}
	return fmt.Errorf("tokens of new keys are refused: %w", k.err)
}

// keyFile is a key set in a file.
type keyFile struct {
	path    string
	size    int64 // as last read, like changed
	changed time.Time
}

// load returns the file's text, nil if size and time are unchanged.
func (f *keyFile) load() ([]byte, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.changed = time.Time{} // the next one is read
		return nil, err
	}
	if info.Size() == f.size && info.ModTime().Equal(f.changed) {
		return nil, nil
	}
	text, err := os.ReadFile(f.path)
	if err == nil {
		f.size, f.changed = info.Size(), info.ModTime()
	}
	return text, err
}

const (
	// keysPatience is the timeout of a request to an issuer.
	keysPatience = 5 * time.Second
	// maxKeys limits a key set, in bytes.
	maxKeys = 1 << 20
)

// keyServer is the key set of an issuer.
type keyServer struct {
	issuer string
	client *http.Client
}

// load discovers the issuer's key set and returns its text.
func (s *keyServer) load() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keysPatience)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), s.issuer)
	if err != nil {
		return nil, fmt.Errorf("discover issuer %s: %w", s.issuer, err)
	}
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&found); err != nil {
		return nil, fmt.Errorf("discover issuer %s: %w", s.issuer, err)
	}
	text, err := s.get(ctx, found.Keys)
	if err != nil {
		return nil, fmt.Errorf("keys of issuer %s: %w", s.issuer, err)
	}
	return text, nil
}

func (s *keyServer) get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeys))
}

// jwk is a key of a key set (RFC 7517).
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

type encoded []byte

// UnmarshalText decodes base64url.
func (e *encoded) UnmarshalText(text []byte) (err error) {
	*e, err = base64.RawURLEncoding.DecodeString(string(text))
	return err
}

// parseSecrets returns a file's secrets as one key without a name: any of them verifies a token.
func parseSecrets(text []byte) (map[string]any, error) {
	all, err := trust.ParseSecrets(text, MinSecret)
	if err != nil {
		return nil, err
	}
	var set jwt.VerificationKeySet
	for _, secret := range all {
		set.Keys = append(set.Keys, secret)
	}
	return map[string]any{"": set}, nil
}

// parseKeys returns a set's public keys by name. It skips unknown kinds, which sets may contain. A set without
// a usable key is an error, and so is a private key.
func parseKeys(text []byte) (map[string]any, error) {
	var set struct{ Keys []jwk }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	byName := make(map[string]any)
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

// public returns nil for an unknown kind.
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
