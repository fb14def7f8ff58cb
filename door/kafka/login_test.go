package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
)

// guarded is a broker whose clients log in with API keys; its own address is that of a listener
// where they need not.
type guarded struct {
	*broker
	keys  *apikey.Keys
	doors *pipes // in fake time
	door  string // otherwise the address
}

// guard starts a guarded broker. In fake time both listeners have pipes.
func guard(t *testing.T, store eventlog.Store, cfg kafka.Config, fake bool) *guarded {
	t.Helper()
	g := &guarded{keys: apikey.New(everystore.Direct(store), slog.New(slog.DiscardHandler))}
	cfg.Keys = g.keys
	open, door := kafka.Listener{Name: "open"}, kafka.Listener{Name: "door", SASL: true}
	if fake {
		g.doors = newPipes()
		open.Listener, door.Listener = newPipes(), g.doors
	} else {
		open.Listener, door.Listener = listening(t, nil).Listener, listening(t, nil).Listener
		g.door = door.Addr().String()
	}
	g.broker = startListening(t, store, cfg, open, door)
	return g
}

// key creates an API key.
func (g *guarded) key(s apikey.Spec) (key apikey.Key, secret string) {
	g.t.Helper()
	key, secret, err := g.keys.Create(g.t.Context(), s)
	if err != nil {
		g.t.Fatal(err)
	}
	return key, secret
}

// everything is a key for everything.
func everything(name string) apikey.Spec {
	return apikey.Spec{Name: name, Access: []apikey.Access{apikey.Admin}, AllTopics: true, AllGroups: true}
}

// knock connects to the listener with SASL.
func (g *guarded) knock() *wire {
	g.t.Helper()
	if g.doors != nil {
		return g.doors.dial(g.t)
	}
	nc, err := net.Dial("tcp", g.door)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &wire{g.t, nc}
}

// tells sends a request and returns the answer.
func tells[Resp kmsg.Response](w *wire, req kmsg.Request) Resp {
	w.t.Helper()
	w.send(frame(req, 3))
	return w.receive(req, 3).(Resp)
}

func (w *wire) handshake(version int16, mechanism string) *kmsg.SASLHandshakeResponse {
	w.t.Helper()
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = version, mechanism
	return tells[*kmsg.SASLHandshakeResponse](w, req)
}

func (w *wire) authenticate(message string) *kmsg.SASLAuthenticateResponse {
	w.t.Helper()
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 2, []byte(message)
	return tells[*kmsg.SASLAuthenticateResponse](w, req)
}

// logIn logs in with PLAIN.
func (w *wire) logIn(user, secret string) *kmsg.SASLAuthenticateResponse {
	w.t.Helper()
	wantCode(w.t, "handshake", w.handshake(1, "PLAIN").ErrorCode, nil)
	return w.authenticate("\x00" + user + "\x00" + secret)
}

// enter connects and logs in.
func (g *guarded) enter(user, secret string) *wire {
	g.t.Helper()
	w := g.knock()
	if got := w.logIn(user, secret); got.ErrorCode != 0 {
		g.t.Fatalf("login of %s: code %d", user, got.ErrorCode)
	}
	return w
}

func TestAPIKeyOpensTheKafkaDoor(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		g := guard(t, open(t), kafka.Config{}, false)
		defer g.stop()
		key, secret := g.key(apikey.Spec{Name: "shop", Access: []apikey.Access{apikey.Read, apikey.Write, apikey.Admin}, Topics: []string{"orders"}})
		for _, user := range []string{"shop", key.ID} {
			cl := g.client(kgo.SeedBrokers(g.door), kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("orders-"+user))
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if got := cl.PollFetches(t.Context()); got.Err() != nil || got.NumRecords() == 0 {
				t.Fatalf("%s reads %d records: %v", user, got.NumRecords(), got.Err())
			}
			if err := cl.CommitUncommittedOffsets(t.Context()); err != nil {
				t.Error(err)
			}
			g.madeBy("orders-"+user, key.ID)
			cl.Close()
		}
		cl := g.client(kgo.SeedBrokers(g.door), kgo.SASL(plain.Auth{User: "shop", Pass: secret + "x"}.AsMechanism()))
		if err := cl.Ping(t.Context()); err == nil {
			t.Error("a wrong secret opens the door")
		}
	})
}

// madeBy sees that a group counts for a client.
func (g *guarded) madeBy(name, client string) {
	g.t.Helper()
	state, err := g.log.Get(g.t.Context(), group.StateKey(name))
	if err != nil {
		g.t.Fatal(err)
	}
	if !strings.Contains(string(state.Value), `"made_by":"`+client+`"`) {
		g.t.Errorf("group %s, which %q made: %s", name, client, state.Value)
	}
}

