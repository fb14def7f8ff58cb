package kafka_test

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// metered is a broker with quotas, in fake time.
type metered struct {
	*broker
	store  *troubled
	pipes  *pipes
	quotas *quota.Quotas
	seen   *seen
}

func meter(t *testing.T, test func(t *testing.T, m *metered)) {
	synctest.Test(t, func(t *testing.T) {
		m := &metered{store: &troubled{Store: memory.New()}, pipes: newPipes(), seen: new(seen)}
		m.quotas = quota.New(everystore.Direct(m.store), slog.New(slog.DiscardHandler))
		m.broker = startAt(t, m.store, m.pipes, kafka.Config{Quotas: m.quotas, Observer: m.seen})
		m.createTopic("t", 1, nil)
		synctest.Wait()
		test(t, m)
		m.stop()
	})
}

// set stores a quota as another process would, and waits until the broker knows it.
func (m *metered) set(e quota.Entity, k quota.Kind, limit float64) {
	m.t.Helper()
	quotas := quota.New(everystore.Direct(m.store), slog.New(slog.DiscardHandler))
	if err := quotas.Change(m.t.Context(), []quota.Change{{Entity: e, Set: map[quota.Kind]float64{k: limit}}})[0]; err != nil {
		m.t.Fatal(err)
	}
	w := m.pipes.patient(m.t) // while no client is connected, quotas are not read
	time.Sleep(2 * time.Second)
	synctest.Wait()
	w.nc.Close()
	synctest.Wait()
}

// anonymous is who a client is that has not logged in.
var anonymous = quota.Entity{User: quota.Named("ANONYMOUS")}

// sized is a produce request of so many bytes, its length included.
func sized(t *testing.T, bytes int) *kmsg.ProduceRequest {
	t.Helper()
	empty := len(frame(produceRequest("t", 0, sealed(t, batch.None, value(strings.Repeat("x", 1000)))), 1)) // lengths have the same size
	req := produceRequest("t", 0, sealed(t, batch.None, value(strings.Repeat("x", 1000+bytes-empty))))
	if n := len(frame(req, 1)); n < bytes-3 || n > bytes+3 {
		t.Fatalf("the request has %d bytes, not %d", n, bytes)
	}
	return req
}

// KIP-219: the answer comes at once and says how long the client must pause; until then no request
// of the connection is executed.
func TestProducerOverItsQuotaIsThrottled(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ProducerByteRate, 1000)
		began := time.Now()
		w := m.pipes.patient(t)
		defer w.nc.Close()
		var sender sync.WaitGroup
		sender.Go(func() { // without a pause
			w.send(frame(sized(t, 9_000), 1))
			w.send(frame(sized(t, 4_000), 2))
			w.send(frame(sized(t, 1_000), 3))
			w.send(frame(fetchRequest("t", 0, 0), 4))
		})
		for i, want := range []struct {
			at       time.Duration // of the answer
			throttle int32         // about so many milliseconds
		}{
			{0, 0},
			{0, 3000},               // 13,000 bytes need 13 s, of which 10 are over
			{3 * time.Second, 4000}, // 14,000
			{7 * time.Second, 4000}, // the fetch is not bounded, but comes after the pause
		} {
			if i == 3 {
				got := w.receive(fetchRequest("t", 0, 0), 4).(*kmsg.FetchResponse)
				if got.ThrottleMillis != 0 || len(got.Topics) != 1 || len(got.Topics[0].Partitions[0].RecordBatches) < 10_000 {
					t.Errorf("the fetch is throttled for %d ms, and gets %+v", got.ThrottleMillis, got.Topics)
				}
			} else {
				got := w.receive(sized(t, 1000), int32(i+1)).(*kmsg.ProduceResponse)
				wantCode(t, "produce", got.Topics[0].Partitions[0].ErrorCode, nil)
				if diff := got.ThrottleMillis - want.throttle; diff < -10 || diff > 10 {
					t.Errorf("request %d is throttled for %d ms, want about %d", i+1, got.ThrottleMillis, want.throttle)
				}
			}
			if at := time.Since(began).Round(100 * time.Millisecond); at != want.at {
				t.Errorf("answer %d comes after %v, want %v", i+1, at, want.at)
			}
		}
		sender.Wait()
		if got := m.seen.paused[string(quota.ProducerByteRate)].Round(100 * time.Millisecond); got != 7*time.Second {
			t.Errorf("the observer was told of %v", got)
		}
		if end := m.end("t", 0); end != 3 {
			t.Errorf("%d records were appended, not 3", end)
		}
	})
}

