package kafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// kmsg knows the layout of every version: what it reads must be what was meant.
func TestFetchAnswersAreWhatKmsgReads(t *testing.T) {
	small, large := bytes.Repeat([]byte{1}, 100), bytes.Repeat([]byte{2}, spliceMin)
	placed := func(base eventlog.Offset, raw []byte) eventlog.Placed {
		return eventlog.Placed{Base: base, Batch: eventlog.Batch{Bytes: raw}}
	}
	sent := func(base int64, raw []byte) []byte {
		b := bytes.Clone(raw)
		binary.BigEndian.PutUint64(b, uint64(base))
		binary.BigEndian.PutUint32(b[12:], 0)
		return b
	}
	api := findAPI(t, kmsg.Fetch)
	for version := api.min; version <= api.max; version++ {
		for _, uncommitted := range []bool{false, true} {
			f := &fetched{FetchResponse: kmsg.NewPtrFetchResponse(), uncommitted: uncommitted,
				epochAt: func(eventlog.Partition, eventlog.Offset) int32 { return 0 }}
			f.Version = version
			f.topics = []fetchedTopic{
				{name: "a", id: topicID{1}, partitions: []fetchedPartition{
					{number: 0, slice: eventlog.Slice{Bounds: eventlog.Bounds{First: 3, Next: 9}, Batches: []eventlog.Placed{placed(5, small), placed(6, large), placed(7, large), placed(8, small)}}},
					{number: 7, code: 1},
				}},
				{name: "b", id: topicID{2}, partitions: []fetchedPartition{
					{number: 1, slice: eventlog.Slice{Bounds: eventlog.Bounds{First: 0, Next: 1 << 40}, Batches: []eventlog.Placed{placed(1<<40-1, large)}}},
					{number: 2},
				}},
				{name: "empty"},
			}
			client, server := net.Pipe()
			c := &conn{s: New(nil, nil, Config{}), nc: server}
			var got []byte
			read := make(chan struct{})
			go func() {
				got, _ = io.ReadAll(client)
				close(read)
			}()
			size, err := c.send(&call{request: request{header: header{correlation: 9}}}, f)
			server.Close()
			<-read
			if err != nil || size != len(got) || int(binary.BigEndian.Uint32(got)) != size-4 {
				t.Fatalf("version %d: %v; %d bytes said to be sent, %d came, their length says %d", version, err, size, len(got), binary.BigEndian.Uint32(got))
			}
			body := got[8:]
			if f.IsFlexible() {
				body = body[1:]
			}
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = version
			if err := resp.ReadFrom(body); err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			want := kmsg.NewPtrFetchResponse()
			want.Version = version
			partition := func(number int32, code int16, first, next int64, records []byte) kmsg.FetchResponseTopicPartition {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.RecordBatches = number, code, next, next, records
				if version >= 5 {
					p.LogStartOffset = first
				}
				return p
			}
			topic := func(name string, id topicID, partitions ...kmsg.FetchResponseTopicPartition) kmsg.FetchResponseTopic {
				rt := kmsg.NewFetchResponseTopic()
				if rt.Partitions = partitions; version >= 13 {
					rt.TopicID = id
				} else {
					rt.Topic = name
				}
				return rt
			}
			want.Topics = []kmsg.FetchResponseTopic{
				topic("a", topicID{1}, partition(0, 0, 3, 9, bytes.Join([][]byte{sent(5, small), sent(6, large), sent(7, large), sent(8, small)}, nil)), partition(7, 1, -1, -1, nil)),
				topic("b", topicID{2}, partition(1, 0, 0, 1<<40, sent(1<<40-1, large)), partition(2, 0, 0, 0, nil)),
				topic("empty", topicID{}),
			}
			if diff := cmp.Diff(want, resp, cmpopts.EquateEmpty(), wholeBytes, cmpopts.IgnoreUnexported(kmsg.Tags{})); diff != "" {
				t.Errorf("version %d: %s", version, diff)
			}
			if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
				t.Errorf("version %d: kmsg encodes the same answer to other bytes", version)
			}
			if bytes.Contains(large, []byte{0}) || bytes.Contains(small, []byte{0}) {
				t.Fatal("shared bytes were changed")
			}
		}
	}
}

// wholeBytes compares bytes at once, where cmp would look at each.
var wholeBytes = cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))
