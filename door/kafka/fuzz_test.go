package kafka

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// FuzzRequest decodes anything as any request: no panic, no more memory than the budget, and what
// the walk accepts kmsg can read, but for the contents of tags.
func FuzzRequest(f *testing.F) {
	byKey := make(map[int16]*api)
	for _, a := range apis() {
		a.prepare()
		byKey[a.key.Int16()] = &a
		for v := a.min; v <= a.max; v++ {
			h := hostileBody{flexible: a.shape(v).tagged}
			h.least(a.shape(v))
			f.Add(a.key.Int16(), v, h.b)
			f.Add(a.key.Int16(), v, hostile(a.shape(v), a.shape(v).tagged, true, 300, func(n int) int { return n - 1 }))
			f.Add(a.key.Int16(), v, hostile(a.shape(v), a.shape(v).tagged, false, 300, func(n int) int { return 0 }))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a := byKey[key]
		if a == nil || version < a.min || version > a.max {
			return
		}
		req := a.key.Request()
		req.SetVersion(version)
		w := wire{buf: body, flexible: req.IsFlexible(), budget: budgetFor(len(body))}
		w.walk(a.shape(version))
		if w.cost > budgetFor(len(body)) && w.err == nil {
			t.Fatalf("cost %d of %d bytes goes through", w.cost, len(body))
		}
		if w.err != nil {
			return
		}
		if err := req.ReadFrom(body); err != nil {
			if w.flexible {
				return // the walk takes tags whole. kmsg knows a few, and refuses those that hold something else
			}
			t.Fatalf("the walk accepts what kmsg does not: %v", err)
		}
		// What was read is what was walked over: encoded again it takes as many bytes, unless tags
		// were sent in another form.
		if again := req.AppendTo(nil); len(again) != len(body)-len(w.buf) && !w.flexible {
			t.Fatalf("%d bytes were walked over, kmsg read %d", len(body)-len(w.buf), len(again))
		}
	})
}

// FuzzFrame sends anything to a connection, in pieces of any size: no panic, no hang, answers in
// proportion to what was sent, the connection ends when the client is gone, and gives back all it
// held.
func FuzzFrame(f *testing.F) {
	raw, err := batch.Seal([]batch.Record{{Key: []byte("k"), Value: []byte("v")}}, batch.None)
	if err != nil {
		f.Fatal(err)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks, produce.TimeoutMillis = 9, -1, 100
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = raw
	rt.Partitions = append(rt.Partitions, rp)
	produce.Topics = append(produce.Topics, rt)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 12
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = "t"
	ft.Partitions = append(ft.Partitions, kmsg.NewFetchRequestTopicPartition())
	fetch.Topics = append(fetch.Topics, ft)
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	versions := kmsg.NewPtrApiVersionsRequest()
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz"))
	var all []byte
	for i, req := range []kmsg.Request{versions, metadata, produce, fetch} {
		one := format.AppendRequest(nil, req, int32(i))
		all = append(all, one...)
		f.Add(one, uint16(0))
		f.Add(one, uint16(1))
		f.Add(one[:len(one)-1], uint16(0))
	}
	f.Add(all, uint16(0))
	f.Add(all, uint16(7))
	for _, a := range apis() {
		for depth := range mentionDepth {
			again := a.key.Request()
			if (Mentions{Name: "t"}).Fill(again, depth, 100) {
				again.SetVersion(a.max)
				f.Add(format.AppendRequest(nil, again, 1), uint16(100*depth))
			}
		}
	}
	for _, s := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00", "\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x7f\xff\xff\xff\x00\x00\x00\x09", "\x00\x00\x00\x08\x00\x12\x00\x00\x00\x00\x00\x00"} {
		f.Add([]byte(s), uint16(0))
	}

	for _, version := range []int16{0, 1} { // a login
		begin, next := kmsg.NewPtrSASLHandshakeRequest(), kmsg.NewPtrSASLAuthenticateRequest()
		begin.Version, begin.Mechanism, next.SASLAuthBytes = version, "PLAIN", []byte("\x00user\x00password")
		login := format.AppendRequest(nil, begin, 1)
		if version == 0 {
			login = append(append(login, 0, 0, 0, byte(len(next.SASLAuthBytes))), next.SASLAuthBytes...)
		} else {
			login = format.AppendRequest(login, next, 2)
		}
		f.Add(login, uint16(0))
	}

	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	log, err := eventlog.Open(f.Context(), memory.New(), eventlog.Config{Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	groups := group.New(log, group.Config{Logger: quiet})
	running.Go(func() { _ = log.Run(ctx) })
	running.Go(func() { _ = groups.Run(ctx) })
	f.Cleanup(func() { stop(); running.Wait() })
	if _, err := log.CreateTopic(f.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1}); err != nil {
		f.Fatal(err)
	}
	s := New(log, groups, Config{Logger: quiet, NoAutoCreate: true}.With(Limits{FrameBytes: 1 << 20}))
	serve := func(t *testing.T, at Listener, sent []byte, piece uint16) {
		client, server := net.Pipe()
		c, served := newConn(s, at, server), make(chan struct{})
		go func() {
			c.serve(ctx, ctx)
			close(served)
		}()
		answered := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, client)
			answered <- n
		}()
		client.SetWriteDeadline(time.Now().Add(10 * time.Second))
		const piecesMax = 256
		each := max(int(piece), len(sent)/piecesMax+1)
		if piece == 0 {
			each = len(sent) + 1
		}
		for part := range slices.Chunk(sent, each) {
			if _, err := client.Write(part); err != nil {
				break // the server may hang up in the middle
			}
		}
		client.Close()
		select {
		case <-served:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection is still served")
		}
		if n, limit := <-answered, int64(answerEach*len(sent)+1<<20); n > limit {
			t.Fatalf("%d bytes are answered with %d, the limit is %d", len(sent), n, limit)
		}
		if !s.frames.Idle() || !s.fetches.Idle() {
			t.Fatal("the connection took room with it")
		}
		if at.SASL && c.who.Load() != nil {
			t.Fatal("a client without a key is logged in")
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint16) {
		serve(t, Listener{}, sent, piece)
		serve(t, Listener{SASL: true}, sent, piece)
	})
}
