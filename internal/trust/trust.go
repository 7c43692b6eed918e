// Package trust parses TLS flags, accepted Host names and origins, and secrets in files.
package trust

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// Peer has the TLS settings of a client.
type Peer struct {
	TLS  bool   `name:"tls" help:"Speak TLS."`
	CA   string `name:"ca" help:"File with the authorities to trust, PEM; the system's by default. Means TLS."`
	Cert string `name:"cert" help:"File with this client's certificate, PEM, where the server wants one."`
	Key  string `name:"key" help:"File with the certificate's key, PEM."`
}

// Config returns the TLS configuration of a client, nil for plain text. A certificate whose files change is used from
// the next connection on.
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
		var own *certificate
		if own, err = load(p.Cert, p.Key); err == nil {
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.current(), nil }
		}
	}
	return conf, err
}

// Server has the TLS settings of a server.
type Server struct {
	Cert     string `name:"tls-cert" help:"File with the server's certificate, PEM; without it the server speaks plain text."`
	Key      string `name:"tls-key" help:"File with the certificate's key, PEM."`
	ClientCA string `name:"tls-client-ca" help:"File with the authorities whose clients are let in, PEM; without it any client is."`
}

// Config returns the TLS configuration of a server, nil for plain text. A certificate whose files change is used from
// the next connection on.
func (d Server) Config() (*tls.Config, error) {
	if d.Cert == "" && d.Key == "" {
		if d.ClientCA != "" {
			return nil, errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	own, err := load(d.Cert, d.Key)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.current(), nil }}
	if d.ClientCA != "" {
		conf.ClientAuth = tls.RequireAndVerifyClientCert
		conf.ClientCAs, err = pool(d.ClientCA)
	}
	return conf, err
}

// CheckOpen fails for a listener that other machines reach, unless conf demands certificates of clients. The
// callers of such a server may read and erase every user.
func CheckOpen(lis net.Listener, conf *tls.Config) error {
	tcp, ok := lis.Addr().(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || conf != nil && conf.ClientAuth == tls.RequireAndVerifyClientCert {
		return nil
	}
	return fmt.Errorf("--listen %s: the gRPC server would be open to the network; set --tls-cert, --tls-key and --tls-client-ca, or --insecure-rpc behind a firewall", tcp)
}

// Secret returns the content of a file without its final newline.
func Secret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	return bytes.TrimSpace(text), nil
}

// Secrets returns the secrets of a file, as [ParseSecrets] does.
func Secrets(file string, least int) ([][]byte, error) {
	text, err := Secret(file)
	if err != nil {
		return nil, err
	}
	return ParseSecrets(text, least)
}

// ParseSecrets returns the lines of a text, each a secret of at least so many bytes. There is at least one.
func ParseSecrets(text []byte, least int) ([][]byte, error) {
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	for i, line := range all {
		if all[i] = bytes.TrimSpace(line); len(all[i]) < least {
			return nil, fmt.Errorf("secret: line %d has %d bytes; want at least %d", i+1, len(all[i]), least)
		}
	}
	return all, nil
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

// Hosts are accepted Host names, such as api.example.com, without port; "*" accepts every name. IP addresses,
// localhost and names without a dot are always accepted.
//
// This stops DNS rebinding: a page whose name resolves to our address could otherwise read answers, also on the
// loopback. Its requests carry the page's name as Host.
type Hosts []string

// Allow reports whether host, with or without port, is accepted.
func (h Hosts) Allow(host string) bool {
	name := strings.TrimSuffix(host, ".")
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = strings.TrimSuffix(n, ".")
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil || !strings.Contains(name, ".") || strings.HasSuffix(strings.ToLower(name), ".localhost") {
		return true
	}
	for _, allowed := range h {
		if allowed == "*" || strings.EqualFold(allowed, name) {
			return true
		}
	}
	return false
}

// Validate fails for a name that no request can have.
func (h Hosts) Validate() error {
	for _, name := range h {
		if name != "*" && (name == "" || strings.ContainsAny(name, "*:/ ") || strings.HasSuffix(name, ".")) {
			return fmt.Errorf("want * or a whole name such as api.example.com, without scheme and port, got %q", name)
		}
	}
	return nil
}

// Only answers 421 to requests for other hosts.
func (h Hosts) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.Allow(r.Host) {
			http.Error(w, fmt.Sprintf("this server is not known as %q; --host lists its names", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Origins are web origins, such as https://app.example.com.
type Origins []string

// Validate fails for a value that is not an origin.
func (o Origins) Validate() error {
	for _, origin := range o {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Host, " ;,'\"*") {
			return fmt.Errorf("want an origin such as https://app.example.com, without a path, got %q", origin)
		}
	}
	return nil
}