// The pause begins when the request was read: while the store is slow, no further request is passed
// to the log.
func TestProducerIsThrottledWhileTheStoreIsSlow(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ProducerByteRate, 1000)
		hold := make(chan struct{})
		m.store.set(func(s *troubled) { s.hold = hold })
		w := m.pipes.patient(t)
		defer w.nc.Close()
		var sender sync.WaitGroup
		sender.Go(func() {
			w.send(frame(sized(t, 15_000), 1))
			w.send(frame(sized(t, 1_000), 2))
		})
		time.Sleep(4 * time.Second)
		close(hold)
		w.receive(sized(t, 1000), 1)
		time.Sleep(500 * time.Millisecond)
		if end := m.end("t", 0); end != 1 {
			t.Errorf("half a second before the pause of the first request is over, %d records are appended", end)
		}
		w.receive(sized(t, 1000), 2)
		sender.Wait()
	})
}

// Requests that were read while a fetch waited are executed after the pause that its answer brings.
func TestRequestsThatWereReadAheadWaitForThePause(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ConsumerByteRate, 1000)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		fetch, all := fetchRequest("t", 0, 0), kmsg.NewPtrMetadataRequest()
		fetch.MaxWaitMillis = 60_000
		w.send(frame(fetch, 1))
		synctest.Wait()
		w.send(frame(sized(t, 1_000), 2))
		w.send(frame(all, 3))
		synctest.Wait()
		topic, err := m.log.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.log.Publish(t.Context(), topic.Partitions[0], value(strings.Repeat("x", 20_000))); err != nil {
			t.Fatal(err)
		}
		w.receive(fetch, 1)
		began := time.Now()
		time.Sleep(9 * time.Second)
		if end := m.end("t", 0); end != 1 {
			t.Errorf("before the pause is over, %d records are appended", end)
		}
		w.receive(sized(t, 1_000), 2)
		w.receive(all, 3)
		if took := time.Since(began).Round(time.Second); took != 10*time.Second {
			t.Errorf("the requests are answered after %v", took)
		}
	})
}

// A connection is muted, not the client: others go on, unless their requests exceed a quota, too.
func TestQuotaOfOneClientThrottlesNoOther(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(quota.Entity{ClientID: quota.Named("test")}, quota.ProducerByteRate, 1) // frame has this client id
		w, other := m.pipes.patient(t), m.pipes.patient(t)
		defer w.nc.Close()
		defer other.nc.Close()
		if got := tells[*kmsg.ProduceResponse](w, sized(t, 2_000)); got.ThrottleMillis < 1_900_000 {
			t.Errorf("the client is throttled for %d ms", got.ThrottleMillis)
		}
		req := sized(t, 2_000)
		began := time.Now()
		other.send(kmsg.NewRequestFormatter(kmsg.FormatterClientID("other")).AppendRequest(nil, req, 5))
		if got := other.receive(req, 5).(*kmsg.ProduceResponse); got.ThrottleMillis != 0 {
			t.Errorf("another client is throttled for %d ms", got.ThrottleMillis)
		}
		tells[*kmsg.MetadataResponse](other, kmsg.NewPtrMetadataRequest()) // the client id is that of the throttled one, the connection is another one
		if took := time.Since(began); took > 0 {
			t.Errorf("other connections wait for %v", took)
		}
	})
}

// A produce request without an answer is throttled, too: its connection is muted.
func TestProducerWithoutAnswersIsThrottled(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ProducerByteRate, 1000)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		began := time.Now()
		req := sized(t, 15_000)
		req.Acks = 0
		w.send(frame(req, 1))
		tells[*kmsg.MetadataResponse](w, kmsg.NewPtrMetadataRequest())
		if took := time.Since(began).Round(100 * time.Millisecond); took != 5*time.Second {
			t.Errorf("the next request is answered after %v", took)
		}
	})
}

