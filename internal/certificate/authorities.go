package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Authorities are the certificates of those who sign clients' certificates, from one file. When it
// changes, later connections are judged by what it holds then.
type Authorities struct {
	file   string
	logger *slog.Logger

	mu     sync.Mutex // guards all below
	looked time.Time
	read   []byte // what pool was made of
	pool   *x509.CertPool
	said   string // what was wrong last time, if anything was
}

// LoadAuthorities reads the authorities' certificates, in PEM form. It refuses a file without one,
// and one with a certificate that cannot be read.
func LoadAuthorities(file string, logger *slog.Logger) (*Authorities, error) {
	a := &Authorities{file: file, logger: logger, looked: time.Now()}
	if err := a.look(); err != nil {
		return nil, err
	}
	return a, nil
}

// MutualTLS is TLS, for clients that show a valid certificate signed by one of the authorities.
// Others cannot connect.
func (c *Certificate) MutualTLS(a *Authorities) *tls.Config {
	return c.asking(a, tls.RequireAndVerifyClientCert)
}

// OptionalTLS is TLS for HTTP, for clients that show a valid certificate signed by one of the
// authorities, or none. Those that show another one cannot connect. A browser is told who the
// authorities are, and offers only certificates of theirs.
func (c *Certificate) OptionalTLS(a *Authorities) *tls.Config {
	return c.asking(a, tls.VerifyClientCertIfGiven, "h2", "http/1.1") // http.Server adds these to the config that it knows, and not to the one for each connection
}

func (c *Certificate) asking(a *Authorities, how tls.ClientAuthType, protocols ...string) *tls.Config {
	base := c.TLS()
	base.ClientAuth, base.NextProtos = how, protocols
	base.SessionTicketsDisabled = true // a resumed session would not be judged by the authorities that there are now
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, a.now()
		return now, nil
	}
	return base
}

// Ended returns an error once a certificate's time is over: TLS checks that only when a client
// connects.
func Ended(shown *x509.Certificate) error {
	if time.Now().After(shown.NotAfter) {
		return fmt.Errorf("the client's certificate expired at %s", shown.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// now returns the authorities for a new connection. While the file is not valid, they are those
// that were valid last.
func (a *Authorities) now() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.looked) < lookEvery {
		return a.pool
	}
	a.looked = time.Now()
	before := a.pool
	switch err := a.look(); {
	case err != nil && err.Error() != a.said:
		a.said = err.Error()
		a.logger.Error("the new file of clients' authorities is not valid; the previous authorities stay in use", "err", err)
	case err == nil:
		a.said = ""
		if a.pool != before {
			a.logger.Info("the clients' authorities were read again", "file", a.file)
		}
	}
	return a.pool
}

// look reads the file. If it changed and is valid, it replaces the authorities.
func (a *Authorities) look() error {
	text, err := readSmall(a.file)
	if err != nil {
		return err
	}
	if a.pool != nil && bytes.Equal(text, a.read) {
		return nil
	}
	if err := checkPEM(a.file, text, "CERTIFICATE"); err != nil {
		return err
	}
	pool, err := poolOf(text)
	if err != nil {
		return fmt.Errorf("TLS: %s: %w", a.file, err)
	}
	a.read, a.pool = text, pool
	return nil
}

// poolOf refuses a certificate that cannot be read, which x509.CertPool.AppendCertsFromPEM would
// drop silently.
func poolOf(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		signer, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(signer)
	}
	return pool, nil
}
