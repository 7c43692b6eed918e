package trust

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificate is a certificate in files. It is read again when a file has changed, as cert-manager and certbot
// change theirs. While the files do not fit together, the last good one is used.
type certificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	cert    *tls.Certificate
	changed [2]time.Time // modification times of both files when they were last read
}

// load reads a certificate for the first time.
func load(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	return c, c.read()
}

// current returns the certificate as it is in the files now. It costs two calls of stat.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.modified() != c.changed {
		_ = c.read() // half written: the next connection tries again
	}
	return c.cert
}

func (c *certificate) read() error {
	changed := c.modified()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("certificate %q with key %q: %w", c.certFile, c.keyFile, err)
	}
	c.cert, c.changed = &pair, changed
	return nil
}

func (c *certificate) modified() (times [2]time.Time) {
	for i, file := range []string{c.certFile, c.keyFile} {
		if about, err := os.Stat(file); err == nil {
			times[i] = about.ModTime()
		}
	}
	return times
}

// RegisterExpiry adds a gauge of how long the own certificate in conf is still valid, if it has one. use names its
// purpose, such as redis.
func RegisterExpiry(reg prometheus.Registerer, use string, conf *tls.Config) {
	var current func() (*tls.Certificate, error)
	switch {
	case conf == nil || reg == nil:
		return
	case conf.GetCertificate != nil:
		current = func() (*tls.Certificate, error) { return conf.GetCertificate(nil) }
	case conf.GetClientCertificate != nil:
		current = func() (*tls.Certificate, error) { return conf.GetClientCertificate(nil) }
	default:
		return
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_certificate_expires_seconds", Help: "Time until this process's own certificate expires, by use.", ConstLabels: prometheus.Labels{"use": use},
	}, func() float64 {
		own, err := current()
		if err != nil || own.Leaf == nil {
			return 0
		}
		return time.Until(own.Leaf.NotAfter).Seconds()
	}))
}
