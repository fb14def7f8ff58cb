package kafka_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// pool is the least that a server has for requests in flight.
const pool = 4 << 20

// silent is how long a client may hold up others and send nothing.
const silent = kafka.SilentMax + kafka.SilentMax/4

// large is a produce request with a batch of about so many bytes.
func large(t testing.TB, size int) *kmsg.ProduceRequest {
	return produceRequest("t", 0, sealed(t, batch.None, batch.Record{Value: make([]byte, size), Timestamp: 1}))
}

// crowd runs a test in fake time with a broker that has the least memory for requests, and takes
// them up to 3 MiB.
func crowd(t *testing.T, test func(t *testing.T, l *pipes, b *broker, s *troubled)) {
	synctest.Test(t, func(t *testing.T) {
		s, l := &troubled{Store: memory.New()}, newPipes()
		b := startAt(t, s, l, kafka.Config{}.With(kafka.Limits{InFlightBytes: 1, FrameBytes: 3 << 20}))
		b.createTopic("t", 1, map[string]string{"max.message.bytes": fmt.Sprint(3 << 20)})
		synctest.Wait() // until it serves: it keeps its cluster id first
		test(t, l, b, s)
		b.stop()
	})
}

func (p *pipes) patient(t testing.TB) *wire {
	w := p.dial(t)
	w.nc.SetDeadline(time.Time{})
	return w
}