// A consumer that is over its quota gets an answer without records (KIP-219), and later all records
// in order.
func TestConsumerOverItsQuotaIsThrottled(t *testing.T) {
	for _, version := range []int16{4, 12, 18} {
		meter(t, func(t *testing.T, m *metered) {
			const batches, size = 60, 1_000
			for range batches {
				m.mustProduce("t", 0, sealed(t, batch.None, value(strings.Repeat("x", size))))
			}
			m.set(anonymous, quota.ConsumerByteRate, size)
			w := m.pipes.patient(t)
			defer w.nc.Close()
			topic, err := m.log.Topic(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			began, offset, empty := time.Now(), int64(0), 0
			for offset < batches {
				req := fetchRequest("t", 0, offset)
				req.Version, req.Topics[0].TopicID, req.MaxWaitMillis = version, topic.ID, 500
				got := tells[*kmsg.FetchResponse](w, req)
				if len(got.Topics) == 0 {
					empty++
					if got.ThrottleMillis <= 0 || got.ErrorCode != 0 {
						t.Fatalf("an empty answer has the code %d and the throttle time %d", got.ErrorCode, got.ThrottleMillis)
					}
					continue // without a pause: the broker makes it
				}
				for raw, err := range batch.Split(got.Topics[0].Partitions[0].RecordBatches) {
					if err != nil || int64(binary.BigEndian.Uint64(raw)) != offset {
						t.Fatalf("the next batch is at offset %d, not %d: %v", binary.BigEndian.Uint64(raw), offset, err)
					}
					offset++
				}
			}
			if took := time.Since(began); empty == 0 || took < 45*time.Second || took > 75*time.Second {
				t.Errorf("version %d: 60,000 bytes at 1,000 bytes a second took %v, with %d empty answers", version, took, empty)
			}
		})
	}
}

// A batch that is larger than the quota of all windows is delivered, and paid for by a pause.
// Otherwise its consumer would never get on.
func TestBatchLargerThanTheQuotaIsDelivered(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		for range 2 {
			m.mustProduce("t", 0, sealed(t, batch.None, value(strings.Repeat("x", 50_000))))
		}
		m.set(anonymous, quota.ConsumerByteRate, 1000)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		began := time.Now()
		for offset := range int64(2) {
			got := tells[*kmsg.FetchResponse](w, fetchRequest("t", 0, offset))
			if len(got.Topics) == 0 || len(got.Topics[0].Partitions[0].RecordBatches) < 50_000 || got.ThrottleMillis < 39_000 || got.ThrottleMillis > 41_000 {
				t.Errorf("the answer has %d topics and the throttle time %d", len(got.Topics), got.ThrottleMillis)
			}
		}
		if took := time.Since(began).Round(time.Second); took != 40*time.Second {
			t.Errorf("the second batch comes after %v", took)
		}
	})
}

// Time is work only while the server does something: a fetch that waits for records does nothing.
// In fake time, nothing but waits takes time.
func TestWaitingIsNoWork(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.RequestPercentage, 0.001)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxWaitMillis = 60_000
		if got := tells[*kmsg.FetchResponse](w, fetch); got.ThrottleMillis > 0 {
			t.Errorf("a fetch that waited is throttled for %d ms", got.ThrottleMillis)
		}
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = 3, "g", 30_000, 30_000, "consumer"
		join.Protocols = append(join.Protocols, kmsg.JoinGroupRequestProtocol{Name: "range"})
		first := tells[*kmsg.JoinGroupResponse](w, join)
		second := m.pipes.patient(t)
		defer second.nc.Close()
		began := time.Now()
		got := tells[*kmsg.JoinGroupResponse](second, join) // waits until the first member's time is over
		if wantCode(t, "join", got.ErrorCode, nil); got.ThrottleMillis > 0 || time.Since(began) < time.Second || first.ErrorCode != 0 {
			t.Errorf("a join that waited %v is throttled for %d ms", time.Since(began), got.ThrottleMillis)
		}
		hold := make(chan struct{})
		m.store.set(func(s *troubled) { s.hold = hold })
		beat := m.member(t, "one").full()
		beat.Group = "h"
		w.send(frame(beat, 1))
		time.Sleep(time.Second)
		m.store.set(func(s *troubled) { s.hold = nil })
		close(hold)
		if got := w.receive(beat, 1).(*kmsg.ConsumerGroupHeartbeatResponse); got.ErrorCode != 0 || got.ThrottleMillis > 0 {
			t.Errorf("a heartbeat that waited for the store is answered with %+v", got)
		}
	})
}

// In real time, every request takes some.
func TestRequestTimeIsThrottled(t *testing.T) {
	store := memory.New()
	quotas := quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	if err := quotas.Change(t.Context(), []quota.Change{{Entity: anonymous, Set: map[quota.Kind]float64{quota.RequestPercentage: 1e-9}}})[0]; err != nil {
		t.Fatal(err)
	}
	b := startOn(t, store, kafka.Config{Quotas: quotas})
	b.createTopic("t", 1, nil)
	described := &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{"g"}}
	for _, req := range []kmsg.Request{kmsg.NewPtrMetadataRequest(), produceRequest("t", 0, sealed(t, batch.None, value("v"))), fetchRequest("t", 0, 0), kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrListGroupsRequest(),
		b.member(t, "one").full(), described} {
		if req.GetVersion() == 0 {
			req.SetVersion(3)
		}
		if versions, ok := req.(*kmsg.ApiVersionsRequest); ok {
			versions.ClientSoftwareName, versions.ClientSoftwareVersion = "test", "1"
		}
		w := b.dial()
		w.send(frame(req, 1))
		if ms, _ := w.receive(req, 1).(kmsg.ThrottleResponse).Throttle(); ms != 1000 {
			t.Errorf("%s is throttled for %d ms, not for a second, the most", kmsg.NameForKey(req.Key()), ms)
		}
		w.nc.Close()
	}
	if d := describeConsumer(b, "g"); len(d.Members) != 1 {
		t.Errorf("the heartbeat was not served: %+v", d)
	}
}

