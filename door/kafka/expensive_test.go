package kafka_test

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/store/memory"
)

// wealthy is a broker that has much of everything that a request can ask for by one name: a topic of 2,000 partitions with 100 producers in the
// first, and a group with 80 KiB of committed metadata and a member of 100 KiB.
func wealthy(t *testing.T, l net.Listener) (b *broker, id [16]byte) {
	b = startAt(t, memory.New(), l, kafka.Config{NoAutoCreate: true, InFlightBytes: 1, FrameBytes: 3 << 20})
	id = b.createTopic("t", 2000, nil).ID
	for range 100 {
		b.mustProduce("t", 0, sequenced(t, b.newProducerID(), 0, 0, value("v")))
	}
	metadata := strings.Repeat("m", 4000)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "t", -1
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = "t"
	for number := range int32(20) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Metadata = number, &metadata
		of.Partitions = append(of.Partitions, p)
	}
	commit.Topics = append(commit.Topics, of)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, commit).Topics[0].Partitions[0].ErrorCode, nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.ProtocolType = 3, "t", 300_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: make([]byte, 100<<10)}}
	joined := ask[*kmsg.JoinGroupResponse](b, join)
	wantCode(t, "join", joined.ErrorCode, nil)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "t", joined.MemberID, joined.Generation
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: make([]byte, 100<<10)}}
	wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](b, sync).ErrorCode, nil)
	return b, id
}

// A request may cost what it mentions once, and a multiple of its own bytes: not their product.
func TestNoRequestCostsMoreThanItsBytesAndWhatThereIs(t *testing.T) {
	const (
		size   = 64 << 10 // of a request
		factor = 80       // bytes allocated for each, by the broker and by this test's client; garbage included
		slack  = 1 << 20
		tries  = 3 // the broker's own work goes on beside a request, so the least of them counts
	)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, there := wealthy(t, l)
	for _, key := range b.keys() {
		if key == kmsg.Fetch {
			continue // its records have a budget of their own
		}
		for _, named := range []string{"t", "no such", ""} {
			id := there
			if named != "t" {
				id = [16]byte{1}
			}
			for depth := range kafka.MentionDepth {
				cost := func(times int) (raw []byte, got uint64) {
					req := kmsg.RequestForKey(int16(key))
					if deep := kafka.Mention(req, named, id, depth, times); !deep {
						return nil, 0
					}
					req.SetVersion(b.maxVersion(key))
					if raw = frame(req, 1); len(raw) > size {
						return nil, 0
					}
					return raw, b.costOf(req, raw)
				}
				_, once := cost(2) // which is answered once, or refused
				for times := 256; times <= 1<<14; times *= 4 {
					raw, got := cost(times)
					if raw == nil {
						break
					}
					limit := once + uint64(factor*len(raw)) + slack
					for try := 1; got > limit && try < tries; try++ {
						_, again := cost(times)
						got = min(got, again)
					}
					if got > limit {
						t.Errorf("%s of %q, %d mentions at depth %d: a request of %d bytes allocated %d, the limit is %d", key.Name(), named, times, depth, len(raw), got, limit)
					}
				}
			}
		}
	}
}

// eachAnswered are the keys that answer each mention, or refuse each but the first: with a few bytes.
var eachAnswered = []kmsg.Key{
	kmsg.Produce, kmsg.ListOffsets, kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.DeleteRecords,
}

func TestWhatIsMentionedAgainIsAnsweredOnce(t *testing.T) {
	const (
		times = 1024
		row   = 4 // bytes for each mention: a topic without partitions
		slack = 300
	)
	for _, key := range start(t, kafka.Config{}).keys() {
		if slices.Contains(eachAnswered, key) {
			continue
		}
		b := start(t, kafka.Config{NoAutoCreate: true})
		id := b.createTopic("t", 3, nil).ID
		for depth := range kafka.MentionDepth {
			size := func(times int) (answer int, deep bool) {
				req := kmsg.RequestForKey(int16(key))
				if deep = kafka.Mention(req, "t", id, depth, times); !deep {
					return 0, false
				}
				req.SetVersion(b.maxVersion(key))
				w := b.dial()
				defer w.nc.Close()
				w.send(frame(req, 1))
				resp, err := w.tryReceive(req, 1)
				if err != nil {
					return 0, true // it is too much to decode: the connection was closed
				}
				return len(resp.AppendTo(nil)), true
			}
			twice, deep := size(2)
			if !deep {
				continue
			}
			if many, _ := size(times); many > twice+row*times+slack {
				t.Errorf("%s: %d mentions at depth %d are answered with %d bytes, two with %d", key.Name(), times, depth, many, twice)
			}
		}
	}
}

// What answers hold while nobody takes them is the budget and what each may have without a claim, however many wait: read at its peak, which a
// broker in fake time has when nothing moves any more.
func TestAnswersThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		clients = 100
		each    = 96 << 10 // answers below 64 KiB and small requests are not claimed; and goroutines, buffers
		limit   = 2*pool + clients*each
	)
	if kafka.ArrayCopies > 1 {
		t.Skip("the race detector needs memory of its own")
	}
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b, id := wealthy(t, l)
		for _, key := range b.versions() {
			req := kmsg.RequestForKey(key.ApiKey)
			kafka.Mention(req, "t", id, 0, 1)
			req.SetVersion(key.MaxVersion)
			raw := frame(req, 1)
			var ws []*wire
			before := liveBytes()
			for range clients {
				w := l.dial(t)
				w.nc.SetDeadline(time.Time{})
				ws = append(ws, w)
				go func() { _, _ = w.nc.Write(raw) }()
			}
			synctest.Wait()
			if held := liveBytes() - before; held > limit {
				t.Errorf("%s: %d clients that take no answer hold %d bytes, the limit is %d", kmsg.NameForKey(key.ApiKey), clients, held, limit)
			}
			for _, w := range ws {
				w.nc.Close()
			}
			synctest.Wait()
		}
		b.stop()
	})
}

func liveBytes() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// costOf sends a request, and returns how many bytes were allocated until its answer was read or the connection closed.
func (b *broker) costOf(req kmsg.Request, raw []byte) uint64 {
	b.t.Helper()
	w := b.dial()
	defer w.nc.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.send(raw)
	_, _ = w.tryReceive(req, 1)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// versions are what the broker says that it serves.
func (b *broker) versions() []kmsg.ApiVersionsResponseApiKey {
	req := kmsg.NewPtrApiVersionsRequest()
	return ask[*kmsg.ApiVersionsResponse](b, req).ApiKeys
}

func (b *broker) keys() (keys []kmsg.Key) {
	for _, k := range b.versions() {
		keys = append(keys, kmsg.Key(k.ApiKey))
	}
	return keys
}

func (b *broker) maxVersion(key kmsg.Key) int16 {
	for _, k := range b.versions() {
		if k.ApiKey == int16(key) {
			return k.MaxVersion
		}
	}
	b.t.Fatalf("%s is not served", key.Name())
	return 0
}
