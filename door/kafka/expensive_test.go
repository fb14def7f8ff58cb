package kafka_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
)

// rich is a name as long as a topic's may be: answers and their texts contain it.
var rich = strings.Repeat("t", 249)

// wealthy is a broker that has much of everything that a request can ask for by one name: a topic
// of 2,000 partitions with 100 producers in the first, and a group with 80 KiB of committed
// metadata and a member of 100 KiB. And it has 100 topics t-0 to t-99.
func wealthy(t *testing.T, l net.Listener) (b *broker, id [16]byte) {
	b = startAt(t, memory.New(), l, kafka.Config{NoAutoCreate: true}.With(kafka.Limits{InFlightBytes: 1, FetchBytes: 1, FrameBytes: 3 << 20}))
	id = b.createTopic(rich, 2000, nil).ID
	for n := range 100 {
		b.createTopic(fmt.Sprint("t-", n), 1, nil)
		b.mustProduce(rich, 0, sequenced(t, b.newProducerID(), 0, 0, value("v")))
	}
	metadata := strings.Repeat("m", 4000)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, rich, -1
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = rich
	for number := range int32(20) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Metadata = number, &metadata
		of.Partitions = append(of.Partitions, p)
	}
	commit.Topics = append(commit.Topics, of)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, commit).Topics[0].Partitions[0].ErrorCode, nil)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.ProtocolType = 3, rich, 300_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: make([]byte, 100<<10)}}
	joined := ask[*kmsg.JoinGroupResponse](b, join)
	wantCode(t, "join", joined.ErrorCode, nil)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, rich, joined.MemberID, joined.Generation
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: make([]byte, 100<<10)}}
	wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](b, sync).ErrorCode, nil)
	return b, id
}

// mentioned is all that the tests have requests mention on a wealthy broker.
func mentioned(t *testing.T, b *broker, id [16]byte) map[string]kafka.Mentions {
	idOf := func(name string) [16]byte {
		topic, err := b.log.Topic(t.Context(), name)
		if err != nil {
			return [16]byte{2}
		}
		return topic.ID
	}
	none := [16]byte{1}
	all := map[string]kafka.Mentions{
		"what there is":            {Name: rich, ID: id},
		"each partition":           {Name: rich, ID: id, Partitions: 1 << 30},
		"some topics and others":   {Name: "t-", Names: 150, Topics: idOf},
		"an unknown name":          {Name: "no such", ID: none},
		"many unknown names":       {Name: "no such-", Names: 1 << 30, ID: none},
		"an empty name":            {ID: none},
		"a name that is too long":  {Name: strings.Repeat("x", 2000), ID: none, Partitions: 1 << 30},
		"large texts and bytes":    {Name: rich, ID: id, Text: strings.Repeat("m", 4000), Bytes: make([]byte, 4000)},
		"larger texts and bytes":   {Name: rich, ID: id, Text: strings.Repeat("m", 30_000), Bytes: make([]byte, 30_000)},
		"nobody's commits":         {Name: "t-", Names: 150, Topics: idOf, Alone: true, Text: strings.Repeat("m", 4000)},
		"record batches":           {Name: rich, ID: id, Partitions: 1 << 30, Records: sealed(t, batch.None, value("v"))},
		"batches that must shrink": {Name: rich, ID: id, Partitions: 1 << 30, Records: sealed(t, batch.Zstd, value(strings.Repeat("v", 4000)))},
	}
	if kafka.ArrayCopies > 1 {
		delete(all, "batches that must shrink") // with the race detector, pools drop the decoders put back
	}
	return all
}

// differing are versions of requests: the oldest, the newest, those where encodings become
// flexible, and one of the others, by chance.
func differing(rng *rand.Rand, key kmsg.ApiVersionsResponseApiKey) (versions []int16) {
	req := kmsg.RequestForKey(key.ApiKey)
	kafka.Mentions{Name: "t"}.Fill(req, 0, 2)
	var others []int16
	var before []byte
	flexible := false
	for v := key.MinVersion; v <= key.MaxVersion; v++ {
		req.SetVersion(v)
		raw := req.AppendTo(nil)
		switch {
		case v > key.MinVersion && req.IsFlexible() != flexible:
			if !slices.Contains(versions, v-1) {
				versions = append(versions, v-1)
			}
			fallthrough
		case v == key.MinVersion || v == key.MaxVersion:
			versions = append(versions, v)
		case !bytes.Equal(raw, before):
			others = append(others, v)
		}
		before, flexible = raw, req.IsFlexible()
	}
	others = slices.DeleteFunc(others, func(v int16) bool { return slices.Contains(versions, v) })
	if len(others) > 0 {
		versions = append(versions, others[rng.IntN(len(others))])
	}
	return versions
}