// KIP-612: a connection beyond the quota is closed, after the time for which its address must
// pause.
func TestAddressThatConnectsTooOftenIsSlowedDown(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(quota.Entity{IP: quota.Default}, quota.ConnectionCreationRate, 1)
		time.Sleep(time.Minute) // the connection that set made is forgotten
		served := 0
		for range 15 {
			w := m.pipes.patient(t)
			began := time.Now()
			req := kmsg.NewPtrMetadataRequest()
			go func() { _, _ = w.nc.Write(frame(req, 1)) }()
			_, err := w.tryReceive(req, 1)
			if err == nil {
				served++
			} else if took := time.Since(began); took <= 0 || took > time.Second {
				t.Errorf("a connection is closed after %v: %v", took, err)
			}
			w.nc.Close()
		}
		if refused := m.seen.times("connection_rate"); served < 10 || served > 13 || refused != 15-served {
			t.Errorf("of 15 connections %d are served, %d refused", served, refused)
		}
		synctest.Wait()
		if m.seen.open != 0 {
			t.Errorf("%d connections are still counted", m.seen.open)
		}
	})
}

// KIP-599: a new client is refused, and told when to try again; an old one is only throttled. What
// is refused is not done.
func TestClientThatCreatesTooManyPartitionsIsThrottled(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ControllerMutationRate, 1)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		create := func(name string, partitions int32, version int16, want *kerr.Error, throttle int32) {
			t.Helper()
			req := createRequest(name, partitions, 1)
			req.Version = version
			began := time.Now()
			got := tells[*kmsg.CreateTopicsResponse](w, req)
			wantCode(t, "create "+name+": "+text(got.Topics[0].ErrorMessage), got.Topics[0].ErrorCode, want)
			if got.ThrottleMillis != throttle || time.Since(began) > 0 {
				t.Errorf("the answer about %s has the throttle time %d, want %d, and comes after %v", name, got.ThrottleMillis, throttle, time.Since(began))
			}
			time.Sleep(time.Duration(throttle) * time.Millisecond)
		}
		create("a", 12, 7, nil, 0) // eleven, and one too early
		create("b", 1, 7, kerr.ThrottlingQuotaExceeded, 1000)
		create("b", 3, 6, nil, 0)
		add := kmsg.NewPtrCreatePartitionsRequest()
		add.Version = 3
		add.Topics = append(add.Topics, kmsg.CreatePartitionsRequestTopic{Topic: "a", Count: 14})
		added := tells[*kmsg.CreatePartitionsResponse](w, add)
		wantCode(t, "add partitions", added.Topics[0].ErrorCode, kerr.ThrottlingQuotaExceeded)
		remove := kmsg.NewPtrDeleteTopicsRequest()
		remove.Version = 5
		remove.TopicNames = []string{"a"}
		other := m.pipes.patient(t) // the first connection is muted
		defer other.nc.Close()
		wantCode(t, "delete", tells[*kmsg.DeleteTopicsResponse](other, remove).Topics[0].ErrorCode, kerr.ThrottlingQuotaExceeded)
		time.Sleep(time.Minute)
		wantCode(t, "delete after a minute", tells[*kmsg.DeleteTopicsResponse](w, remove).Topics[0].ErrorCode, nil)
		create("old", 9, 5, nil, 10_000) // after the 12 that were deleted
		if got := m.seen.paused[string(quota.ControllerMutationRate)]; got < 11*time.Second {
			t.Errorf("the observer was told of %v", got)
		}
		asked := kmsg.NewPtrMetadataRequest() // creates the topic
		asked.Version, asked.AllowAutoTopicCreation = 12, true
		for _, name := range []string{"auto1", "auto2"} {
			asked.Topics = append(asked.Topics, kmsg.MetadataRequestTopic{Topic: &name})
		}
		if got := tells[*kmsg.MetadataResponse](w, asked); got.ThrottleMillis != 2000 || got.Topics[0].ErrorCode != 0 {
			t.Errorf("topics that are created because a client asks for them: throttle time %d, %v", got.ThrottleMillis, got.Topics)
		}
		time.Sleep(time.Minute)
		add.Topics[0].Topic, add.Topics[0].Count = "b", 16 // it has three
		wantCode(t, "add partitions", tells[*kmsg.CreatePartitionsResponse](w, add).Topics[0].ErrorCode, nil)
		create("c", 1, 7, kerr.ThrottlingQuotaExceeded, 2000)
	})
}

