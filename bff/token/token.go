// Package token mints and verifies players' bearer tokens: JSON web tokens with the uid as subject. They are
// signed with a shared secret or a key of a key set.
package token

import (
	"cmp"
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
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trust"
)

// MinSecret is the minimum length of a secret, in bytes: the size of the hash (RFC 7518, section 3.2).
const MinSecret = 32

// Leeway is the tolerated clock error of token issuers, before and after a token's validity.
const Leeway = 30 * time.Second

// ErrInvalid is returned for an invalid token.
var ErrInvalid = errors.New("token not valid")

// Config selects the accepted tokens. One of Secret and KeysFile is required; with both, either suffices.
type Config struct {
	// Secret verifies HS256.
	Secret []byte
	// KeysFile is a JSON web key set of public keys for RS256, ES256 and EdDSA. It is reloaded within ten
	// seconds of a change.
	KeysFile string
	// Audience is the required audience; empty accepts any.
	Audience string
	Logger   *slog.Logger
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	secret []byte
	keys   *keys
	parser *jwt.Parser
}

// NewVerifier returns a verifier for tokens signed with secret. An empty audience accepts any.
func NewVerifier(secret []byte, audience string) (*Verifier, error) {
	return Open(Config{Secret: secret, Audience: audience})
}

// Open returns a verifier and reads the key file, if any.
func Open(cfg Config) (v *Verifier, err error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	v = &Verifier{secret: cfg.Secret}
	var methods []string // not chosen by the token's header
	if len(cfg.Secret) > 0 || cfg.KeysFile == "" {
		if err := checkSecret(cfg.Secret); err != nil {
			return nil, err
		}
		methods = append(methods, jwt.SigningMethodHS256.Alg())
	}
	if cfg.KeysFile != "" {
		if v.keys, err = openKeys(cfg.KeysFile, cfg.Logger); err != nil {
			return nil, err
		}
		methods = append(methods, jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(), jwt.SigningMethodEdDSA.Alg())
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithLeeway(Leeway)}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	v.parser = jwt.NewParser(options...)
	return v, nil
}

// Verify returns a token's uid and the end of its validity, [Leeway] included. It fails with [ErrInvalid] for a
// bad signature, an expired token or an invalid uid.
func (v *Verifier) Verify(text string) (uid string, until time.Time, err error) {
	var claims jwt.RegisteredClaims
	if _, err := v.parser.ParseWithClaims(text, &claims, v.key); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := history.ValidateUID(claims.Subject); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: subject: %s", ErrInvalid, err.Error())
	}
	return claims.Subject, claims.ExpiresAt.Add(Leeway), nil
}

// Bearer returns the token of an Authorization header. It fails with [ErrInvalid].
func Bearer(authorization string) (text string, err error) {
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: want Authorization: Bearer", ErrInvalid)
	}
	return strings.TrimSpace(text), nil
}

// key returns the key for a token. It never uses a public key for HS256, which would make it a shared secret.
// It refuses critical extensions (RFC 7515, section 4.1.11).
func (v *Verifier) key(t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, errors.New("crit: no extension is known")
	}
	if t.Method == jwt.SigningMethodHS256 {
		return v.secret, nil
	}
	name, _ := t.Header["kid"].(string)
	return v.keys.find(name)
}

// Claims are the content of a token that [Claims.Sign] makes.
type Claims struct {
	UID string
	// Audience and Scope are omitted if empty. Scopes are separated by spaces (RFC 8693, section 4.2).
	Audience, Scope string
	// TTL is the time until the token expires.
	TTL time.Duration
}

// Sign returns a token signed with secret.
func (c Claims) Sign(secret []byte) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if err := history.ValidateUID(c.UID); err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	now := time.Now()
	signed := claims{Scope: c.Scope, RegisteredClaims: jwt.RegisteredClaims{Subject: c.UID, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(c.TTL))}}
	if c.Audience != "" {
		signed.Audience = jwt.ClaimStrings{c.Audience}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, signed).SignedString(secret)
}

// claims is the payload of a token.
type claims struct {
	jwt.RegisteredClaims

	Scope string `json:"scope,omitempty"`
}

// Mint returns a token for uid that expires after ttl. An empty audience sets none.
func Mint(secret []byte, uid, audience string, ttl time.Duration) (string, error) {
	return Claims{UID: uid, Audience: audience, TTL: ttl}.Sign(secret)
}

// ReadSecret reads a secret from a file. It fails for an unreadable file or fewer than [MinSecret] bytes.
func ReadSecret(path string) ([]byte, error) {
	secret, err := trust.Secret(path)
	if err != nil {
		return nil, fmt.Errorf("token %w", err)
	}
	return secret, checkSecret(secret)
}

func checkSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("token secret: %d bytes; want at least %d", len(secret), MinSecret)
	}
	return nil
}

// recheck is the poll interval of the key file, and so the maximum delay of a key rotation.
const recheck = 10 * time.Second

var errNoKey = errors.New("no key of that name")

type keys struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	size    int64 // as last read, like changed
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

// find returns a key by name. A single key needs no name.
func (k *keys) find(name string) (crypto.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.checked) >= recheck {
		k.checked = now
		if err := k.refresh(); err != nil { // perhaps half written; the previous keys stay
			k.log.Error("token keys not read", "error", err)
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

// refresh reloads the file if its size or time changed.
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

// parseKeys returns a set's public keys by name. It skips unknown kinds, which sets may contain. A set without
// a usable key is an error, and so is a private key.
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
