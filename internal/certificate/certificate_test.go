package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// authority signs itself: a certificate for localhost, and its key.
func authority(t *testing.T, from, to time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "weir test"}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// write replaces a file, as tools that renew certificates do.
func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func TestBadCertificatesAreRefusedByName(t *testing.T) {
	now, day := time.Now(), 24*time.Hour
	cert, key := authority(t, now.Add(-day), now.Add(day))
	_, otherKey := authority(t, now.Add(-day), now.Add(day))
	expired, expiredKey := authority(t, now.Add(-2*day), now.Add(-day))
	early, earlyKey := authority(t, now.Add(day), now.Add(2*day))
	for name, c := range map[string]struct {
		cert, key []byte
		text      string
	}{
		"another key":        {cert, otherKey, "private key does not match"},
		"expired":            {expired, expiredKey, "cert.pem expired on 20"},
		"not yet valid":      {early, earlyKey, "cert.pem is not valid before 20"},
		"not PEM":            {[]byte("hello"), key, "cert.pem is not a PEM file"},
		"key is not PEM":     {cert, []byte("hello"), "key.pem is not a PEM file"},
		"swapped":            {key, cert, "cert.pem holds PRIVATE KEY, and no CERTIFICATE"},
		"two certificates":   {cert, cert, "key.pem holds CERTIFICATE, and no PRIVATE KEY"},
		"locked key":         {cert, []byte(strings.ReplaceAll(string(key), "PRIVATE", "ENCRYPTED PRIVATE")), "key.pem is locked with a passphrase"},
		"broken certificate": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no")}), key, "cert.pem"},
		"enormous":           {make([]byte, 2<<20), key, "cert.pem is not a PEM file: it is a file of 2097152 bytes"},
	} {
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		write(t, certFile, c.cert)
		write(t, keyFile, c.key)
		if _, err := Load(certFile, keyFile, nil); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want a word of %q", name, err, c.text)
		}
	}

	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, certFile, cert)
	if _, err := Load(certFile, keyFile, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := Load(dir, certFile, nil); err == nil || !strings.Contains(err.Error(), "a directory") {
		t.Errorf("a directory: %v", err)
	}
	write(t, keyFile, key)
	if err := os.Chmod(keyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(certFile, keyFile, nil); !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("a key that everybody can read: %v", err)
	}
}

func TestRenewedCertificateNeedsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		renew := func() (cert []byte) {
			cert, key := authority(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
			write(t, keyFile, key)
			return cert
		}
		first := renew()
		write(t, certFile, first)
		c, err := Load(certFile, keyFile, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		serves := func(when string, want []byte) {
			t.Helper()
			time.Sleep(lookEvery)
			pair, err := c.TLS().GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}); string(got) != string(want) {
				t.Errorf("%s another certificate is served", when)
			}
		}
		serves("at first", first)
		second := renew()
		serves("with the key replaced, and not the certificate yet,", first)
		write(t, certFile, second)
		serves("with both replaced", second)
		if err := os.Remove(certFile); err != nil {
			t.Fatal(err)
		}
		serves("without the file", second)
		write(t, certFile, []byte("half a certif"))
		serves("with half a file", second)
		third := renew()
		write(t, certFile, third)
		if err := os.Chmod(keyFile, 0o644); err != nil {
			t.Fatal(err)
		}
		serves("with a key that everybody can read", second)
		if err := os.Chmod(keyFile, 0o600); err != nil {
			t.Fatal(err)
		}
		serves("with a good one again", third)
	})
}