// A muted connection is not idle, and the pause may be longer than idle connections live.
func TestMutedConnectionIsNotIdle(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ProducerByteRate, 1)
		w := m.pipes.patient(t)
		defer w.nc.Close()
		got := tells[*kmsg.ProduceResponse](w, sized(t, 2_410))
		pause := time.Duration(got.ThrottleMillis) * time.Millisecond
		if pause < 39*time.Minute || pause > 41*time.Minute {
			t.Fatalf("the client is throttled for %v", pause)
		}
		time.Sleep(pause + 9*time.Minute)
		tells[*kmsg.MetadataResponse](w, kmsg.NewPtrMetadataRequest())
		if n := m.seen.times("idle"); n > 0 {
			t.Error("the connection was closed because it was idle")
		}
	})
}

func TestServerStopsWhileConnectionsAreMuted(t *testing.T) {
	meter(t, func(t *testing.T, m *metered) {
		m.set(anonymous, quota.ProducerByteRate, 1)
		w := m.pipes.patient(t)
		if got := tells[*kmsg.ProduceResponse](w, sized(t, 2_000)); got.ThrottleMillis < 1_900_000 {
			t.Fatalf("the client is throttled for %d ms", got.ThrottleMillis)
		}
		go func() { _, _ = w.nc.Write(frame(kmsg.NewPtrMetadataRequest(), 2)) }()
		synctest.Wait()
		began := time.Now()
		m.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Requests that were read before their connection was muted hold memory. While other clients wait
// for it, they are executed without a pause.
func TestMutedConnectionGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l := memory.New(), newPipes()
		quotas := quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
		if err := quotas.Change(t.Context(), []quota.Change{{Entity: quota.Entity{ClientID: quota.Named("test")}, Set: map[quota.Kind]float64{quota.ConsumerByteRate: 1}}})[0]; err != nil {
			t.Fatal(err)
		}
		b := startAt(t, store, l, kafka.Config{Quotas: quotas}.With(kafka.Limits{InFlightBytes: 1, FrameBytes: 3 << 20}))
		topic := b.createTopic("t", 1, map[string]string{"max.message.bytes": "3145728"})
		synctest.Wait()
		w, other := l.patient(t), l.patient(t)
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxWaitMillis = 1000
		w.send(frame(fetch, 1)) // waits, and then its answer exceeds the quota
		time.Sleep(100 * time.Millisecond)
		var senders sync.WaitGroup
		senders.Go(func() { // are read, and wait for their turn
			w.send(frame(large(t, 3<<20-1000), 2))
			w.send(frame(large(t, 3<<20-1000), 3))
		})
		time.Sleep(100 * time.Millisecond)
		if _, err := b.log.Publish(t.Context(), topic.Partitions[0], value(strings.Repeat("x", 100_000))); err != nil {
			t.Fatal(err)
		}
		if got := w.receive(fetch, 1).(*kmsg.FetchResponse); got.ThrottleMillis < 1_000_000 {
			t.Fatalf("the client is throttled for %d ms", got.ThrottleMillis)
		}
		began := time.Now()
		senders.Go(func() {
			_, _ = other.nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("other")).AppendRequest(nil, large(t, 3<<20-1000), 4))
		})
		senders.Go(func() {
			w.receive(large(t, 3<<20-1000), 2)
			w.receive(large(t, 3<<20-1000), 3)
		})
		other.receive(large(t, 3<<20-1000), 4)
		if took := time.Since(began); took > 2*kafka.SilentMax {
			t.Errorf("another client waits %v for memory", took)
		}
		senders.Wait()
		w.nc.Close()
		other.nc.Close()
		b.stop()
	})
}