func TestSilentClientsStopNobody(t *testing.T) {
	crowd(t, func(t *testing.T, l *pipes, _ *broker, _ *troubled) {
		var clients sync.WaitGroup
		for i := range 5 {
			w := l.patient(t)
			clients.Go(func() {
				defer w.nc.Close()
				raw := frame(large(t, 3<<20-1000), 1)
				_, _ = w.nc.Write(raw[:2<<20]) // the broker may stop reading, or hang up
				for i == 0 {                   // one goes on, a byte at a time
					time.Sleep(100 * time.Millisecond)
					if _, err := w.nc.Write(raw[:1]); err != nil {
						return
					}
				}
				_, _ = w.nc.Read(make([]byte, 1))
			})
		}
		synctest.Wait()
		began := time.Now()
		versions := kmsg.NewPtrApiVersionsRequest()
		other := l.patient(t)
		other.send(frame(versions, 1))
		other.receive(versions, 1)
		if took := time.Since(began); took > 0 {
			t.Errorf("ApiVersions waits %v", took)
		}
		req := large(t, 200<<10)
		other.send(frame(req, 2))
		wantCode(t, "produce", other.receive(req, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		if took := time.Since(began); took > 5*silent {
			t.Errorf("a produce request waits %v for clients that send nothing", took)
		}
		other.nc.Close()
		clients.Wait()
	})
}

// Requests that wait for others have come whole, and hold memory for as long as they like: for
// records, and for a member that does not rejoin.
func TestLargeRequestsThatWaitStopNobody(t *testing.T) {
	for name, waiting := range map[string]func(i int) kmsg.Request{
		"fetch": func(int) kmsg.Request {
			req := fetchRequest("t", 0, 0)
			req.MinBytes, req.MaxWaitMillis = 1, 1<<31-1
			one := req.Topics[0].Partitions[0]
			req.Topics[0].Partitions = nil
			for range 20_000 {
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
			}
			return req
		},
		"join": func(i int) kmsg.Request {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Version, req.Group, req.ProtocolType = 3, "g", "consumer" // which needs no member id first
			req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30*60*1000, 1<<31-1
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name = "range"
			if i > 0 { // the first is small, and does not rejoin
				p.Metadata = make([]byte, 900<<10)
			}
			req.Protocols = append(req.Protocols, p)
			return req
		},
	} {
		t.Run(name, func(t *testing.T) {
			crowd(t, func(t *testing.T, l *pipes, _ *broker, _ *troubled) {
				const clients = 6
				var answered sync.WaitGroup
				var conns []*wire
				for i := range clients {
					w, req := l.patient(t), waiting(i)
					conns = append(conns, w)
					answered.Go(func() {
						_, _ = w.nc.Write(frame(req, 1)) // the broker may hang up
						_, _ = w.tryReceive(req, 1)
					})
					synctest.Wait()
				}
				began := time.Now()
				other, req := l.patient(t), large(t, 200<<10)
				other.send(frame(req, 2))
				wantCode(t, "produce", other.receive(req, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
				if took := time.Since(began); took > clients*silent {
					t.Errorf("a produce request waits %v for requests that wait", took)
				}
				for _, w := range append(conns, other) {
					w.nc.Close()
				}
				answered.Wait()
			})
		})
	}
}

// What a connection sends behind a request that waits, or behind answers that it does not take,
// holds memory until its turn comes.
func TestRequestsBehindOthersStopNobody(t *testing.T) {
	for name, first := range map[string]func() kmsg.Request{
		"a fetch that waits": func() kmsg.Request {
			req := fetchRequest("t", 0, 1)
			req.MinBytes, req.MaxWaitMillis = 1, 1<<31-1
			return req
		},
		"records that are not taken":  func() kmsg.Request { return fetchRequest("t", 0, 0) },
		"an answer that is not taken": func() kmsg.Request { return kmsg.NewPtrApiVersionsRequest() },
	} {
		t.Run(name, func(t *testing.T) {
			crowd(t, func(t *testing.T, l *pipes, _ *broker, _ *troubled) {
				before, there := l.patient(t), large(t, 1<<20)
				before.send(frame(there, 1))
				before.receive(there, 1)
				before.nc.Close()
				const clients = 3
				var sending sync.WaitGroup
				var conns []*wire
				for range clients {
					w := l.patient(t)
					conns = append(conns, w)
					sending.Go(func() {
						_, _ = w.nc.Write(frame(first(), 1))
						_, _ = w.nc.Write(frame(large(t, 2<<20), 2)) // the broker may hang up
					})
					synctest.Wait()
				}
				began := time.Now()
				other, req := l.patient(t), large(t, 200<<10)
				other.send(frame(req, 2))
				wantCode(t, "produce", other.receive(req, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
				if took := time.Since(began); took > 3*clients*silent {
					t.Errorf("a produce request waits %v for requests behind others", took)
				}
				for _, w := range append(conns, other) {
					w.nc.Close()
				}
				sending.Wait()
			})
		})
	}
}

func TestAnAnnouncedLengthClaimsNothing(t *testing.T) {
	crowd(t, func(t *testing.T, l *pipes, _ *broker, _ *troubled) {
		var quiet []*wire
		announced := frame(large(t, 3<<20-1000), 1)[:8<<10]
		for range 30 { // together they announce 90 MiB
			w := l.patient(t)
			w.send(announced)
			quiet = append(quiet, w)
		}
		began := time.Now()
		req := large(t, 2<<20)
		w := l.patient(t)
		w.send(frame(req, 1))
		wantCode(t, "produce", w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
		if took := time.Since(began); took > 0 {
			t.Errorf("a produce request waits %v", took)
		}
		for _, w := range append(quiet, w) {
			w.nc.Close()
		}
	})
}

func TestBytesOfRequestsInFlightAreLimited(t *testing.T) {
	crowd(t, func(t *testing.T, l *pipes, _ *broker, s *troubled) {
		hold := make(chan struct{})
		s.set(func(s *troubled) { s.hold = hold })
		const clients, size = 20, 1 << 20
		var sent atomic.Int64
		var running sync.WaitGroup
		for range clients {
			w := l.patient(t)
			running.Go(func() {
				defer w.nc.Close()
				req := large(t, size)
				raw := frame(req, 1)
				for len(raw) > 0 {
					n, err := w.nc.Write(raw[:min(len(raw), 4<<10)])
					if err != nil {
						t.Error(err)
						return
					}
					sent.Add(int64(n))
					raw = raw[n:]
				}
				wantCode(t, "produce", w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
			})
		}
		synctest.Wait()
		if n, most := sent.Load(), int64(pool+size+clients*(8<<10)); n > most || n < pool/2 {
			t.Errorf("%d bytes of requests were taken while none could be carried out; the limit is %d", n, most)
		}
		close(hold)
		running.Wait()
	})
}

func TestRequestsThatNeedAllMemoryTakeTurns(t *testing.T) {
	crowd(t, func(t *testing.T, l *pipes, _ *broker, _ *troubled) {
		began := time.Now()
		var running sync.WaitGroup
		for range 5 {
			w := l.patient(t)
			running.Go(func() {
				defer w.nc.Close()
				req := large(t, 3<<20-1000)
				w.send(frame(req, 1))
				wantCode(t, "produce", w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
			})
		}
		running.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("they waited %v for each other", took)
		}
	})
}

// An answer that grows with the names in its request has half of the memory at most, so that others
// go on while its client does not take it.
func TestOneAnswerWithSettingsLeavesHalfOfTheMemoryToOthers(t *testing.T) {
	const names = 500
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.ValidateOnly = 7, true
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Version = 4
	for n := range names {
		c := kmsg.NewCreateTopicsRequestTopic()
		c.Topic, c.NumPartitions, c.ReplicationFactor = fmt.Sprint("new-", n), 1, 1
		create.Topics = append(create.Topics, c)
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, fmt.Sprint("old-", n)
		configs.Resources = append(configs.Resources, r)
	}
	for _, req := range []kmsg.Request{create, configs} {
		crowd(t, func(t *testing.T, l *pipes, b *broker, _ *troubled) {
			for n := range names {
				b.createTopic(fmt.Sprint("old-", n), 1, nil)
			}
			asks := l.patient(t)
			asks.send(frame(req, 1))
			synctest.Wait()
			began := time.Now()
			other, produce := l.patient(t), large(t, pool/2-names*100)
			other.send(frame(produce, 2))
			wantCode(t, "produce", other.receive(produce, 2).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil)
			if took := time.Since(began); took > 0 {
				t.Errorf("a produce request waits %v for one answer that is not taken", took)
			}
			first, last, said := int16(-1), int16(-1), ""
			switch answer := asks.receive(req, 1).(type) {
			case *kmsg.CreateTopicsResponse:
				end := answer.Topics[len(answer.Topics)-1]
				first, last, said = answer.Topics[0].ErrorCode, end.ErrorCode, text(end.ErrorMessage)
			case *kmsg.DescribeConfigsResponse:
				end := answer.Resources[len(answer.Resources)-1]
				first, last, said = answer.Resources[0].ErrorCode, end.ErrorCode, text(end.ErrorMessage)
			}
			wantCode(t, "the first", first, nil)
			wantCode(t, "the last", last, kerr.PolicyViolation)
			if !strings.Contains(said, fmt.Sprint(names)) || !strings.Contains(said, fmt.Sprint(pool/2)) {
				t.Errorf("%q says neither how many were asked for nor the limit", said)
			}
			asks.nc.Close()
			other.nc.Close()
		})
	}
}

func TestALargeFrameArrivesAsItWasSent(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"max.message.bytes": fmt.Sprint(8 << 20)})
	for _, size := range []int{1, 4 << 10, 64 << 10, 64<<10 + 1, 256 << 10, 1<<20 + 3, 5 << 20} {
		body := make([]byte, size)
		for i := 0; i+8 <= size; i += 8 {
			binary.BigEndian.PutUint64(body[i:], uint64(i))
		}
		// The CRC of the batch tells.
		b.mustProduce("t", 0, sealed(t, batch.None, batch.Record{Value: body, Timestamp: 1}))
	}
}
