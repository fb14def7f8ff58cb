package kafka_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/store/memory"
)

// shown is a server's certificate in files, and the authority that signed it.
type shown struct {
	signer            *certtest.Authority
	certFile, keyFile string
	cert              *certificate.Certificate
}

func newShown(t *testing.T) *shown {
	dir := t.TempDir()
	s := &shown{signer: certtest.New(t), certFile: filepath.Join(dir, "weir.crt"), keyFile: filepath.Join(dir, "weir.key")}
	s.renew(t)
	var err error
	if s.cert, err = certificate.Load(s.certFile, s.keyFile, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return s
}

// renew replaces the certificate, and returns the new one.
func (s *shown) renew(t *testing.T) []byte {
	cert, key := s.signer.Issue(t, "weir", time.Hour)
	certtest.Write(t, s.certFile, cert)
	certtest.Write(t, s.keyFile, key)
	return cert
}

// client trusts the server's authority, and shows a certificate if there is one.
func (s *shown) client(t *testing.T, pair ...[]byte) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: s.signer.Pool(), ServerName: "localhost"}
	if len(pair) == 2 {
		own, err := tls.X509KeyPair(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{own}
	}
	return cfg
}

func listening(t *testing.T, cfg *tls.Config) kafka.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return kafka.Listener{Listener: l, Name: "test", TLS: cfg}
}

// secured is a client that sends what it likes over TLS.
func (w *wire) secured(cfg *tls.Config) *wire { return &wire{w.t, tls.Client(w.nc, cfg)} }

func TestRecordsPassThroughTLS(t *testing.T) {
	s := newShown(t)
	b := startListening(t, memory.New(), kafka.Config{}, listening(t, s.cert.TLS()))
	cl := b.client(kgo.DialTLSConfig(s.client(t)), kgo.ConsumeTopics("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const count, size = 40, 100 << 10 // answers that are written in several pieces
	for i := range count {
		record := &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte{byte(i)}, size)}
		if err := cl.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < count; {
		got := cl.PollFetches(t.Context())
		if err := got.Err(); err != nil {
			t.Fatal(err)
		}
		got.EachRecord(func(r *kgo.Record) {
			if len(r.Value) != size || r.Value[0] != byte(i) || r.Value[size-1] != byte(i) {
				t.Errorf("record %d is not what was sent: %d bytes of %d", i, len(r.Value), r.Value[0])
			}
			i++
		})
	}
}

func TestRenewedCertificateIsShownToNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShown(t)
		l := newPipes()
		b := startListening(t, memory.New(), kafka.Config{}, kafka.Listener{Listener: l, TLS: s.cert.TLS()})
		first := b.dial().secured(s.client(t))
		req := kmsg.NewPtrApiVersionsRequest()
		first.send(frame(req, 1))
		first.receive(req, 1)
		want := s.renew(t)
		time.Sleep(2 * time.Second)
		second := b.dial().secured(s.client(t))
		second.send(frame(req, 1))
		second.receive(req, 1)
		seen := second.nc.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if got := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: seen.Raw}); !bytes.Equal(got, want) {
			t.Error("a connection after the renewal gets the old certificate")
		}
		first.send(frame(req, 2)) // a connection from before goes on
		first.receive(req, 2)
		b.stop()
	})
}