// What Kafka's own client is told (franz-go waits by itself then).
func TestFranzGoIsToldOfAThrottle(t *testing.T) {
	store := memory.New()
	quotas := quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	b := startOn(t, store, kafka.Config{Quotas: quotas})
	b.createTopic("t", 1, nil)
	hook := make(throttles, 10)
	cl := b.client(kgo.WithHooks(hook), kgo.ProducerBatchCompression(kgo.NoCompression()))
	admin := kadm.NewClient(cl)
	name := "ANONYMOUS"
	alter := func(op kadm.AlterClientQuotaOp) {
		t.Helper()
		altered, err := admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{op}}})
		if err != nil || len(altered) != 1 || altered[0].Err != nil {
			t.Fatal(altered, err)
		}
	}
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1000})
	record := &kgo.Record{Topic: "t", Value: make([]byte, 11_000)} // 1 s too much
	if err := cl.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-hook:
		if got.interval <= 0 || got.interval > 2*time.Second || !got.after {
			t.Errorf("franz-go is told of %+v", got)
		}
	default:
		t.Error("franz-go is not told of a throttle")
	}
	described, err := admin.DescribeClientQuotas(t.Context(), true, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &name}})
	if err != nil || len(described) != 1 || !slices.Equal(described[0].Values, kadm.ClientQuotaValues{{Key: "producer_byte_rate", Value: 1000}}) {
		t.Errorf("described are %v: %v", described, err)
	}
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	if err := cl.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if len(hook) > 0 {
		t.Errorf("without a quota franz-go is told of %+v", <-hook)
	}
}

type brokerThrottle struct {
	interval time.Duration
	after    bool
}

// throttles is a hook of franz-go.
type throttles chan brokerThrottle

func (h throttles) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, after bool) {
	h <- brokerThrottle{interval, after}
}

// alterQuotas is a request about one entity.
func alterQuotas(entity []kmsg.AlterClientQuotasRequestEntryEntity, ops ...kmsg.AlterClientQuotasRequestEntryOp) kmsg.AlterClientQuotasRequestEntry {
	return kmsg.AlterClientQuotasRequestEntry{Entity: entity, Ops: ops}
}

func TestBadQuotaRequestsAnswerAsKafkas(t *testing.T) {
	store := memory.New()
	quotas := quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	b := startOn(t, store, kafka.Config{Quotas: quotas})
	part := func(kind, name string) []kmsg.AlterClientQuotasRequestEntryEntity {
		return []kmsg.AlterClientQuotasRequestEntryEntity{{Type: kind, Name: &name}}
	}
	byDefault := func(kind string) []kmsg.AlterClientQuotasRequestEntryEntity {
		return []kmsg.AlterClientQuotasRequestEntryEntity{{Type: kind}}
	}
	set := func(key string, value float64) kmsg.AlterClientQuotasRequestEntryOp {
		return kmsg.AlterClientQuotasRequestEntryOp{Key: key, Value: value}
	}
	remove := func(key string) kmsg.AlterClientQuotasRequestEntryOp {
		return kmsg.AlterClientQuotasRequestEntryOp{Key: key, Remove: true}
	}
	both := append(part("user", "both"), part("client-id", "c")...)
	cases := []struct {
		entry kmsg.AlterClientQuotasRequestEntry
		want  *kerr.Error
		says  string
	}{
		{alterQuotas(part("user", "good"), set("producer_byte_rate", 1), set("request_percentage", 0.5)), nil, "null"},
		{alterQuotas(both, set("consumer_byte_rate", 1)), nil, "null"},
		{alterQuotas(byDefault("client-id"), set("consumer_byte_rate", 1)), nil, "null"},
		{alterQuotas(part("ip", "::ffff:10.0.0.1"), set("connection_creation_rate", 1)), nil, "null"},
		{alterQuotas(part("user", "removed"), remove("producer_byte_rate"), remove("unknown")), nil, "null"},
		{alterQuotas(nil, set("producer_byte_rate", 1)), kerr.InvalidRequest, "empty"},
		{alterQuotas(part("planet", "x"), set("producer_byte_rate", 1)), kerr.InvalidRequest, "planet"},
		{alterQuotas(part("user", ""), set("producer_byte_rate", 1)), kerr.InvalidRequest, "empty"},
		{alterQuotas(append(part("user", "a"), part("user", "b")...), set("producer_byte_rate", 1)), kerr.InvalidRequest, "two names"},
		{alterQuotas(append(part("user", "a"), part("ip", "10.0.0.1")...), set("producer_byte_rate", 1)), kerr.InvalidRequest, "combined"},
		{alterQuotas(part("ip", "db.internal"), set("connection_creation_rate", 1)), kerr.InvalidRequest, "not an IP address"},
		{alterQuotas(part("user", "zero"), set("producer_byte_rate", 0)), kerr.InvalidRequest, "greater than 0"},
		{alterQuotas(part("user", "part"), set("producer_byte_rate", 1.5)), kerr.InvalidRequest, "whole"},
		{alterQuotas(part("ip", "10.0.0.2"), set("controller_mutation_rate", 1)), kerr.InvalidRequest, "unknown"},
		{alterQuotas(part("user", "unknown"), set("speed", 1)), kerr.InvalidRequest, "unknown"},
		{alterQuotas(part("user", "half"), set("producer_byte_rate", 1), set("speed", 1)), kerr.InvalidRequest, "unknown"},
		{alterQuotas(part("user", "ops"), set("producer_byte_rate", 1), remove("producer_byte_rate")), kerr.InvalidRequest, "twice"},
		{alterQuotas(append(part("user", "twice"), part("client-id", "c")...), set("producer_byte_rate", 1)), kerr.InvalidRequest, "2 times"},
	}
	for _, validate := range []bool{true, false} {
		req := kmsg.NewPtrAlterClientQuotasRequest()
		req.Version, req.ValidateOnly = 1, validate
		for _, c := range cases {
			req.Entries = append(req.Entries, c.entry)
		}
		last := req.Entries[len(req.Entries)-1].Entity
		req.Entries = append(req.Entries, alterQuotas([]kmsg.AlterClientQuotasRequestEntryEntity{last[1], last[0], last[1]}, set("consumer_byte_rate", 1))) // it is answered once
		for i, got := range ask[*kmsg.AlterClientQuotasResponse](b, req).Entries {
			c := cases[i]
			wantCode(t, text(got.ErrorMessage), got.ErrorCode, c.want)
			if said := text(got.ErrorMessage); !strings.Contains(said, c.says) || len(got.Entity) != len(c.entry.Entity) {
				t.Errorf("entry %d: %s, about %v", i, said, got.Entity)
			}
		}
		all, err := quotas.List(t.Context(), quota.All)
		if want := 4; err != nil || validate && len(all) > 0 || !validate && len(all) != want {
			t.Errorf("validated only %v: stored are %v, %v", validate, all, err)
		}
	}
}

