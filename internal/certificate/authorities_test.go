package certificate_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/certtest"
)

// Whoever is no longer among the authorities opens nothing more, without a restart.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		server, first, second := certtest.New(t), certtest.New(t), certtest.New(t)
		cert, key := server.Issue(t, "weir", time.Hour)
		certFile, keyFile, signersFile := filepath.Join(dir, "weir.crt"), filepath.Join(dir, "weir.key"), filepath.Join(dir, "clients.crt")
		certtest.Write(t, certFile, cert)
		certtest.Write(t, keyFile, key)
		certtest.Write(t, signersFile, first.PEM())
		shown, err := certificate.Load(certFile, keyFile, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		signers, err := certificate.LoadAuthorities(signersFile, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		secured := shown.MutualTLS(signers)
		sessions := tls.NewLRUClientSessionCache(10)
		enters := func(by *certtest.Authority) error {
			cert, key := by.Issue(t, "client", time.Hour)
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			here, there := net.Pipe()
			defer here.Close()
			client := tls.Client(here, &tls.Config{RootCAs: server.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{pair}, ClientSessionCache: sessions})
			ended := make(chan error)
			go func() {
				defer there.Close()
				ended <- tls.Server(there, secured).Handshake()
			}()
			_ = client.Handshake() // in TLS 1.3 it may succeed although the server refuses
			go func() { _, _ = client.Read(make([]byte, 1)) }()
			return <-ended
		}
		check := func(when string, by *certtest.Authority, ok bool) {
			t.Helper()
			time.Sleep(2 * time.Second)
			if err := enters(by); (err == nil) != ok {
				t.Errorf("%s: %v", when, err)
			}
		}
		check("the first", first, true)
		check("another", second, false)
		certtest.Write(t, signersFile, second.PEM())
		check("the first, once it is no longer there", first, false)
		check("the other, once it is there", second, true)
		certtest.Write(t, signersFile, []byte("half a certif"))
		check("the other, with half a file", second, true)
	})
}

func TestBadAuthoritiesAreRefused(t *testing.T) {
	dir := t.TempDir()
	cert, key := certtest.New(t).Issue(t, "client", time.Hour)
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "is not a PEM file"},
		"a key":       {string(key), "holds PRIVATE KEY, and no CERTIFICATE"},
		"half broken": {string(cert) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "signers.crt: x509"},
	} {
		file := filepath.Join(dir, "signers.crt")
		certtest.Write(t, file, []byte(c.text))
		if _, err := certificate.LoadAuthorities(file, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a word of %q", name, err, c.want)
		}
	}
}