func TestOnlySignedClientsConnect(t *testing.T) {
	s, clients := newShown(t), certtest.New(t)
	file := filepath.Join(t.TempDir(), "clients.crt")
	certtest.Write(t, file, clients.PEM())
	signers, err := certificate.LoadAuthorities(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := startListening(t, memory.New(), kafka.Config{}, listening(t, s.cert.MutualTLS(signers)))
	issue := func(from *certtest.Authority, valid time.Duration) [][]byte {
		cert, key := from.Issue(t, "client", valid)
		return [][]byte{cert, key}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	for name, c := range map[string]struct {
		pair [][]byte
		ok   bool
	}{
		"signed":                 {issue(clients, time.Hour), true},
		"no certificate":         {nil, false},
		"signed by the server's": {issue(s.signer, time.Hour), false},
		"expired":                {issue(clients, -time.Minute), false},
	} {
		w := b.dial().secured(s.client(t, c.pair...))
		_, err := w.nc.Write(frame(req, 1)) // in TLS 1.3 the client learns of the refusal when it reads
		if err == nil {
			_, err = w.tryReceive(req, 1)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.said.await(t, "reason=tls_handshake", 3)
}

func TestClientsOfOtherProtocolsAreNamedInTheLog(t *testing.T) {
	s := newShown(t)
	old := s.client(t)
	old.MaxVersion = tls.VersionTLS11
	b := startListening(t, memory.New(), kafka.Config{}, listening(t, s.cert.TLS()))
	for sent, said := range map[string]string{
		string(frame(kmsg.NewPtrApiVersionsRequest(), 1)): "set security.protocol=SSL",
		"GET / HTTP/1.1\r\n\r\n":                          "an HTTP client connected",
	} {
		w := b.dial()
		w.send([]byte(sent))
		w.mustClose()
		if !strings.Contains(b.said.String(), said) {
			t.Errorf("after %q the log does not have %q: %s", sent[:4], said, b.said)
		}
	}
	if err := b.dial().secured(old).nc.(*tls.Conn).Handshake(); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("TLS 1.1: %v", err)
	}
}

// A client that speaks otherwise than the listener is told the one protocol with which it can
// connect.
func TestTheLogNamesTheProtocolOfTheListener(t *testing.T) {
	s := newShown(t)
	hello := string(frame(kmsg.NewPtrMetadataRequest(), 1))
	for _, c := range []struct {
		secured, login bool
		sent, says     string
	}{
		{true, false, hello, "set security.protocol=SSL in"},
		{true, true, hello, "set security.protocol=SASL_SSL in"},
		{false, true, hello, "set security.protocol=SASL_PLAINTEXT in"},
		{false, true, "\x16\x03\x01\x00\xa5\x01\x00", "set security.protocol=SASL_PLAINTEXT in"},
		{false, false, "\x16\x03\x01\x00\xa5\x01\x00", "set security.protocol=PLAINTEXT in"},
	} {
		at := listening(t, nil)
		at.SASL = c.login
		if c.secured {
			at.TLS = s.cert.TLS()
		}
		b := startListening(t, memory.New(), kafka.Config{}, at)
		w := b.dial()
		w.send([]byte(c.sent))
		w.mustClose()
		if !strings.Contains(b.said.String(), c.says) {
			t.Errorf("TLS %v, SASL %v: the log does not say %q: %s", c.secured, c.login, c.says, b.said)
		}
	}
}

func TestHandshakeHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShown(t)
		b := startListening(t, memory.New(), kafka.Config{}, kafka.Listener{Listener: newPipes(), TLS: s.cert.TLS()})
		began := time.Now()
		w := b.dial()
		_, _ = io.ReadAll(w.nc)
		if took := time.Since(began); took != kafka.HandshakeTimeout {
			t.Errorf("a client that says nothing is disconnected after %v, want %v", took, kafka.HandshakeTimeout)
		}
		b.stop()
	})
}

func TestEachListenerTellsItsOwnAddress(t *testing.T) {
	s := newShown(t)
	inside, outside := listening(t, nil), listening(t, s.cert.TLS())
	inside.Advertised, outside.Advertised = "inside.example.org:1", "outside.example.org:2"
	b := startListening(t, memory.New(), kafka.Config{}, inside, outside)
	req := metadataRequest()
	if host := ask[*kmsg.MetadataResponse](b, req).Brokers[0].Host; host != "inside.example.org" {
		t.Errorf("inside, Metadata tells %s", host)
	}
	b.addr = outside.Addr().String()
	w := b.dial().secured(s.client(t))
	w.send(frame(req, 1))
	if host := w.receive(req, 1).(*kmsg.MetadataResponse).Brokers[0].Host; host != "outside.example.org" {
		t.Errorf("outside, Metadata tells %s", host)
	}
}
