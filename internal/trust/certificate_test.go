package trust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/obs/obstest"
	"github.com/playhead/playhead/internal/trust"
)

// write writes a new certificate with the serial number to both files, changed after any before.
func write(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	replace(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), serial)
}

func replace(t *testing.T, file string, text []byte, serial int64) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	changed := time.Unix(1_700_000_000+serial, 0)
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
}

// shown returns the serial numbers that server and client show each other.
func shown(t *testing.T, server, client *tls.Config) (ofServer, ofClient int64) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	served := tls.Server(far, server)
	ended := make(chan error, 1)
	go func() { ended <- served.HandshakeContext(t.Context()) }()
	asked := tls.Client(near, client)
	if err := asked.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = near.Read(make([]byte, 1<<16)) }() // session tickets
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return asked.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), served.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestCertificateRotation: changed files count from the next connection on, broken ones never.
func TestCertificateRotation(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, key, 1)
	server, err := trust.Server{Cert: cert, Key: key}.Config()
	if err != nil {
		t.Fatal(err)
	}
	server.ClientAuth = tls.RequireAnyClientCert
	client, err := trust.Peer{Cert: cert, Key: key}.Config()
	if err != nil {
		t.Fatal(err)
	}
	client.InsecureSkipVerify = true //nolint:gosec // the certificate is looked at
	want := func(step string, serial int64) {
		t.Helper()
		if a, b := shown(t, server, client); a != serial || b != serial {
			t.Errorf("%s: server %d, client %d; want %d", step, a, b, serial)
		}
	}
	want("at first", 1)
	write(t, cert, key, 2)
	want("after a change", 2)
	replace(t, key, []byte("half"), 3)
	want("half written", 2)
	write(t, cert, key, 4)
	want("written", 4)
}

func TestExpiry(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	write(t, certFile, keyFile, 1)
	server, err := trust.Server{Cert: certFile, Key: keyFile}.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := trust.Peer{Cert: certFile, Key: keyFile}.Config()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	trust.RegisterExpiry(reg, "server", server)
	trust.RegisterExpiry(reg, "redis", client)
	trust.RegisterExpiry(reg, "kafka", nil)
	if got := obstest.Sum(t, reg, "playhead_certificate_expires_seconds"); got < 2*3590 || got > 2*3600 {
		t.Errorf("both certificates expire in %v s, want an hour each", got)
	}
}

func TestCertificateMissing(t *testing.T) {
	if _, err := (trust.Server{Cert: "none.pem", Key: "none.pem"}).Config(); err == nil {
		t.Error("a server without its files starts")
	}
	if _, err := (trust.Peer{Cert: "none.pem", Key: "none.pem"}).Config(); err == nil {
		t.Error("a client without its files starts")
	}
}
