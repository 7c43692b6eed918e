// Package token makes and verifies the bearer tokens of players: JSON web tokens whose
// subject is the uid, signed with a shared secret or with a key of a set.
package token

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trust"
)

// MinSecret is the least length of a secret in bytes, that of the hash: a shorter
// one is what guessing would look for (RFC 7518, section 3.2).
const MinSecret = 32

// Leeway is how far the clocks of those who sign tokens may be off: a token is valid so
// much earlier and later than it says.
const Leeway = 30 * time.Second

// ErrInvalid means that a token proves nothing.
var ErrInvalid = errors.New("token not valid")

// Config says which tokens are valid. One of Secret and KeysFile is needed; with both,
// either will do.
type Config struct {
	// Secret is what tokens are signed with by HS256.
	Secret []byte
	// KeysFile holds the public keys of those who sign by RS256, ES256 or EdDSA, as a JSON
	// web key set. It is read again when it has changed, within 10 s.
	KeysFile string
	// Audience is what tokens must be made out to; any by default.
	Audience string
	Logger   *slog.Logger
}

// Verifier tells who a token is for. Its methods may be called from many goroutines.
type Verifier struct {
	secret []byte
	keys   *keys
	parser *jwt.Parser
}

// NewVerifier takes the secret that tokens are signed with. With an audience, only
// tokens made out to it are valid; without one ("") the audience is not looked at.
func NewVerifier(secret []byte, audience string) (*Verifier, error) {
	return Open(Config{Secret: secret, Audience: audience})
}

// Open reads the keys, if there are any.
func Open(cfg Config) (v *Verifier, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	v = &Verifier{secret: cfg.Secret}
	var methods []string // not what the token's header asks for
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

// Verify returns the uid of a token, and until when it is taken, which is [Leeway] after
// its own end. It fails with
// [ErrInvalid] unless the token is signed with the secret or a key, has not expired, and
// its subject is a legal uid.
func (v *Verifier) Verify(text string) (uid string, until time.Time, err error) {
	var claims jwt.RegisteredClaims
	if _, err := v.parser.ParseWithClaims(text, &claims, v.key); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := history.ValidateUID(claims.Subject); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: subject is no uid", ErrInvalid)
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

// key never gives a public key to HS256, which would take it for a secret that all know.
// A token with extensions that must be understood (RFC 7515, section 4.1.11) gets none.
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

// Mint returns a token for uid that expires after ttl, made out to the audience unless that is "".
func Mint(secret []byte, uid, audience string, ttl time.Duration) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if err := history.ValidateUID(uid); err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	now := time.Now()
	claims := jwt.RegisteredClaims{Subject: uid, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl))}
	if audience != "" {
		claims.Audience = jwt.ClaimStrings{audience}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
}

// ReadSecret returns the secret of a file. It fails unless the file can be read and holds at
// least [MinSecret] bytes.
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
