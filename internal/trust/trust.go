// Package trust holds what a process trusts in others: the flags of TLS, which say which servers a client trusts and
// which clients a server lets in, the names under which a server may be asked, and secrets in files.
package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Peer says how to trust and be trusted by a server that speaks TLS.
type Peer struct {
	TLS  bool   `name:"tls" help:"Speak TLS."`
	CA   string `name:"ca" help:"File with the authorities to trust, PEM; the system's by default. Means TLS."`
	Cert string `name:"cert" help:"File with this client's certificate, PEM, where the server wants one."`
	Key  string `name:"key" help:"File with the certificate's key, PEM."`
}

// Config returns what to dial with, nil for plain text.
func (p Peer) Config() (*tls.Config, error) {
	if !p.TLS && p.CA == "" && p.Cert == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if p.CA != "" {
		if conf.RootCAs, err = pool(p.CA); err != nil {
			return nil, err
		}
	}
	if p.Cert != "" || p.Key != "" {
		conf.Certificates, err = pair(p.Cert, p.Key)
	}
	return conf, err
}

// Server says how a server proves who it is, and whom it lets in.
type Server struct {
	Cert     string `name:"tls-cert" help:"File with the server's certificate, PEM; without it the server speaks plain text."`
	Key      string `name:"tls-key" help:"File with the certificate's key, PEM."`
	ClientCA string `name:"tls-client-ca" help:"File with the authorities whose clients are let in, PEM; without it any client is."`
}

// Config returns what to serve with, nil for plain text.
func (d Server) Config() (*tls.Config, error) {
	if d.Cert == "" && d.Key == "" {
		if d.ClientCA != "" {
			return nil, errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	certs, err := pair(d.Cert, d.Key)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certs}
	if d.ClientCA != "" {
		conf.ClientAuth = tls.RequireAndVerifyClientCert
		conf.ClientCAs, err = pool(d.ClientCA)
	}
	return conf, err
}

func pair(cert, key string) ([]tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %q with key %q: %w", cert, key, err)
	}
	return []tls.Certificate{c}, nil
}

// Secret returns what a file holds, without the newline that editors leave at its end.
func Secret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

func pool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities: %s holds no certificate in PEM", file)
	}
	return p, nil
}
