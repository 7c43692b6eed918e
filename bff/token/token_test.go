package token_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/bff/token"
)

const (
	secret = "0123456789abcdef0123456789abcdef"
	other  = "fedcba9876543210fedcba9876543210"
)

func verifier(t *testing.T, audience string) *token.Verifier {
	t.Helper()
	v, err := token.NewVerifier([]byte(secret), audience)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestVerifyRefuses(t *testing.T) {
	soon, past := time.Now().Add(time.Hour).Unix(), time.Now().Add(-token.Leeway-time.Second).Unix()
	good := jwt.MapClaims{"sub": "u1", "exp": soon, "aud": "players"}
	tests := []struct {
		name string
		text string
	}{
		{"nothing", ""},
		{"no token", "u1"},
		{"unsigned", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good)},
		{"another secret", sign(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), good)},
		{"another method", sign(t, jwt.SigningMethodHS512, []byte(secret), good)},
		{"changed", change(sign(t, jwt.SigningMethodHS256, []byte(secret), good))},
		{"expired", signed(t, jwt.MapClaims{"sub": "u1", "exp": past, "aud": "players"})},
		{"no expiry", signed(t, jwt.MapClaims{"sub": "u1", "aud": "players"})},
		{"not yet", signed(t, jwt.MapClaims{"sub": "u1", "exp": soon, "nbf": soon, "aud": "players"})},
		{"no audience", signed(t, jwt.MapClaims{"sub": "u1", "exp": soon})},
		{"another audience", signed(t, jwt.MapClaims{"sub": "u1", "exp": soon, "aud": "billing"})},
		{"no subject", signed(t, jwt.MapClaims{"exp": soon, "aud": "players"})},
		{"illegal subject", signed(t, jwt.MapClaims{"sub": "u\x01a", "exp": soon, "aud": "players"})},
		{"long subject", signed(t, jwt.MapClaims{"sub": strings.Repeat("u", 257), "exp": soon, "aud": "players"})},
		{"mended subject", signed(t, jwt.MapClaims{"sub": "u\uFFFD", "exp": soon, "aud": "players"})},
		{"numeric subject", signed(t, jwt.MapClaims{"sub": 7, "exp": soon, "aud": "players"})},
	}
	v := verifier(t, "players")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if uid, _, err := v.Verify(tt.text); !errors.Is(err, token.ErrInvalid) || uid != "" {
				t.Errorf("Verify(%q): got %q, %v, want %v", tt.text, uid, err, token.ErrInvalid)
			}
		})
	}
	for _, uid := range []string{"u1", "auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2|103547991597142817347", "https://idp.example/é?id=1", "a b"} {
		if got, _, err := v.Verify(signed(t, jwt.MapClaims{"sub": uid, "exp": soon, "aud": "players"})); err != nil || got != uid {
			t.Errorf("subject %q: got %q, %v", uid, got, err)
		}
	}
	_, _, err := v.Verify(signed(t, jwt.MapClaims{"sub": "\x01", "exp": soon, "aud": "players"}))
	if want := "subject: uid: want 1 to 256 bytes of UTF-8 without control characters and U+FFFD"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want one that says what is allowed: %s", err, want)
	}
}

func signed(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, []byte(secret), claims)
}

// change replaces the claims and keeps the signature.
func change(text string) string {
	part := strings.Split(text, ".")
	part[1] = "eyJzdWIiOiJ1MiIsImV4cCI6OTk5OTk5OTk5OX0" // {"sub":"u2","exp":9999999999}
	return strings.Join(part, ".")
}

func TestMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := verifier(t, "")
		text, err := token.Mint([]byte(secret), "auth0|5f7c", "", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if uid, until, err := v.Verify(text); err != nil || uid != "auth0|5f7c" || time.Until(until) != time.Minute+token.Leeway {
			t.Errorf("got %q until %v, %v, want the uid it was made for, for a minute and the leeway", uid, until, err)
		}
		time.Sleep(time.Minute + token.Leeway)
		if _, _, err := v.Verify(text); !errors.Is(err, jwt.ErrTokenExpired) {
			t.Errorf("after its time: %v, want %v", err, jwt.ErrTokenExpired)
		}
	})
}

func TestLeeway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, now := verifier(t, ""), time.Now()
		at := func(d time.Duration) int64 { return now.Add(d).Unix() }
		for _, tt := range []struct {
			name     string
			nbf, exp time.Duration
			want     bool
		}{
			{"as it says", -time.Minute, time.Minute, true},
			{"a fast clock", token.Leeway - time.Second, time.Hour, true},
			{"a clock that is too fast", token.Leeway + time.Second, time.Hour, false},
			{"a slow clock", -time.Hour, -token.Leeway + time.Second, true},
			{"a clock that is too slow", -time.Hour, -token.Leeway - time.Second, false},
		} {
			_, _, err := v.Verify(signed(t, jwt.MapClaims{"sub": "u1", "nbf": at(tt.nbf), "exp": at(tt.exp)}))
			if (err == nil) != tt.want {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

// TestMintForAnAudience checks that a token for an audience is valid for it, or for a verifier without one.
func TestMintForAnAudience(t *testing.T) {
	text, err := token.Mint([]byte(secret), "u1", "players", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for audience, want := range map[string]bool{"": true, "players": true, "others": false} {
		if _, _, err := verifier(t, audience).Verify(text); (err == nil) != want {
			t.Errorf("where %q is asked for: %v", audience, err)
		}
	}
}

func TestCritical(t *testing.T) {
	for header, want := range map[string]bool{"crit": false, "hint": true} {
		tok := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix()})
		tok.Header[header] = []string{"b64"}
		text, err := tok.SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := verifier(t, "").Verify(text); (err == nil) != want {
			t.Errorf("with %q in its header: %v", header, err)
		}
	}
}

func TestReadSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if _, err := token.ReadSecret(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string]bool{
		secret: true, secret + "\n": true, secret + "\r\n": true, secret + "\r\n" + other + "\n": true,
		secret[1:] + "\n": false, "": false, secret + "\n" + other[1:]: false, secret + "\n\n" + other: false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := token.ReadSecret(path)
		if (err == nil) != want || want && string(got) != secret {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestMintRefuses(t *testing.T) {
	for _, tt := range []struct{ name, secret, uid string }{
		{"short secret", secret[1:], "u1"},
		{"no secret", "", "u1"},
		{"no uid", secret, ""},
		{"illegal uid", secret, "u\n1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if text, err := token.Mint([]byte(tt.secret), tt.uid, "", time.Hour); err == nil {
				t.Errorf("got %q, want an error", text)
			}
		})
	}
	if _, err := token.NewVerifier([]byte(secret[1:]), ""); err == nil || strings.Contains(err.Error(), secret[1:]) {
		t.Errorf("a verifier with a short secret: %v, want an error without it", err)
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{"Bearer a.b.c": "a.b.c", "bearer  a": "a", "Bearer": ""} {
		if got, err := token.Bearer(header); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", header, got, err, want)
		}
	}
	for _, header := range []string{"", "Basic dTE6cGFzcw==", "a.b.c", "Bearera.b.c"} {
		if got, err := token.Bearer(header); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("%q: got %q, %v, want %v", header, got, err, token.ErrInvalid)
		}
	}
}
