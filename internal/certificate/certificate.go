// Package certificate keeps the TLS certificate that doors show, and the authorities that sign
// their clients' certificates: read from files, and again when these change.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrExposed: a private key can be read by everybody on this machine.
var ErrExposed = errors.New("everybody on this machine can read the private key")

// lookEvery is the shortest time between two reads of a certificate's files. They are read when a
// client connects.
const lookEvery = time.Second

// Certificate is a TLS certificate with its private key, from two files. When they change, later
// connections get what they hold then: a renewed certificate needs no restart.
type Certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu     sync.Mutex // guards all below
	looked time.Time
	read   [2][]byte // what pair was made of
	pair   *tls.Certificate
	said   string // what was wrong last time, if anything was
}

// Load reads a certificate and its key, in PEM form. It refuses a pair with which no client could
// be served, and a key that everybody can read, with an error that names the file and what is wrong
// with it.
func Load(certFile, keyFile string, logger *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, logger: logger, looked: time.Now()}
	if _, err := c.look(); err != nil {
		return nil, err
	}
	return c, nil
}

// TLS is how to serve with the certificate: TLS 1.2 or later.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// get returns the certificate for a new connection. While the files hold no valid pair, for example
// because only one of them has been replaced, it returns the last valid one.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	changed, err := c.look()
	switch {
	case err == nil && !changed:
		c.said = ""
	case err != nil && err.Error() != c.said:
		c.said = err.Error()
		c.logger.Error("the new TLS certificate is not valid; the previous one stays in use", "err", err, "expires", c.pair.Leaf.NotAfter)
	case changed:
		c.said = ""
		c.logger.Info("the TLS certificate was read again", "file", c.certFile, "expires", c.pair.Leaf.NotAfter)
	}
	return c.pair, nil
}

// look reads the files. If they changed and hold a valid pair, it replaces the current one. It
// compares contents and not modification times, because file systems keep these only to a few
// milliseconds.
func (c *Certificate) look() (changed bool, err error) {
	cert, err := readSmall(c.certFile)
	if err != nil {
		return false, err
	}
	key, err := readSmall(c.keyFile)
	if err != nil {
		return false, err
	}
	if bytes.Equal(cert, c.read[0]) && bytes.Equal(key, c.read[1]) {
		return false, nil
	}
	pair, err := c.parse(cert, key)
	if err != nil {
		return false, err
	}
	c.read, c.pair = [2][]byte{cert, key}, pair
	return true, nil
}

func (c *Certificate) parse(cert, key []byte) (*tls.Certificate, error) {
	if err := checkPEM(c.certFile, cert, "CERTIFICATE"); err != nil {
		return nil, err
	}
	if err := checkPEM(c.keyFile, key, "PRIVATE KEY"); err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.keyFile); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	} else if info.Mode()&0o004 != 0 {
		return nil, fmt.Errorf("TLS: %s: %w: its mode is %s", c.keyFile, ErrExposed, info.Mode())
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("TLS: %s with the key %s: %w", c.certFile, c.keyFile, err)
	}
	return &pair, c.inTime(pair.Leaf, time.Now())
}

func (c *Certificate) inTime(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("TLS: the certificate in %s expired on %s", c.certFile, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("TLS: the certificate in %s is not valid before %s; here it is %s", c.certFile,
			leaf.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// readSmall reads a file that may hold a certificate or a key.
func readSmall(file string) ([]byte, error) {
	const most = 1 << 20 // of a chain with all its roots; more is another kind of file
	if info, err := os.Stat(file); err == nil && (info.Size() > most || !info.Mode().IsRegular()) {
		return nil, fmt.Errorf("TLS: %s is not a PEM file: it is %s of %d bytes", file, describe(info.Mode()), info.Size())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return text, nil
}

// checkPEM looks for a block of a kind, such as EC PRIVATE KEY for PRIVATE KEY.
func checkPEM(file string, text []byte, kind string) error {
	var kinds []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case strings.HasPrefix(block.Type, "ENCRYPTED "):
			return fmt.Errorf("TLS: the key in %s is locked with a passphrase, and nobody is there to type it: unlock it with `openssl pkey -in FILE -out FILE`", file)
		case strings.HasSuffix(block.Type, kind):
			return nil
		}
		kinds = append(kinds, block.Type)
	}
	if len(kinds) == 0 {
		return fmt.Errorf("TLS: %s is not a PEM file: it has no line that begins -----BEGIN %s", file, kind)
	}
	return fmt.Errorf("TLS: %s holds %s, and no %s", file, strings.Join(kinds, ", "), kind)
}

func describe(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a file"
	}
	return "something else"
}
