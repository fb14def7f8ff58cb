package kafka_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	registry "github.com/weir-log/weir/use/broker"
	"github.com/weir-log/weir/use/group"
)

// broker is a server on a store in memory, for one test.
type broker struct {
	t    testing.TB
	log  *eventlog.Log
	addr string
	here *pipes // instead of addr, in fake time
	said *said  // what it logged

	brokers *registry.Registry // nil: it is alone
	groups  *group.Coordinator

	stop func()
}

// said is a log that a test can read.
type said struct {
	mu   sync.Mutex // guards text and more
	text strings.Builder
	more chan struct{} // closed at the next line; nil: nobody waits
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
	return s.text.Write(b)
}

// await waits until the log has a text so often. A client may learn of a refusal before it is
// logged, because TLS sends an alert.
func (s *said) await(t testing.TB, text string, times int) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		found := strings.Count(s.text.String(), text)
		if s.more == nil {
			s.more = make(chan struct{})
		}
		more := s.more
		s.mu.Unlock()
		if found == times {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("the log has %q %d times, want %d: %s", text, found, times, s)
		}
	}
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func start(t testing.TB, cfg kafka.Config) *broker { return startOn(t, memory.New(), cfg) }

func startOn(t testing.TB, store eventlog.Store, cfg kafka.Config) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startAt(t, store, l, cfg)
}

func startAt(t testing.TB, store eventlog.Store, l net.Listener, cfg kafka.Config) *broker {
	t.Helper()
	return startListening(t, store, cfg, kafka.Listener{Listener: l})
}

// startListening starts a broker with several listeners; its address is the first one's.
func startListening(t testing.TB, store eventlog.Store, cfg kafka.Config, at ...kafka.Listener) *broker {
	t.Helper()
	return startJoined(t, store, cfg, nil, at...)
}

// startJoined starts a broker that the others on its store know, unless as is nil.
func startJoined(t testing.TB, store eventlog.Store, cfg kafka.Config, as *registry.Config, at ...kafka.Listener) *broker {
	t.Helper()
	return startGrouped(t, store, cfg, group.Config{}, as, at...)
}

// startGrouped starts a broker whose groups have other limits.
func startGrouped(t testing.TB, store eventlog.Store, cfg kafka.Config, of group.Config, as *registry.Config, at ...kafka.Listener) *broker {
	t.Helper()
	var err error
	b := &broker{t: t, addr: at[0].Addr().String(), said: new(said)}
	b.here, _ = at[0].Listener.(*pipes)
	cfg.Logger = slog.New(slog.NewTextHandler(b.said, nil))
	ctx, cancel := context.WithCancel(context.Background())
	if b.log, err = eventlog.Open(ctx, store, eventlog.Config{Logger: cfg.Logger}); err != nil {
		t.Fatal(err)
	}
	logCtx, stopLog := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.log.Run(logCtx); err != nil {
			t.Error(err)
		}
	})
	of.InitialDelay, of.ConsumerHeartbeat, of.Logger = -1, 200*time.Millisecond, cfg.Logger
	groups := group.New(b.log, of)
	b.groups = groups
	running.Go(func() {
		if err := groups.Run(logCtx); err != nil {
			t.Error(err)
		}
	})
	if as != nil {
		as.Logger = cfg.Logger
		cfg.Brokers = registry.New(b.log, *as)
		if err := cfg.Brokers.Join(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = cfg.Brokers.Run(logCtx) }) // it returns nil
	}
	b.brokers = cfg.Brokers
	served := make(chan error, 1)
	go func() { served <- kafka.New(b.log, groups, cfg).Serve(ctx, at...) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve returns %v", err)
		}
		stopLog()
		running.Wait()
	})
	t.Cleanup(b.stop)
	return b
}

// client is a franz-go client of the broker.
func (b *broker) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr), kgo.AllowAutoTopicCreation()}, opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cl.Close)
	return cl
}

// wire is a client that sends what it likes.
type wire struct {
	t  testing.TB
	nc net.Conn
}

func (b *broker) dial() *wire { return b.dialFrom("127.0.0.1") }

// dialFrom connects from one of this machine's addresses.
func (b *broker) dialFrom(ip string) *wire {
	b.t.Helper()
	if b.here != nil {
		return b.here.dial(b.t)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	nc, err := dialer.Dial("tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second)) // a test that hangs fails
	return &wire{b.t, nc}
}

func (w *wire) send(raw []byte) {
	w.t.Helper()
	if _, err := w.nc.Write(raw); err != nil {
		w.t.Fatal(err)
	}
}

func frame(req kmsg.Request, correlation int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, correlation)
}

// receive reads the answer to a request.
func (w *wire) receive(req kmsg.Request, correlation int32) kmsg.Response {
	w.t.Helper()
	resp, err := w.tryReceive(req, correlation)
	if err != nil {
		w.t.Fatalf("answer to %T: %v", req, err)
	}
	return resp
}

func (w *wire) tryReceive(req kmsg.Request, correlation int32) (kmsg.Response, error) {
	w.t.Helper()
	head := make([]byte, 8)
	if _, err := io.ReadFull(w.nc, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(w.nc, body); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation {
		w.t.Fatalf("answer %d to request %d", got, correlation)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// ask sends a request on a new connection, at its newest version unless one is set, and reads the
// answer.
func ask[Resp kmsg.Response](b *broker, req kmsg.Request) Resp {
	b.t.Helper()
	w := b.dial()
	defer w.nc.Close()
	w.send(frame(req, 7))
	return w.receive(req, 7).(Resp)
}

// mustClose sees that the broker closes the connection, and returns what it said before.
func (w *wire) mustClose() string {
	w.t.Helper()
	rest, err := io.ReadAll(w.nc)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		w.t.Fatalf("the broker does not close the connection: %v", err)
	}
	return string(rest)
}