// A request may cost what it mentions once, and a multiple of its own bytes: not their product.
func TestNoRequestCostsMoreThanItsBytesAndWhatThereIs(t *testing.T) {
	const (
		size   = 64 << 10 // of a request
		factor = 80       // bytes allocated for each, by the broker and by this test's client; garbage included
		each   = 1500     // and for each element
		slack  = 1 << 20
		tries  = 3 // the broker's own work goes on beside a request, so the least of them counts
	)
	rng := seeded(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, there := wealthy(t, l)
	for _, key := range b.versions() {
		if key.ApiKey == int16(kmsg.Fetch) {
			continue // its records have a budget of their own
		}
		name := kmsg.NameForKey(key.ApiKey)
		for _, version := range differing(rng, key) {
			for what, m := range sample(rng, mentioned(t, b, there), 3/kafka.ArrayCopies) {
				for depth := range kafka.MentionDepth {
					request := func(times int) (raw []byte, req kmsg.Request, deep bool) {
						req = kmsg.RequestForKey(key.ApiKey)
						deep = m.Fill(req, depth, times)
						req.SetVersion(version)
						return frame(req, 1), req, deep
					}
					raw, req, deep := request(2) // which is answered once, or refused
					if !deep || len(raw) > size {
						break
					}
					once := b.costOf(req, raw)
					longer, _, _ := request(3)
					if len(longer) == len(raw) {
						continue // this version has no such list
					}
					most := 2 + (size-len(raw))/(len(longer)-len(raw))
					if times := most * 9 / 10; times > 2 {
						raw, req, _ := request(times)
						got := b.costOf(req, raw)
						limit := once + uint64(factor*len(raw)+each*times) + slack
						for try := 1; got > limit && try < tries; try++ {
							got = min(got, b.costOf(req, raw))
						}
						if got > limit {
							t.Errorf("%s version %d with %s, %d mentions at depth %d: a request of %d bytes allocated %d, the limit is %d", name, version, what, times, depth, len(raw), got, limit)
						}
					}
				}
			}
		}
	}
}

// sample is what costs most of all that a request may mention, and so many others by chance.
func sample(rng *rand.Rand, all map[string]kafka.Mentions, others int) map[string]kafka.Mentions {
	const always = "each partition"
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return name == always })
	some := map[string]kafka.Mentions{always: all[always]}
	for _, i := range rng.Perm(len(names))[:others] {
		some[names[i]] = all[names[i]]
	}
	return some
}

// depthOf is how deep a key's requests have lists in lists, and at least 1.
func depthOf(key int16) int {
	depth := 1
	for depth < kafka.MentionDepth && (kafka.Mentions{}).Fill(kmsg.RequestForKey(key), depth, 2) {
		depth++
	}
	return depth
}

// requestOf is a request on the wire.
func requestOf(key, version int16, m kafka.Mentions, depth, times int) []byte {
	req := kmsg.RequestForKey(key)
	m.Fill(req, depth, times)
	req.SetVersion(version)
	return frame(req, 1)
}

func seeded(t *testing.T) *rand.Rand {
	return seed.Random(t)
}

// eachAnswered are the keys that answer each mention, with a few bytes.
var eachAnswered = []kmsg.Key{
	kmsg.Produce, kmsg.ListOffsets, kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.DeleteACLs,
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
				if deep = (kafka.Mentions{Name: "t", ID: id}).Fill(req, depth, times); !deep {
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

// What answers hold while nobody takes them is the budget and what each may have without a claim,
// however many wait: read at its peak, which a broker in fake time has when nothing moves any more.
func TestAnswersThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		clients = 50
		each    = 96 << 10 // answers below 64 KiB and small requests are not claimed; and goroutines, buffers
		limit   = 2*pool + clients*each
		size    = 96 << 10 // of a request
		element = 320      // what one claims, decoded and answered: one request may overdraw the budget
	)
	measuresMemory(t)
	rng := seeded(t)
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b, id := wealthy(t, l)
		keys := b.versions()
		slices.SortStableFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(removes(a), removes(b)) })
		for _, key := range keys {
			for _, version := range differing(rng, key) {
				all := mentioned(t, b, id)
				some := sample(rng, all, 1)
				some["what there is"] = all["what there is"]
				for what, m := range some {
					m.Records = nil // the store holds what is appended
					depth, times := 0, 1
					if what != "what there is" {
						depth = rng.IntN(depthOf(key.ApiKey))
						per := len(requestOf(key.ApiKey, version, m, depth, 3)) - len(requestOf(key.ApiKey, version, m, depth, 2))
						times = size * 9 / 10 / max(per, 8)
					}
					raw := requestOf(key.ApiKey, version, m, depth, times)
					limit := int64(limit + element*times)
					if key.ApiKey == int16(kmsg.Fetch) {
						limit += kafka.FetchMax + pool // its answers have a budget of their own
					}
					if n := hoarders(t, l, raw, clients); n > limit {
						t.Errorf("%s version %d with %s, %d mentions at depth %d: %d clients that take no answer hold %d bytes, the limit is %d",
							kmsg.NameForKey(key.ApiKey), version, what, times, depth, clients, n, limit)
					}
				}
			}
		}
		b.stop()
	})
}

// removes orders keys: those that remove what others ask for are last.
func removes(key kmsg.ApiVersionsResponseApiKey) int {
	return slices.Index([]kmsg.Key{kmsg.DeleteRecords, kmsg.OffsetDelete, kmsg.DeleteGroups, kmsg.DeleteTopics}, kmsg.Key(key.ApiKey))
}

func liveBytes() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// costOf sends a request, and returns how many bytes were allocated until its answer was read or
// the connection closed.
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