func TestQuotasAreDescribed(t *testing.T) {
	store := memory.New()
	quotas := quota.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	for _, e := range []quota.Entity{{User: quota.Named("alice")}, {User: quota.Named("alice"), ClientID: quota.Default}, {User: quota.Default}, {IP: quota.Named("10.0.0.1")}} {
		k := quota.ProducerByteRate
		if e.IP.Name != "" {
			k = quota.ConnectionCreationRate
		}
		if err := quotas.Change(t.Context(), []quota.Change{{Entity: e, Set: map[quota.Kind]float64{k: 7}}})[0]; err != nil {
			t.Fatal(err)
		}
	}
	b := startOn(t, store, kafka.Config{Quotas: quotas})
	name, empty, mapped := "alice", "", "::ffff:10.0.0.1"
	component := func(kind string, match kmsg.QuotasMatchType, name *string) kmsg.DescribeClientQuotasRequestComponent {
		return kmsg.DescribeClientQuotasRequestComponent{EntityType: kind, MatchType: match, Match: name}
	}
	type components = []kmsg.DescribeClientQuotasRequestComponent
	for _, c := range []struct {
		components components
		strict     bool
		want       string // the entities
		code       *kerr.Error
	}{
		{nil, false, "user=alice; user=alice,client-id=; user=; ip=10.0.0.1", nil},
		{nil, true, "", nil},
		{components{component("user", 0, &name)}, false, "user=alice; user=alice,client-id=", nil},
		{components{component("user", 0, &name)}, true, "user=alice", nil},
		{components{component("user", 1, nil)}, false, "user=", nil},
		{components{component("user", 2, nil)}, true, "user=alice; user=", nil},
		{components{component("user", 2, nil), component("client-id", 2, nil)}, true, "user=alice,client-id=", nil},
		{components{component("ip", 0, &mapped)}, true, "ip=10.0.0.1", nil},
		{components{component("user", 0, &empty)}, true, "", nil},
		{components{component("", 0, &name)}, false, "", kerr.InvalidRequest},
		{components{component("planet", 0, &name)}, false, "", kerr.UnsupportedVersion},
		{components{component("user", 0, nil)}, false, "", kerr.InvalidRequest},
		{components{component("user", 1, &name)}, false, "", kerr.InvalidRequest},
		{components{component("user", 2, &name)}, false, "", kerr.InvalidRequest},
		{components{component("user", 3, nil)}, false, "", kerr.InvalidRequest},
		{components{component("user", 1, nil), component("user", 2, nil)}, false, "", kerr.InvalidRequest},
		{components{component("ip", 1, nil), component("user", 2, nil)}, false, "", kerr.InvalidRequest},
	} {
		for version := range int16(2) {
			req := kmsg.NewPtrDescribeClientQuotasRequest()
			req.Version, req.Components, req.Strict = version, c.components, c.strict
			got := ask[*kmsg.DescribeClientQuotasResponse](b, req)
			wantCode(t, text(got.ErrorMessage), got.ErrorCode, c.code)
			var entities []string
			for _, entry := range got.Entries {
				var parts []string
				for _, p := range entry.Entity {
					if p.Name == nil {
						p.Name = &empty
					}
					parts = append(parts, p.Type+"="+*p.Name)
				}
				entities = append(entities, strings.Join(parts, ","))
				if len(entry.Values) != 1 || entry.Values[0].Value != 7 {
					t.Errorf("%v has %v", parts, entry.Values)
				}
			}
			want := strings.Split(c.want, "; ")
			if c.want == "" {
				want = nil
			}
			slices.Sort(entities)
			slices.Sort(want)
			if !slices.Equal(entities, want) || got.Entries == nil && c.code == nil {
				t.Errorf("%+v, strict %v, version %d: found are %v, want %v", c.components, c.strict, version, entities, want)
			}
		}
	}
}

