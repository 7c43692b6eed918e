package trust

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Hosts are the names under which a server may be asked, such as api.example.com, without port; "*" is every name.
// Addresses, localhost and names without a dot need not be listed.
//
// A page whose own name was made to lead to another address (DNS rebinding) has the browser ask whatever listens there,
// also on the loopback and behind a firewall, and may read the answers. The request still has the page's name as its host.
type Hosts []string

// Allow reports whether a request may name this host, which may have a port.
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

// Validate refuses, as a flag, what no request can name.
func (h Hosts) Validate() error {
	for _, name := range h {
		if name != "*" && (name == "" || strings.ContainsAny(name, "*:/ ") || strings.HasSuffix(name, ".")) {
			return fmt.Errorf("want * or a whole name such as api.example.com, without scheme and port, got %q", name)
		}
	}
	return nil
}

// Only answers 421 to requests that name another host.
func (h Hosts) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.Allow(r.Host) {
			http.Error(w, fmt.Sprintf("this server is not known as %q; --host lists its names", r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
