package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// signedClients is a broker that knows its clients by their certificates.
type signedClients struct {
	*broker
	*shown
	acls    *acl.ACLs
	clients *certtest.Authority
	door    string
	doors   *pipes // in fake time
}

// signClients starts a broker whose first listener asks for nothing.
func signClients(t *testing.T, store eventlog.Store, cfg kafka.Config, fake bool) *signedClients {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	s := &signedClients{shown: newShown(t), acls: acl.New(everystore.Direct(store), quiet), clients: certtest.New(t)}
	file := filepath.Join(t.TempDir(), "clients.crt")
	certtest.Write(t, file, s.clients.PEM())
	signers, err := certificate.LoadAuthorities(file, quiet)
	if err != nil {
		t.Fatal(err)
	}
	open, door := kafka.Listener{Name: "open"}, kafka.Listener{Name: "door", TLS: s.cert.MutualTLS(signers), Certified: true}
	if fake {
		s.doors = newPipes()
		open.Listener, door.Listener = newPipes(), s.doors
	} else {
		open.Listener, door.Listener = listening(t, nil).Listener, listening(t, nil).Listener
		s.door = door.Addr().String()
	}
	cfg.ACLs, cfg.SuperUsers = s.acls, []string{"User:CN=admin,O=tests"}
	s.broker = startListening(t, store, cfg, open, door)
	return s
}

// shows is the TLS of a client with a certificate for a name.
func (s *signedClients) shows(name string) *tls.Config {
	s.t.Helper()
	cert, key := s.clients.Issue(s.t, name, time.Hour)
	return s.shown.client(s.t.(*testing.T), cert, key)
}

func (s *signedClients) allow(principal string, rule acl.Rule) {
	s.t.Helper()
	if err := s.acls.Create(s.t.Context(), []acl.Binding{{Principal: principal, Host: acl.Everywhere, Rule: rule}})[0]; err != nil {
		s.t.Fatal(err)
	}
}

func TestCertificateNamesItsUser(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		s := signClients(t, open(t), kafka.Config{}, false)
		defer s.stop()
		s.createTopic("orders", 1, nil)
		s.allow("User:CN=shop,O=tests", acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Write})
		s.allow("User:shop", acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.All})
		s.allow("User:CN=mail", acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.All})
		for name, ok := range map[string]bool{"shop": true, "admin": true, "mail": false, "*": false} {
			cl := s.broker.client(kgo.SeedBrokers(s.door), kgo.DialTLSConfig(s.shows(name)), kgo.RecordRetries(0))
			err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr()
			cl.Close()
			if ok && err != nil || !ok && !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Errorf("%s produces: %v", name, err)
			}
		}
	})
}

// Who has no rights gets none by any request, and sees nothing.
func TestCertificateAloneAllowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := signClients(t, memory.New(), kafka.Config{}, true)
		defer s.stop()
		s.createTopic("orders", 1, nil)
		w := s.doors.dial(t).secured(s.shows("stranger"))
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 12
		if got := tells[*kmsg.MetadataResponse](w, all); len(got.Topics) != 0 {
			t.Errorf("it sees %d topics", len(got.Topics))
		}
		produce := func(want *kerr.Error) {
			t.Helper()
			out := tells[*kmsg.ProduceResponse](w, produceRequest("orders", 0, sealed(t, batch.None, value("v"))))
			wantCode(t, "produce", out.Topics[0].Partitions[0].ErrorCode, want)
		}
		produce(kerr.TopicAuthorizationFailed)
		fetched := tells[*kmsg.FetchResponse](w, fetchRequest("orders", 0, 0))
		wantCode(t, "fetch", fetched.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
		wantCode(t, "a login", w.handshake(1, "PLAIN").ErrorCode, kerr.IllegalSaslState)

		s.allow("User:CN=stranger,O=tests", acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Write}) // while it is connected
		time.Sleep(2 * time.Second)
		produce(nil)
		s.allow(acl.Everybody, acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.All, Deny: true})
		time.Sleep(2 * time.Second)
		produce(kerr.TopicAuthorizationFailed)
	})
}

// A connection lasts as long as the certificate that its client showed.
func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := signClients(t, memory.New(), kafka.Config{}, true)
		defer s.stop()
		w := s.doors.dial(t).secured(s.shows("shop")) // for an hour
		all := kmsg.NewPtrMetadataRequest()
		all.Version = 12
		for range 11 {
			tells[*kmsg.MetadataResponse](w, all)
			time.Sleep(5 * time.Minute)
		}
		tells[*kmsg.MetadataResponse](w, all)
		time.Sleep(6 * time.Minute)
		w.send(frame(all, 99))
		if _, err := w.tryReceive(all, 99); err == nil {
			t.Error("after the certificate's end it got an answer")
		}
	})
}

func TestRulesNameUsersOfCertificates(t *testing.T) {
	names, err := certificate.NewNames([]string{"RULE:^CN=([a-z]*),.*$/$1/U", `RULE:^CN=\*,.*$/*/`})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := signClients(t, memory.New(), kafka.Config{Names: names}, true)
		defer s.stop()
		s.createTopic("orders", 1, nil)
		s.allow("User:SHOP", acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Write})
		w := s.doors.dial(t).secured(s.shows("shop"))
		out := tells[*kmsg.ProduceResponse](w, produceRequest("orders", 0, sealed(t, batch.None, value("v"))))
		wantCode(t, "produce", out.Topics[0].Partitions[0].ErrorCode, nil)
		for name, said := range map[string]string{"shop1": "no rule matches the subject", "*": "it stands for every user"} {
			w := s.doors.dial(t).secured(s.shows(name))
			_ = w.nc.(*tls.Conn).Handshake()
			w.mustClose()
			if text := s.said.String(); !strings.Contains(text, said) || !strings.Contains(text, "reason=certificate") {
				t.Errorf("%s: the log says: %s", name, text)
			}
		}
	})
}

// A mistake in the listener's TLS lets nobody in.
func TestCertifiedListenerNeedsCertificates(t *testing.T) {
	s := newShown(t)
	l := listening(t, s.cert.TLS())
	l.Certified = true
	b := startListening(t, memory.New(), kafka.Config{}, l)
	w := b.dial().secured(s.client(t))
	_ = w.nc.(*tls.Conn).Handshake()
	w.mustClose()
	if said := b.said.String(); !strings.Contains(said, "shown none that was verified") {
		t.Errorf("the log says: %s", said)
	}
	for name, bad := range map[string]kafka.Listener{"without TLS": {Certified: true}, "with SASL": {Certified: true, SASL: true, TLS: s.cert.TLS()}} {
		bad.Listener = listening(t, nil).Listener
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := kafka.New(b.log, nil, kafka.Config{}).Serve(soon, bad); err == nil || !strings.Contains(err.Error(), "it must have TLS, and no SASL") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