// A group that a client makes with a commit counts for its key; for nobody where nobody logs in.
func TestAGroupThatACommitMakesIsTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, memory.New(), kafka.Config{}, true)
		defer g.stop()
		g.createTopic("orders", 1, nil)
		commit := func(name string) *kmsg.OffsetCommitRequest {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Version, r.Group, r.Generation = 8, name, -1
			of, p := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
			of.Topic = "orders"
			of.Partitions = append(of.Partitions, p)
			r.Topics = append(r.Topics, of)
			return r
		}
		for _, name := range []string{"ops", "ANONYMOUS"} { // nobody is anybody by its name
			key, secret := g.key(everything(name))
			w := g.enter(name, secret)
			wantCode(t, "commit", tells[*kmsg.OffsetCommitResponse](w, commit("of "+name)).Topics[0].Partitions[0].ErrorCode, nil)
			g.madeBy("of "+name, key.ID)
			w.nc.Close()
		}
		wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](g.broker, commit("ours")).Topics[0].Partitions[0].ErrorCode, nil)
		if state, err := g.log.Get(t.Context(), group.StateKey("ours")); err != nil || strings.Contains(string(state.Value), "made_by") {
			t.Errorf("a group that anybody made: %s, %v", state.Value, err)
		}
	})
}

// Whatever is wrong with a login, the client learns only that it failed, and waits for that.
func TestBadLoginsAreAnsweredAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, memory.New(), kafka.Config{}, true)
		defer g.stop()
		key, secret := g.key(everything("ops"))
		other, _ := g.key(everything("other"))
		revoked, old := g.key(everything("revoked"))
		if _, err := g.keys.Revoke(t.Context(), revoked.ID); err != nil {
			t.Fatal(err)
		}
		for name, message := range map[string]string{
			"wrong secret":            "\x00ops\x00" + secret[:len(secret)-1] + "!",
			"unknown key":             "\x00ops\x00" + strings.Replace(secret, key.ID, "aaaaaaaa", 1),
			"the other's name":        "\x00other\x00" + secret,
			"the other's id":          "\x00" + other.ID + "\x00" + secret,
			"a revoked key":           "\x00revoked\x00" + old,
			"no user":                 "\x00\x00" + secret,
			"no secret":               "\x00ops\x00",
			"nothing":                 "",
			"two parts":               "ops\x00" + secret,
			"four parts":              "\x00ops\x00" + secret + "\x00",
			"another identity":        "other\x00ops\x00" + secret,
			"a principal of 60 KiB":   "\x00" + strings.Repeat("u", 60<<10) + "\x00" + secret,
			"a secret of 60 KiB":      "\x00ops\x00" + strings.Repeat("s", 60<<10),
			"bytes that are not text": "\x00\xff\xfe\x00\xff",
		} {
			w := g.knock()
			wantCode(t, "handshake", w.handshake(1, "PLAIN").ErrorCode, nil)
			began := time.Now()
			got := w.authenticate(message)
			wantCode(t, name, got.ErrorCode, kerr.SaslAuthenticationFailed)
			if text(got.ErrorMessage) != "Authentication failed: the user name, the password or the API key is not valid" || len(got.SASLAuthBytes) > 0 {
				t.Errorf("%s: the client is told %q and %q", name, text(got.ErrorMessage), got.SASLAuthBytes)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("%s: answered after %v", name, took)
			}
			w.mustClose()
		}
		if said := g.said.String(); strings.Contains(said, secret) || strings.Contains(said, old) {
			t.Errorf("the log has a secret: %s", said)
		}
	})
}

func TestWithoutLoginAClientMaySendLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, memory.New(), kafka.Config{}, true)
		defer g.stop()
		_, secret := g.key(everything("ops"))
		large := kmsg.NewPtrSASLAuthenticateRequest()
		large.Version, large.SASLAuthBytes = 2, make([]byte, 1<<20)
		for name, c := range map[string]struct {
			send func(w *wire)
			said string
		}{
			"a request":             {func(w *wire) { w.send(frame(metadataRequest(), 1)) }, "sent Metadata before it logged in"},
			"a request after":       {func(w *wire) { w.handshake(1, "PLAIN"); w.send(frame(metadataRequest(), 1)) }, "sent Metadata before it logged in"},
			"a token of 1 MiB":      {func(w *wire) { w.handshake(1, "PLAIN"); w.nc.Write(frame(large, 1)) }, "the limit before the login is 65536"},
			"a bare token of 1 MiB": {func(w *wire) { w.handshake(0, "PLAIN"); w.nc.Write(binary.BigEndian.AppendUint32(nil, 1<<20)) }, "has 1048576 bytes; the limit is 65536"},
			"a bare token below 0":  {func(w *wire) { w.handshake(0, "PLAIN"); w.nc.Write(binary.BigEndian.AppendUint32(nil, 1<<31)) }, "has -2147483648 bytes"},
			"HTTP":                  {func(w *wire) { w.nc.Write([]byte("GET / HTTP/1.1\r\n")) }, "an HTTP client connected"},
		} {
			w := g.knock()
			go func() { c.send(w) }()
			synctest.Wait()
			_, _ = io.Copy(io.Discard, w.nc)
			if said := g.said.String(); !strings.Contains(said, c.said) {
				t.Errorf("%s: the log does not have %q: %s", name, c.said, said)
			}
		}
		for name, begin := range map[string]func(w *wire){
			"says nothing":       func(*wire) {},
			"stops in a request": func(w *wire) { w.nc.Write(frame(metadataRequest(), 1)[:6]) },
			"stops after a step": func(w *wire) { w.handshake(1, "PLAIN") },
			"stops in a message": func(w *wire) { w.handshake(0, "PLAIN"); w.nc.Write([]byte{0, 0, 0, 9, 1}) },
			"sends again for ever": func(w *wire) {
				for range 9 {
					tells[*kmsg.ApiVersionsResponse](w, kmsg.NewPtrApiVersionsRequest())
					time.Sleep(time.Second)
				}
			},
		} {
			began := time.Now()
			w := g.knock()
			begin(w)
			_, _ = io.Copy(io.Discard, w.nc)
			if took := time.Since(began); took != kafka.LoginTimeout {
				t.Errorf("a client that %s is disconnected after %v, want %v", name, took, kafka.LoginTimeout)
			}
		}
		g.enter("ops", secret) // the others do not lock it out
	})
}

func TestMechanismsAreTold(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{}, false)
	w := g.knock()
	got := w.handshake(1, "GSSAPI")
	wantCode(t, "an unknown mechanism", got.ErrorCode, kerr.UnsupportedSaslMechanism)
	if !slices.Contains(got.SupportedMechanisms, "PLAIN") {
		t.Errorf("told are %v", got.SupportedMechanisms)
	}
	w.mustClose()

	w = g.knock()
	wantCode(t, "a message without a handshake", w.authenticate("\x00a\x00b").ErrorCode, kerr.IllegalSaslState)
	wantCode(t, "a handshake", w.handshake(1, "PLAIN").ErrorCode, nil)
	wantCode(t, "a handshake within a login", w.handshake(1, "PLAIN").ErrorCode, kerr.IllegalSaslState)

	w = g.dial() // a listener without SASL
	wantCode(t, "a handshake without SASL", w.handshake(1, "PLAIN").ErrorCode, kerr.IllegalSaslState)
	wantCode(t, "a message without SASL", w.authenticate("\x00a\x00b").ErrorCode, kerr.IllegalSaslState)
	tells[*kmsg.MetadataResponse](w, metadataRequest())
}

// Version 0 of SaslHandshake is followed by the mechanism's messages without requests around them.
func TestOldHandshakeIsFollowedByBareMessages(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{}, false)
	_, secret := g.key(everything("ops"))
	bare := func(message string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	}
	w := g.knock()
	wantCode(t, "handshake", w.handshake(0, "PLAIN").ErrorCode, nil)
	w.send(bare("\x00ops\x00" + secret))
	answer := make([]byte, 4)
	if _, err := io.ReadFull(w.nc, answer); err != nil || !bytes.Equal(answer, bare("")) {
		t.Fatalf("answered with %v: %v", answer, err)
	}
	tells[*kmsg.MetadataResponse](w, metadataRequest())

	w = g.knock()
	wantCode(t, "handshake", w.handshake(0, "PLAIN").ErrorCode, nil)
	w.send(bare("\x00ops\x00wrong"))
	if got := w.mustClose(); got != "" {
		t.Errorf("a wrong password is answered with %q", got)
	}
}

// counting counts how often API keys are read.
type counting struct {
	eventlog.Store
	lists atomic.Int64
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "apikey") {
		c.lists.Add(1)
	}
	return c.Store.List(ctx, prefix, after, limit)
}

