package token_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/playhead/playhead/bff/token"
)

const client = "playhead-app"

// provider starts an OpenID Connect provider with new keys. An address of "" is any.
func provider(t *testing.T, addr string) *mockoidc.MockOIDC {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mockoidc.NewServer(key)
	if err != nil {
		t.Fatal(err)
	}
	m.ClientID = client
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(lis, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m) })
	return m
}

func stop(t *testing.T, m *mockoidc.MockOIDC) {
	t.Helper()
	if err := m.Server.Close(); err != nil {
		t.Error(err)
	}
}

// login signs a user in by the authorization code flow and returns the ID token.
func login(t *testing.T, m *mockoidc.MockOIDC, uid string) string {
	t.Helper()
	m.QueueUser(&mockoidc.MockUser{Subject: uid})
	query := url.Values{
		"scope": {"openid"}, "state": {"s"}, "client_id": {client}, "response_type": {"code"}, "redirect_uri": {"http://127.0.0.1/back"},
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	back := send(t, browser, m.AuthorizationEndpoint()+"?"+query.Encode(), nil)
	defer back.Body.Close()
	at, err := back.Location()
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {at.Query().Get("code")}, "redirect_uri": {"http://127.0.0.1/back"},
		"client_id": {client}, "client_secret": {m.ClientSecret},
	}
	resp := send(t, browser, m.TokenEndpoint(), form)
	defer resp.Body.Close()
	var got struct {
		IDToken string `json:"id_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.IDToken == "" {
		t.Fatalf("login of %s: status %d, %v", uid, resp.StatusCode, err)
	}
	return got.IDToken
}

// send posts a form, or gets the address without one.
func send(t *testing.T, c *http.Client, address string, form url.Values) *http.Response {
	t.Helper()
	method := http.MethodPost
	if form == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestIssuer(t *testing.T) {
	m := provider(t, "")
	v, err := token.Open(token.Config{Issuer: m.Issuer(), Audience: client, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	good := login(t, m, "auth0|5f7c")
	wantUID(t, v, good, "auth0|5f7c")
	wantUID(t, v, change(good), "")
	wantUID(t, v, signed(t, jwt.MapClaims{"sub": "u1", "exp": time.Now().Add(time.Hour).Unix(), "aud": client}), "u1") // by the secret
	other := provider(t, "")
	wantUID(t, v, login(t, other, "u1"), "")
	elsewhere, err := token.Open(token.Config{Issuer: m.Issuer(), Audience: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	wantUID(t, elsewhere, good, "")
}

// TestIssuerIsDown: a start without the issuer goes well, tokens are "unavailable" and not invalid until it
// answers, and its keys outlive it.
func TestIssuerIsDown(t *testing.T) {
	m := provider(t, "")
	addr, good := m.Server.Addr, login(t, m, "u1")
	stop(t, m)
	issuer := "http://" + addr + mockoidc.IssuerBase
	var log bytes.Buffer
	v, err := token.Open(token.Config{Issuer: issuer, Audience: client, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatalf("without the issuer: %v, want a start", err)
	}
	if _, _, err := v.Verify(good); !errors.Is(err, token.ErrNoKeys) || errors.Is(err, token.ErrInvalid) {
		t.Errorf("without keys: got %v, want %v", err, token.ErrNoKeys)
	}
	if err := v.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "tokens are refused: discover issuer "+issuer) {
		t.Errorf("without keys: check says %v", err)
	}
	m = provider(t, addr)
	v.Expire()
	wantUID(t, v, login(t, m, "u1"), "u1")
	if err := v.Check(t.Context()); err != nil {
		t.Errorf("with keys: check says %v", err)
	}
	wantUID(t, v, good, "") // the provider has new keys
	if _, _, err := v.Verify(good); err == nil || err.Error() != "token not valid: no key of that name" {
		t.Errorf("an unknown key: got %v, want its reason only", err)
	}
	rotated := provider(t, restart(t, m))
	v.Expire()
	wantUID(t, v, login(t, rotated, "u2"), "u2")
	last := login(t, rotated, "u3")
	stop(t, rotated)
	v.Expire()
	wantUID(t, v, last, "u3")
	if err := v.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "tokens of new keys are refused") {
		t.Errorf("with earlier keys: check says %v", err)
	}
	if got, want := strings.Count(log.String(), "token keys"), 4; got != want { // a failure, two sets, a failure
		t.Errorf("%d lines, want %d, in\n%s", got, want, log.String())
	}
}

// restart frees the address of a provider.
func restart(t *testing.T, m *mockoidc.MockOIDC) string {
	t.Helper()
	stop(t, m)
	return m.Server.Addr
}

func TestIssuersThatAreRefused(t *testing.T) {
	for issuer, want := range map[string]string{
		"idp.example.com":        "want a URL such as https://",
		"http://idp.example.com": "http only for localhost",
		"https://":               "want a URL such as https://",
	} {
		if _, err := token.Open(token.Config{Issuer: issuer, Audience: client}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", issuer, err, want)
		}
	}
	if _, err := token.Open(token.Config{Issuer: "https://idp.example.com"}); err == nil || !strings.Contains(err.Error(), "needs --audience") {
		t.Errorf("without an audience: %v", err)
	}
}
