package kafka_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
)

// seen is an observer that a test can ask.
type seen struct {
	mu       sync.Mutex // guards all
	refused  map[string]int
	paused   map[string]time.Duration // by quota
	answered []kafka.Exchange
	open     int
}

func (s *seen) Connected(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += change
}

func (s *seen) Answered(e kafka.Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = append(s.answered, e)
}

func (s *seen) Refused(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = make(map[string]int)
	}
	s.refused[reason]++
}

func (s *seen) Throttled(quota string, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(map[string]time.Duration)
	}
	s.paused[quota] += pause
}

func (s *seen) times(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[reason]
}

// bystander is a connection that must not notice what happens on others.
func (b *broker) bystander() (unharmed func()) {
	b.t.Helper()
	w := b.dial()
	n := int32(0)
	unharmed = func() {
		b.t.Helper()
		n++
		req := kmsg.NewPtrApiVersionsRequest()
		w.send(frame(req, n))
		w.receive(req, n)
	}
	unharmed()
	return unharmed
}

func TestOtherProtocolsAreRecognised(t *testing.T) {
	observer := new(seen)
	b := start(t, kafka.Config{HTTPAddr: "127.0.0.1:8080", Observer: observer})
	unharmed := b.bystander()
	for _, c := range []struct{ send, answer, reason, says string }{
		{"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "http", "HTTP client"},
		{"POST /topics HTTP/1.1\r\n\r\n", "HTTP is on 127.0.0.1:8080.", "http", "HTTP client"},
		{"PUT / HTTP/1.1\r\n\r\n", "This is the Kafka port.", "http", "HTTP client"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400", "http", "HTTP client"},
		{"SSH-2.0-OpenSSH_9.9\r\n", "This is the Kafka port.", "ssh", "SSH client"},
		{"\x16\x03\x01\x00\xa5\x01\x00", "\x15\x03\x01\x00\x02\x02\x46", "tls", "security.protocol=PLAINTEXT in"},
		{"\x15\x03\x03\x00\x02\x02\x50", "\x15\x03\x01\x00\x02\x02\x46", "tls", "security.protocol=PLAINTEXT in"},
	} {
		w := b.dial()
		before := observer.times(c.reason)
		w.send([]byte(c.send))
		if got := w.mustClose(); !strings.Contains(got, c.answer) {
			t.Errorf("%q is answered %q, which lacks %q", c.send, got, c.answer)
		}
		if observer.times(c.reason) != before+1 {
			t.Errorf("%q is not counted as %q", c.send, c.reason)
		}
		if !strings.Contains(b.said.String(), c.says) {
			t.Errorf("%q: the log does not say %q:\n%s", c.send, c.says, b.said)
		}
	}
	unharmed()
}

func TestBadLengthsCloseTheConnectionAndCostNothing(t *testing.T) {
	observer := new(seen)
	b := start(t, kafka.Config{Observer: observer}.With(kafka.Limits{FrameBytes: 8 << 20}))
	unharmed := b.bystander()
	lengths := []int64{-1 << 31, -1, 0, 1, 2, 3, 4, 5, 6, 7, kafka.SmallFrameMax + 1, 8<<20 + 1, 1<<31 - 1}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, n := range lengths {
		w := b.dial()
		head := binary.BigEndian.AppendUint32(nil, uint32(n))
		key := uint16(kmsg.Metadata)
		if n > kafka.SmallFrameMax+1 {
			key = uint16(kmsg.Produce)
		}
		head = binary.BigEndian.AppendUint16(head, key)
		head = append(head, 0, 9, 0, 0, 0, 1)
		w.send(head)
		w.mustClose()
	}
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > 1<<20 {
		t.Errorf("%d bad lengths cost %d bytes", len(lengths), cost)
	}
	if n := observer.times("bad_length") + observer.times("too_large"); n != len(lengths) {
		t.Errorf("%d of %d were counted", n, len(lengths))
	}
	for _, says := range []string{"frame length is -1;", "frame length is 7;", "2147483647 bytes; the limit is 8388608", fmt.Sprintf("%d bytes; the limit is %d", kafka.SmallFrameMax+1, kafka.SmallFrameMax)} {
		if !strings.Contains(b.said.String(), says) {
			t.Errorf("the log does not say %q:\n%s", says, b.said)
		}
	}
	unharmed()
}

func TestSlowFramesAndIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := new(seen)
		l := newPipes()
		b := startAt(t, memory.New(), l, kafka.Config{Observer: observer}.With(kafka.Limits{InFlightBytes: 1}))
		slow := l.dial(t)
		began := time.Now()
		gone := make(chan time.Duration)
		go func() { // one byte a second
			slow.send([]byte{0, 0, 1, 0, 0, byte(kmsg.Metadata), 0, 9, 0, 0, 0, 1})
			for range 100 {
				time.Sleep(time.Second)
				if _, err := slow.nc.Write([]byte{0}); err != nil {
					break
				}
			}
			gone <- time.Since(began)
		}()
		headOnly := l.dial(t)
		headOnly.send(append(binary.BigEndian.AppendUint32(nil, 100<<20), 0, 0, 0, 9, 0, 0, 0, 1)) // a large produce request, and then nothing
		idle := l.dial(t)

		synctest.Wait()
		req := kmsg.NewPtrApiVersionsRequest()
		for range 10 { // others are served meanwhile, though every byte of room would be claimed by the large one
			time.Sleep(time.Second)
			other := l.dial(t)
			other.send(frame(req, 3))
			other.receive(req, 3)
			other.nc.Close()
		}
		if took := <-gone; took > 32*time.Second {
			t.Errorf("the slow client is closed after %v", took)
		}
		headOnly.mustClose()
		if took := time.Since(began); took > 32*time.Second {
			t.Errorf("the silent client is closed after %v", took)
		}
		idle.mustClose()
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("the idle client is closed after %v", took)
		}
		if observer.times("slow_frame") != 2 || observer.times("idle") != 1 {
			t.Errorf("refused %v", observer.refused)
		}
		b.stop()
	})
}