// Whoever guesses passwords costs the store next to nothing, and holds up nobody.
func TestThousandBadLoginsASecondDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		g := guard(t, store, kafka.Config{}, true)
		defer g.stop()
		_, secret := g.key(everything("ops"))
		good := g.enter("ops", secret)
		store.lists.Store(0)
		const seconds, guessers = 3, 100 // each guesses ten times a second: it waits 100 ms for each answer
		var guessing sync.WaitGroup
		var guesses atomic.Int64
		for range guessers {
			guessing.Go(func() {
				for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); guesses.Add(1) {
					w := g.knock()
					w.logIn("ops", "weir_aaaaaaaa_"+strings.Repeat("a", 52))
					w.nc.Close()
				}
			})
		}
		for range seconds * 10 {
			began := time.Now()
			tells[*kmsg.MetadataResponse](good, metadataRequest())
			if took := time.Since(began); took > 0 {
				t.Errorf("a client that is logged in waits %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		guessing.Wait()
		if n := guesses.Load(); n < seconds*guessers*9 || n > seconds*guessers*11 {
			t.Errorf("%d guesses, want about %d", n, seconds*guessers*10)
		}
		if n := store.lists.Load(); n > seconds*5 {
			t.Errorf("%d guesses cost %d store calls, want %d at most", guesses.Load(), n, seconds*5)
		}
		if lines := strings.Count(g.said.String(), "could not log in"); lines == 0 || lines > seconds+1 {
			t.Errorf("%d guesses are %d lines in the log, want 1 to %d", guesses.Load(), lines, seconds+1)
		}
	})
}

func TestRevokedKeyEndsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, memory.New(), kafka.Config{}, true)
		defer g.stop()
		g.createTopic("t", 1, nil)
		key, secret := g.key(everything("ops"))
		idle, waiting := g.enter("ops", secret), g.enter("ops", secret)
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxWaitMillis = 60_000
		waiting.send(frame(fetch, 1))
		synctest.Wait()
		if _, err := g.keys.Revoke(t.Context(), key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		g.mustProduce("t", 0, sealed(t, batch.None, value("secret")))
		if got := waiting.mustClose(); got != "" {
			t.Errorf("a fetch that waited while its key was revoked is answered with %q", got)
		}
		idle.send(frame(produceRequest("t", 0, sealed(t, batch.None, value("late"))), 1))
		if got := idle.mustClose(); got != "" {
			t.Errorf("a request with a revoked key is answered with %q", got)
		}
		if end := listed(t, g.broker, "t"); end != 1 {
			t.Errorf("the topic has %d records, want 1: a revoked key wrote", end)
		}
	})
}

// listed is where a topic's first partition ends.
func listed(t *testing.T, b *broker, topic string) int64 {
	t.Helper()
	return ask[*kmsg.ListOffsetsResponse](b, listRequest(topic, 0, -1)).Topics[0].Partitions[0].Offset
}

// KIP-368: a client must log in again before its login ends, as the same user.
func TestLoginEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = time.Minute
		g := guard(t, memory.New(), kafka.Config{LoginLasts: lasts}, true)
		defer g.stop()
		_, secret := g.key(everything("ops"))
		_, others := g.key(everything("other"))
		again, lazy, changed := g.knock(), g.enter("ops", secret), g.enter("ops", secret)
		if got := again.logIn("ops", secret); got.SessionLifetimeMillis != lasts.Milliseconds() {
			t.Errorf("the client is told that its login lasts %d ms", got.SessionLifetimeMillis)
		}
		wantCode(t, "a login just after a login", again.handshake(1, "PLAIN").ErrorCode, kerr.IllegalSaslState)
		for range 3 {
			time.Sleep(lasts - time.Second)
			tells[*kmsg.MetadataResponse](again, metadataRequest())
			wantCode(t, "again", again.logIn("ops", secret).ErrorCode, nil)
			tells[*kmsg.MetadataResponse](again, metadataRequest())
		}
		lazy.send(frame(metadataRequest(), 1))
		if got := lazy.mustClose(); got != "" {
			t.Errorf("after its login ended, a client gets %q", got)
		}
		wantCode(t, "as another", changed.logIn("other", others).ErrorCode, kerr.SaslAuthenticationFailed)
		changed.mustClose()
	})
}

func TestLoginThatLastsIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, memory.New(), kafka.Config{}, true)
		defer g.stop()
		_, secret := g.key(everything("ops"))
		w := g.knock()
		if got := w.logIn("ops", secret); got.ErrorCode != 0 || got.SessionLifetimeMillis != 0 {
			t.Errorf("%+v", got)
		}
		time.Sleep(5 * time.Second)
		wantCode(t, "a second handshake", w.handshake(1, "PLAIN").ErrorCode, kerr.IllegalSaslState)
		wantCode(t, "a message", w.authenticate("\x00ops\x00"+secret).ErrorCode, kerr.IllegalSaslState)
		tells[*kmsg.MetadataResponse](w, metadataRequest())
	})
}
