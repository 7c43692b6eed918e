// Package token makes and verifies the bearer tokens of players: JSON web tokens
// signed with HMAC-SHA-256, whose subject is the uid.
package token

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/history"
)

// MinSecret is the least length of a secret in bytes, that of the hash: a shorter
// one is what guessing would look for (RFC 7518, section 3.2).
const MinSecret = 32

// ErrInvalid means that a token proves nothing.
var ErrInvalid = errors.New("token not valid")

// Verifier tells who a token is for. Its methods may be called from many goroutines.
type Verifier struct {
	secret []byte
	parser *jwt.Parser
}

// NewVerifier takes the secret that tokens are signed with. With an audience, only
// tokens made out to it are valid; without one ("") the audience is not looked at.
func NewVerifier(secret []byte, audience string) (*Verifier, error) {
	if err := checkSecret(secret); err != nil {
		return nil, err
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), // not what the token's header asks for
		jwt.WithExpirationRequired(),
	}
	if audience != "" {
		options = append(options, jwt.WithAudience(audience))
	}
	return &Verifier{secret: secret, parser: jwt.NewParser(options...)}, nil
}

// Verify returns the uid of a token, and until when it is valid. It fails with
// [ErrInvalid] unless the token is signed with the secret by HS256, has not expired,
// and its subject is a legal uid.
func (v *Verifier) Verify(text string) (uid string, until time.Time, err error) {
	var claims jwt.RegisteredClaims
	if _, err := v.parser.ParseWithClaims(text, &claims, v.key); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := history.ValidateUID(claims.Subject); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: subject is no uid", ErrInvalid)
	}
	return claims.Subject, claims.ExpiresAt.Time, nil
}

// Bearer returns the token of an Authorization header. It fails with [ErrInvalid].
func Bearer(authorization string) (text string, err error) {
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: want Authorization: Bearer", ErrInvalid)
	}
	return strings.TrimSpace(text), nil
}

func (v *Verifier) key(*jwt.Token) (any, error) { return v.secret, nil }

// Mint returns a token for uid that expires after ttl. It has no audience.
func Mint(secret []byte, uid string, ttl time.Duration) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if err := history.ValidateUID(uid); err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	now := time.Now()
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   uid,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}).SignedString(secret)
}

func checkSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("token secret: %d bytes; want at least %d", len(secret), MinSecret)
	}
	return nil
}
