package uplink_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/internal/trust"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// authority signs certificates for 127.0.0.1 into files.
type authority struct {
	*testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t, dir: t.TempDir()}
	a.sign("ca", true)
	return a
}

// sign returns the file of a new certificate, with its key in the same directory.
func (a *authority) sign(name string, isCA bool) (file string) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if isCA {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	a.write(name+".key", "PRIVATE KEY", secret)
	return a.write(name, "CERTIFICATE", der)
}

func (a *authority) write(name, kind string, der []byte) (file string) {
	a.Helper()
	file = filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
	return file
}

// locked starts a real service behind a door.
func locked(t *testing.T, server trust.Server) (addr string) {
	t.Helper()
	db := servicetest.Store(t)
	s := servicetest.New(t, rpc.Config{Cache: db.Cache(), Archive: db.Archive()})
	conf, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.Serve(ctx, l, conf, time.Second) }) // returns when ctx ends
	t.Cleanup(func() { cancel(); parts.Wait() })
	return l.Addr().String()
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ca, server, client, stranger := filepath.Join(ours.dir, "ca"), ours.sign("server", false), ours.sign("client", false), theirs.sign("client", false)
	open := trust.Server{Cert: server, Key: server + ".key"}
	mutual := trust.Server{Cert: server, Key: server + ".key", ClientCA: ca}
	tests := []struct {
		name   string
		server trust.Server
		peer   trust.Peer
		want   codes.Code
	}{
		{"TLS", open, trust.Peer{CA: ca}, codes.OK},
		{"plain text to a door that wants TLS", open, trust.Peer{}, codes.Unavailable},
		{"TLS to a server of plain text", trust.Server{}, trust.Peer{CA: ca}, codes.Unavailable},
		{"a server of another authority", open, trust.Peer{CA: filepath.Join(theirs.dir, "ca")}, codes.Unavailable},
		{"both know each other", mutual, trust.Peer{CA: ca, Cert: client, Key: client + ".key"}, codes.OK},
		{"a client without a certificate", mutual, trust.Peer{CA: ca}, codes.Unavailable},
		{"a client of another authority", mutual, trust.Peer{CA: ca, Cert: stranger, Key: stranger + ".key"}, codes.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf, err := tt.peer.Config()
			if err != nil {
				t.Fatal(err)
			}
			c, err := uplink.Open(uplink.Config{Services: []string{locked(t, tt.server)}, TLS: conf})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = c.List(ctx, &historyv1.ListRequest{Uid: "u1"})
			if status.Code(err) != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A batch above the service's limit is refused, and the connection continues.
func TestMessageTooLarge(t *testing.T) {
	c, err := uplink.Open(uplink.Config{Services: []string{locked(t, trust.Server{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large := beats("u1", 100)
	for _, h := range large.Heartbeats {
		h.Meta = map[string]string{"a": strings.Repeat("x", rpc.MaxMessage/90)}
	}
	if _, err := c.Apply(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want %v", err, codes.ResourceExhausted)
	}
	if err := apply(t.Context(), c, "u1"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