// Kafka asks for DescribeConfigs and AlterConfigs on the cluster.
func TestQuotasNeedRights(t *testing.T) {
	store := memory.New()
	quiet := slog.New(slog.DiscardHandler)
	users, acls, quotas := user.New(everystore.Direct(store), quiet), acl.New(everystore.Direct(store), quiet), quota.New(everystore.Direct(store), quiet)
	r := &ruled{&population{guard(t, store, kafka.Config{Users: users, ACLs: acls, Quotas: quotas, SuperUsers: []string{"User:admin"}}, false), users}, acls}
	defer r.stop()
	for _, name := range []string{"admin", "alice", "bob"} {
		r.add(name, "right password")
	}
	r.create(acl.Rule{Kind: acl.Cluster, Name: acl.ClusterName, Operation: acl.DescribeConfigs})
	name := "alice"
	for who, want := range map[string]struct{ describe, alter error }{
		"admin": {nil, nil}, "alice": {nil, kerr.ClusterAuthorizationFailed}, "bob": {kerr.ClusterAuthorizationFailed, kerr.ClusterAuthorizationFailed},
	} {
		admin := kadm.NewClient(r.as(who))
		if _, err := admin.DescribeClientQuotas(t.Context(), false, nil); !errors.Is(err, want.describe) || (err == nil) != (want.describe == nil) {
			t.Errorf("%s describes quotas: %v", who, err)
		}
		altered, err := admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1000}}}})
		if err != nil || len(altered) != 1 || !errors.Is(altered[0].Err, want.alter) || (altered[0].Err == nil) != (want.alter == nil) {
			t.Errorf("%s alters quotas: %v, %v", who, altered, err)
		}
	}
	if all, err := quotas.List(t.Context(), quota.All); err != nil || len(all) != 1 {
		t.Errorf("stored are %v: %v", all, err)
	}
}

// A user's quota is about the user, by whichever mechanism, with the principal's name without
// "User:".
func TestQuotaIsAboutTheUserWhoLoggedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		quiet := slog.New(slog.DiscardHandler)
		users, quotas := user.New(everystore.Direct(store), quiet), quota.New(everystore.Direct(store), quiet)
		p := &population{guard(t, store, kafka.Config{Users: users, Quotas: quotas, SuperUsers: []string{"User:alice", "User:bob"}}, true), users}
		defer p.stop()
		p.createTopic("t", 1, nil)
		for _, name := range []string{"alice", "bob"} {
			p.add(name, "right password")
		}
		if err := quotas.Change(t.Context(), []quota.Change{{Entity: quota.Entity{User: quota.Named("alice")}, Set: map[quota.Kind]float64{quota.ProducerByteRate: 1000}}})[0]; err != nil {
			t.Fatal(err)
		}
		for name, throttled := range map[string]bool{"alice": true, "bob": false} {
			w := p.knock()
			wantCode(t, "login", w.scram(name, "right password").ErrorCode, nil)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := tells[*kmsg.ProduceResponse](w, sized(t, 15_000)); (got.ThrottleMillis > 0) != throttled {
				t.Errorf("%s, who is a super user, is throttled for %d ms", name, got.ThrottleMillis)
			}
			w.nc.Close()
		}
	})
}
