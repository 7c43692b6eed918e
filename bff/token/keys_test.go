package token_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/playhead/playhead/bff/token"
)

// issuer signs tokens and has an entry in a key set.
type issuer struct {
	name   string
	method jwt.SigningMethod
	key    any
	entry  map[string]string
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func newIssuer(t *testing.T, method jwt.SigningMethod, name string) issuer {
	t.Helper()
	i := issuer{name: name, method: method}
	var err error
	switch method {
	case jwt.SigningMethodRS256:
		var key *rsa.PrivateKey
		key, err = rsa.GenerateKey(rand.Reader, 2048)
		i.key, i.entry = key, map[string]string{"kty": "RSA", "n": base64url(key.N.Bytes()), "e": base64url(big.NewInt(int64(key.E)).Bytes())}
	case jwt.SigningMethodES256:
		var key *ecdsa.PrivateKey
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		point, bad := key.PublicKey.Bytes()
		err = errors.Join(err, bad)
		i.key, i.entry = key, map[string]string{"kty": "EC", "crv": "P-256", "x": base64url(point[1:33]), "y": base64url(point[33:])}
	default:
		var public ed25519.PublicKey
		var key ed25519.PrivateKey
		public, key, err = ed25519.GenerateKey(rand.Reader)
		i.key, i.entry = key, map[string]string{"kty": "OKP", "crv": "Ed25519", "x": base64url(public)}
	}
	if err != nil {
		t.Fatal(err)
	}
	i.entry["kid"] = name
	return i
}

func (i issuer) sign(t *testing.T) string {
	t.Helper()
	made := jwt.NewWithClaims(i.method, jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix()})
	made.Header["kid"] = i.name
	text, err := made.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// publish writes the issuers' keys to path and returns it.
func publish(t *testing.T, path string, at time.Time, issuers ...issuer) string {
	t.Helper()
	set := map[string][]map[string]string{"keys": {}}
	for _, i := range issuers {
		set["keys"] = append(set["keys"], i.entry)
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text, at)
	return path
}

func write(t *testing.T, path string, text []byte, at time.Time) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

func wantUID(t *testing.T, v *token.Verifier, text, want string) {
	t.Helper()
	uid, _, err := v.Verify(text)
	if uid != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, token.ErrInvalid) {
		t.Errorf("got %q, %v; want %q", uid, err, want)
	}
}

func TestKeys(t *testing.T) {
	one := newIssuer(t, jwt.SigningMethodRS256, "one")
	two, three := newIssuer(t, jwt.SigningMethodES256, "two"), newIssuer(t, jwt.SigningMethodEdDSA, "three")
	path := publish(t, filepath.Join(t.TempDir(), "keys"), time.Now(), one, two, three)
	v, err := token.Open(token.Config{KeysFile: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []issuer{one, two, three} {
		wantUID(t, v, i.sign(t), "u1")
	}
	wantUID(t, v, signed(t, jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix()}), "") // there is no secret
	wantUID(t, v, newIssuer(t, jwt.SigningMethodEdDSA, "three").sign(t), "")
	wantUID(t, v, newIssuer(t, jwt.SigningMethodEdDSA, "four").sign(t), "")
	wantUID(t, v, newIssuer(t, jwt.SigningMethodEdDSA, "").sign(t), "")
	wantUID(t, v, newIssuer(t, jwt.SigningMethodEdDSA, "one").sign(t), "") // another kind of key
}

// TestAPublicKeyIsNoSecret checks that a public key cannot sign as a shared secret.
func TestAPublicKeyIsNoSecret(t *testing.T) {
	i := newIssuer(t, jwt.SigningMethodEdDSA, "one")
	path := publish(t, filepath.Join(t.TempDir(), "keys"), time.Now(), i)
	secrets := filepath.Join(t.TempDir(), "secrets")
	write(t, secrets, []byte(secret), time.Now())
	for _, cfg := range []token.Config{{KeysFile: path}, {KeysFile: path, Secret: []byte(secret)}, {KeysFile: path, SecretFile: secrets}} {
		v, err := token.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		public := []byte(i.key.(ed25519.PrivateKey).Public().(ed25519.PublicKey))
		for _, key := range [][]byte{public, {}} {
			forged := issuer{name: "one", method: jwt.SigningMethodHS256, key: key}
			wantUID(t, v, forged.sign(t), "")
		}
		if wantUID(t, v, i.sign(t), "u1"); len(cfg.Secret) > 0 || cfg.SecretFile != "" {
			wantUID(t, v, signed(t, jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix()}), "u1")
		}
	}
}

func TestTheOnlyKeyNeedsNoName(t *testing.T) {
	i := newIssuer(t, jwt.SigningMethodES256, "")
	v, err := token.Open(token.Config{KeysFile: publish(t, filepath.Join(t.TempDir(), "keys"), time.Now(), i)})
	if err != nil {
		t.Fatal(err)
	}
	wantUID(t, v, i.sign(t), "u1")
}