func TestConnectionsAreLimited(t *testing.T) {
	observer := new(seen)
	b := start(t, kafka.Config{Observer: observer}.With(kafka.Limits{Conns: 3, ConnsPerIP: 2}))
	req := kmsg.NewPtrApiVersionsRequest()
	serves := func(w *wire) {
		t.Helper()
		w.send(frame(req, 1))
		w.receive(req, 1)
	}
	first, second := b.dial(), b.dial()
	serves(first)
	serves(second)
	third := b.dial()
	third.mustClose()
	if observer.times("connections_per_ip") != 1 {
		t.Errorf("refused %v", observer.refused)
	}
	serves(first)
	other := b.dialFrom("127.0.0.2")
	serves(other)
	b.dialFrom("127.0.0.3").mustClose()
	if observer.times("connections") != 1 {
		t.Errorf("refused %v", observer.refused)
	}
}

func TestWhatIsNotServedIsRefused(t *testing.T) {
	b := start(t, kafka.Config{})
	unharmed := b.bystander()
	for _, head := range []struct {
		key, version int16
		says         string
	}{
		{9999, 0, "API key 9999"},
		{-1, 0, "API key -1"},
		{int16(kmsg.EndTxn), 0, "EndTxn"},
		{int16(kmsg.ConsumerGroupHeartbeat), 0, "ConsumerGroupHeartbeat"},
		{int16(kmsg.Metadata), 99, "Metadata version 99 is not supported; weir supports versions 0 to 13"},
		{int16(kmsg.Produce), 2, "Produce version 2 is not supported; weir supports versions 3 to 13"},
		{int16(kmsg.Fetch), -1, "Fetch version -1"},
	} {
		w := b.dial()
		raw := []byte{0, 0, 0, 12}
		raw = binary.BigEndian.AppendUint16(raw, uint16(head.key))
		raw = binary.BigEndian.AppendUint16(raw, uint16(head.version))
		w.send(append(raw, 0, 0, 0, 1, 0, 0, 0, 0))
		w.mustClose()
		if !strings.Contains(b.said.String(), head.says) {
			t.Errorf("the log does not say %q:\n%s", head.says, b.said)
		}
	}
	unharmed()
}

func TestApiVersionsFromTheFutureIsAnsweredInVersion0(t *testing.T) {
	b := start(t, kafka.Config{})
	w := b.dial()
	raw := []byte{0, 0, 0, 20, 0, byte(kmsg.ApiVersions), 0, 99, 0, 0, 0, 5}
	w.send(append(raw, "it is anything"[:12]...))
	v0 := kmsg.NewPtrApiVersionsRequest()
	resp := w.receive(v0, 5).(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode != 35 {
		t.Errorf("error %d", resp.ErrorCode)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == int16(kmsg.ApiVersions) && k.MaxVersion == 4 {
			v0.SetVersion(4)
			v0.ClientSoftwareName, v0.ClientSoftwareVersion = "test", "1"
			w.send(frame(v0, 6)) // the connection goes on, at the version told
			if resp := w.receive(v0, 6).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 || len(resp.ApiKeys) < 15 {
				t.Errorf("version 4: error %d, %d keys", resp.ErrorCode, len(resp.ApiKeys))
			}
			return
		}
	}
	t.Errorf("the range of ApiVersions is missing from %v", resp.ApiKeys)
}

func TestAClientThatReadsNoAnswersIsNotReadEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 10_000
		l := newPipes()
		b := startAt(t, memory.New(), l, kafka.Config{})
		w := l.dial(t)
		w.nc.SetDeadline(time.Time{})
		req := kmsg.NewPtrApiVersionsRequest()
		taken := 0
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := range int32(requests) {
				w.nc.Write(frame(req, i))
				taken++
			}
		})
		synctest.Wait() // all that can be read was read
		perRead := 4 << 10 / len(frame(req, 0))
		if most := 64 + 3 + perRead; taken > most {
			t.Errorf("%d requests were taken without an answer read; expected at most %d", taken, most)
		}
		for i := range int32(requests) {
			w.receive(req, i)
		}
		sender.Wait()
		w.nc.Close()
		b.stop()
	})
}

func TestClientIdsAreShownEscaped(t *testing.T) {
	b := start(t, kafka.Config{})
	id := "evil\nid\x1b[31m\xff\""
	raw := []byte{0, 0, 0, 0, 0, byte(kmsg.Metadata), 0, 8, 0, 0, 0, 1}
	raw = binary.BigEndian.AppendUint16(raw, uint16(len(id)))
	raw = append(raw, id...)
	raw = append(raw, 0x7f, 0xff, 0xff, 0xff)
	binary.BigEndian.PutUint32(raw, uint32(len(raw)-4))
	w := b.dial()
	w.send(raw)
	w.mustClose()
	logged := b.said.String()
	if !strings.Contains(logged, "evil") || strings.Contains(logged, "\x1b") || strings.Contains(logged, "\xff") || strings.Count(logged, "\n") != 1 {
		t.Errorf("logged %q", logged)
	}
}

// pipes is a listener whose connections are pipes within the process, for fake time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t testing.TB) *wire {
	here, there := net.Pipe()
	p.conns <- there
	t.Cleanup(func() { here.Close() })
	return &wire{t, here}
}
