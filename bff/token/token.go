// Package token mints and verifies players' bearer tokens: JSON web tokens with the uid as subject. They are
// signed with a shared secret or a key of a key set.
package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trust"
)

// MinSecret is the minimum length of a secret, in bytes: the size of the hash (RFC 7518, section 3.2).
const MinSecret = 32

// Leeway is the tolerated clock error of token issuers, before and after a token's validity.
const Leeway = 30 * time.Second

var (
	// ErrInvalid is returned for an invalid token.
	ErrInvalid = errors.New("token not valid")
	// ErrMissing is the [ErrInvalid] of a request without a token.
	ErrMissing = fmt.Errorf("%w: no token", ErrInvalid)
	// ErrNoKeys is returned while the keys of the token's issuer could not be read. It is a [history.ErrUnavailable].
	ErrNoKeys = fmt.Errorf("%w: the keys of the token's issuer could not be read yet; the server's log says why", history.ErrUnavailable)
)

// Config selects the accepted tokens. One of Secret, SecretFile, KeysFile and Issuer is required; with several, any
// suffices.
type Config struct {
	// Secret verifies HS256.
	Secret []byte
	// SecretFile has secrets for HS256, one a line, and replaces Secret. Like KeysFile it is reloaded within ten
	// seconds of a change.
	SecretFile string
	// KeysFile is a JSON web key set of public keys for RS256, ES256 and EdDSA.
	KeysFile string
	// Issuer is the URL of an OpenID Connect issuer, whose tokens are accepted too. Its keys are read again for an
	// unknown name, at most every ten seconds, and hourly. It needs an Audience, since issuers serve other
	// applications too.
	Issuer string
	// Audience is the required audience; empty accepts any.
	Audience string
	Logger   *slog.Logger
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	secret  []byte
	secrets *keys // of the file, nil without one
	issuer  string
	keys    *keys // of the file, nil without one
	issued  *keys // of the issuer, nil without one
	parser  *jwt.Parser
}

// NewVerifier returns a verifier for tokens signed with secret. An empty audience accepts any.
func NewVerifier(secret []byte, audience string) (*Verifier, error) {
	return Open(Config{Secret: secret, Audience: audience})
}

// Open returns a verifier and reads the files, if any.
func Open(cfg Config) (v *Verifier, err error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	v = &Verifier{secret: cfg.Secret, issuer: cfg.Issuer}
	if err := v.openKeys(cfg); err != nil {
		return nil, err
	}
	var methods []string // not chosen by the token's header
	if v.secrets != nil || len(cfg.Secret) > 0 {
		methods = append(methods, jwt.SigningMethodHS256.Alg())
	}
	if v.keys != nil || v.issued != nil {
		methods = append(methods, jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(), jwt.SigningMethodEdDSA.Alg())
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithLeeway(Leeway)}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	v.parser = jwt.NewParser(options...)
	return v, nil
}

func (v *Verifier) openKeys(cfg Config) (err error) {
	if v.secrets, err = openKeys("--token-secret-file", cfg.SecretFile, parseSecrets, cfg.Logger); err != nil {
		return err
	}
	if v.keys, err = openKeys("--token-keys-file", cfg.KeysFile, parseKeys, cfg.Logger); err != nil {
		return err
	}
	if v.secrets == nil && (len(cfg.Secret) > 0 || v.keys == nil && cfg.Issuer == "") {
		if err := checkSecret(cfg.Secret); err != nil {
			return err
		}
	}
	if cfg.Issuer == "" {
		return nil
	}
	if cfg.Audience == "" {
		return errors.New("--oidc-issuer needs --audience: tokens of the issuer's other applications would be accepted too")
	}
	v.issued, err = openIssuer(cfg.Issuer, cfg.Logger)
	return err
}

// Token is the content of a valid token.
type Token struct {
	UID    string
	Scopes []string
	// Until is the end of the validity, [Leeway] included.
	Until time.Time
}

// Read verifies a token. It fails with [ErrInvalid] for a bad signature, an expired token or an invalid uid.
// [ErrNoKeys] says nothing of the token.
func (v *Verifier) Read(text string) (Token, error) {
	var got claims
	var unverified error // without the parser's words about its callback
	_, err := v.parser.ParseWithClaims(text, &got, func(t *jwt.Token) (key any, err error) {
		key, unverified = v.key(t)
		return key, unverified
	})
	switch err = cmp.Or(unverified, err); {
	case errors.Is(err, ErrNoKeys):
		return Token{}, err
	case err != nil:
		return Token{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := history.ValidateUID(got.Subject); err != nil {
		return Token{}, fmt.Errorf("%w: subject: %s", ErrInvalid, err.Error())
	}
	return Token{UID: got.Subject, Scopes: strings.Fields(got.Scope), Until: got.ExpiresAt.Add(Leeway)}, nil
}

// Check fails while the keys of a file or the issuer cannot be read. Earlier ones stay in use.
func (v *Verifier) Check(context.Context) error {
	var errs []error
	for _, k := range []*keys{v.secrets, v.keys, v.issued} {
		if k != nil {
			errs = append(errs, k.check())
		}
	}
	return errors.Join(errs...)
}

// Verify is [Verifier.Read] without scopes.
func (v *Verifier) Verify(text string) (uid string, until time.Time, err error) {
	t, err := v.Read(text)
	return t.UID, t.Until, err
}

// Bearer returns the token of an Authorization header. It fails with [ErrInvalid].
func Bearer(authorization string) (text string, err error) {
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: want Authorization: Bearer", ErrMissing)
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
		if v.secrets != nil {
			return v.secrets.find("")
		}
		return v.secret, nil
	}
	name, _ := t.Header["kid"].(string)
	if v.issued != nil && t.Claims.(*claims).Issuer == v.issuer { //nolint:forcetypeassert // as given to the parser
		return v.issued.find(name)
	}
	if v.keys == nil {
		return nil, fmt.Errorf("issuer %.100q is unknown", t.Claims.(*claims).Issuer) //nolint:forcetypeassert // as above
	}
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

// ReadSecret returns the secret of a file that signs: its first line. It fails for an unreadable file or a secret of
// fewer than [MinSecret] bytes.
func ReadSecret(path string) ([]byte, error) {
	all, err := trust.Secrets(path, MinSecret)
	if err != nil {
		return nil, fmt.Errorf("token %w", err)
	}
	return all[0], nil
}

func checkSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("token secret: %d bytes; want at least %d", len(secret), MinSecret)
	}
	return nil
}