// TestRotation checks that keys change without a restart, and that a broken file keeps the old ones.
func TestRotation(t *testing.T) {
	before, after := newIssuer(t, jwt.SigningMethodES256, "before"), newIssuer(t, jwt.SigningMethodES256, "after")
	path := publish(t, filepath.Join(t.TempDir(), "keys"), time.Unix(1, 0), before)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v, err := token.Open(token.Config{KeysFile: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		wantUID(t, v, before.sign(t), "u1")
		publish(t, path, time.Unix(2, 0), before, after)
		wantUID(t, v, after.sign(t), "")
		time.Sleep(10 * time.Second) // bubble time
		wantUID(t, v, after.sign(t), "u1")
		wantUID(t, v, before.sign(t), "u1")
		write(t, path, []byte(`{"keys":[`), time.Unix(3, 0))
		time.Sleep(10 * time.Second) // bubble time
		wantUID(t, v, after.sign(t), "u1")
		time.Sleep(10 * time.Second) // it is still broken, and has not changed
		wantUID(t, v, "unknown", "")
		wantUID(t, v, after.sign(t), "u1")
		if got := strings.Count(log.String(), "token keys not read"); got != 1 || v.Check(t.Context()) == nil {
			t.Errorf("check says %v, log %q", v.Check(t.Context()), log.String())
		}
		publish(t, path, time.Unix(4, 0), after)
		time.Sleep(10 * time.Second) // bubble time
		wantUID(t, v, before.sign(t), "")
		wantUID(t, v, after.sign(t), "u1")
		if err := v.Check(t.Context()); err != nil {
			t.Errorf("mended: check says %v", err)
		}
	})
}

// TestSecretRotation checks that secrets change without a restart, that each line verifies, and that a bad file keeps the
// earlier ones.
func TestSecretRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets")
	synctest.Test(t, func(t *testing.T) {
		write(t, path, []byte(secret+"\n"), time.Unix(1, 0))
		v, err := token.Open(token.Config{SecretFile: path})
		if err != nil {
			t.Fatal(err)
		}
		claims := jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix()}
		before, after := signed(t, claims), sign(t, jwt.SigningMethodHS256, []byte(other), claims)
		for i, step := range []struct {
			text          string
			before, after string // the user
			bad           bool
		}{
			{secret + "\n", "u1", "", false},
			{other + "\n" + secret + "\n", "u1", "u1", false},
			{other + "\n" + secret[1:], "u1", "u1", true},
			{other + "\n", "", "u1", false},
		} {
			write(t, path, []byte(step.text), time.Unix(int64(2+i), 0))
			time.Sleep(10 * time.Second) // bubble time
			wantUID(t, v, before, step.before)
			wantUID(t, v, after, step.after)
			if err := v.Check(t.Context()); (err != nil) != step.bad {
				t.Errorf("%q: check says %v", step.text, err)
			}
			if got, err := token.ReadSecret(path); err == nil && string(got) != step.text[:len(secret)] {
				t.Errorf("%q: signs with %q", step.text, got)
			}
		}
	})
}

func TestKeySetsThatAreRefused(t *testing.T) {
	good := newIssuer(t, jwt.SigningMethodES256, "one").entry
	with := func(field, value string) map[string]string {
		k := maps.Clone(good)
		k[field] = value
		return k
	}
	weak := base64url(bytes.Repeat([]byte{0xff}, 128)) // 1,024 bits
	for name, tt := range map[string]struct {
		keys []map[string]string
		want string
	}{
		"none":            {nil, "no key"},
		"another kind":    {[]map[string]string{{"kty": "oct", "k": "c2VjcmV0"}}, "no key"},
		"another curve":   {[]map[string]string{with("crv", "P-384")}, "no key"},
		"for encryption":  {[]map[string]string{with("use", "enc")}, "no key"},
		"a private one":   {[]map[string]string{with("d", "AAAA")}, "keys[0] is private"},
		"a name twice":    {[]map[string]string{good, good}, `there is another "one"`},
		"off the curve":   {[]map[string]string{with("x", good["y"])}, "keys[0]"},
		"too short":       {[]map[string]string{with("x", "AAAA")}, "want 32 bytes"},
		"no base64":       {[]map[string]string{with("x", "a b")}, "base64"},
		"a weak one":      {[]map[string]string{{"kty": "RSA", "n": weak, "e": "AQAB"}}, "want 2048 bits"},
		"an odd exponent": {[]map[string]string{{"kty": "RSA", "n": base64url(bytes.Repeat([]byte{0xff}, 256)), "e": "AQ"}}, "usual"},
		"a short Ed25519": {[]map[string]string{{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}}, "want 32 bytes"},
	} {
		text, err := json.Marshal(map[string]any{"keys": tt.keys})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "keys")
		write(t, path, text, time.Now())
		if _, err := token.Open(token.Config{KeysFile: path}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
