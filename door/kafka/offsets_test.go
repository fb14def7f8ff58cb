package kafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

func listRequest(topic string, partition int32, at int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 11
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, at
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (b *broker) list(topic string, partition int32, at int64) kmsg.ListOffsetsResponseTopicPartition {
	b.t.Helper()
	return ask[*kmsg.ListOffsetsResponse](b, listRequest(topic, partition, at)).Topics[0].Partitions[0]
}

func TestListOffsetsFindsTimes(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	at := func(ms ...int64) []byte {
		var records []batch.Record
		for _, m := range ms {
			records = append(records, batch.Record{Value: []byte("v"), Timestamp: m})
		}
		return sealed(t, batch.Gzip, records...)
	}
	b.mustProduce("t", 0, at(100, 110, 120)) // 0 1 2
	b.mustProduce("t", 0, at(200, 150, 500)) // 3 4 5: the newest is here
	b.mustProduce("t", 0, at(300, 500))      // 6 7: as new, but later
	b.mustProduce("t", 0, at(400, 400))      // 8 9
	b.deleteRecords("t", 0, 1)
	for _, c := range []struct{ asked, offset, timestamp int64 }{
		{-1, 10, -1},
		{-2, 1, -1},
		{-3, 5, 500},
		{-4, 1, -1},
		{-5, -1, -1},
		{-6, -1, -1},
		{111, 2, 120},
		{121, 3, 200},
		{200, 3, 200},
		{201, 5, 500},
		{500, 5, 500},
		{501, -1, -1},
	} {
		p := b.list("t", 0, c.asked)
		if p.ErrorCode != 0 || p.Offset != c.offset || p.Timestamp != c.timestamp {
			t.Errorf("%d: error %d, offset %d at %d; expected offset %d at %d", c.asked, p.ErrorCode, p.Offset, p.Timestamp, c.offset, c.timestamp)
		}
		if epoch := int32(0); p.Offset >= 0 && p.LeaderEpoch != epoch || p.Offset < 0 && p.LeaderEpoch != -1 {
			t.Errorf("%d: leader epoch %d of offset %d", c.asked, p.LeaderEpoch, p.Offset)
		}
	}
	for _, asked := range []int64{-1, -2, -3, 100} { // nothing was ever written
		want := int64(0)
		if asked == -3 || asked == 100 {
			want = -1
		}
		if p := b.list("t", 1, asked); p.ErrorCode != 0 || p.Offset != want {
			t.Errorf("empty partition, %d: error %d, offset %d", asked, p.ErrorCode, p.Offset)
		}
	}
}

// What was deleted is not found, also where the batch that it was in is still there for the sake of
// others. Else consumers would be sent below the log's start, and skip all to the end from there
// (auto.offset.reset).
func TestListOffsetsFindsNothingBelowTheLogsStart(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	var records []batch.Record
	for i := range int64(100) { // offset 3 is the newest, and 5 is newer than all that stay but one
		at := 1000 + i
		switch i {
		case 3:
			at = 9000
		case 5:
			at = 5000
		}
		records = append(records, batch.Record{Value: []byte("v"), Timestamp: at})
	}
	b.mustProduce("t", 0, sealed(t, batch.None, records...))
	b.mustProduce("t", 0, sealed(t, batch.Gzip, batch.Record{Timestamp: 500}, batch.Record{Timestamp: 6000}))
	b.deleteRecords("t", 0, 7)
	for _, c := range []struct{ asked, offset, timestamp int64 }{
		{0, 7, 1007},
		{1003, 7, 1007},
		{1050, 50, 1050},
		{5000, 101, 6000}, // the record at the start is older than that
		{9000, -1, -1},
		{-3, 101, 6000},
		{-2, 7, -1},
	} {
		if p := b.list("t", 0, c.asked); p.ErrorCode != 0 || p.Offset != c.offset || p.Timestamp != c.timestamp {
			t.Errorf("%d: error %d, offset %d at %d; expected offset %d at %d", c.asked, p.ErrorCode, p.Offset, p.Timestamp, c.offset, c.timestamp)
		}
	}
	b.deleteRecords("t", 0, 102)
	for _, asked := range []int64{0, 9000, -3} {
		if p := b.list("t", 0, asked); p.ErrorCode != 0 || p.Offset != -1 {
			t.Errorf("all deleted, %d: error %d, offset %d", asked, p.ErrorCode, p.Offset)
		}
	}
}

// The newest record may be anywhere: the search goes by steps that double, over a log of rising and
// falling times.
func TestListOffsetsFindsTheNewestAnywhere(t *testing.T) {
	b := start(t, kafka.Config{})
	times := []int64{5, 1_000, 3, 1_700_000_000_000, 20, 1_699_999_999_999, 7, 253_402_300_799_999, 6, 1, 2}
	b.createTopic("t", len(times), nil)
	for number := range times {
		newest, where := int64(-1), int64(0)
		for i, ms := range times[:number+1] {
			b.mustProduce("t", int32(number), sealed(t, batch.None, batch.Record{Timestamp: ms}))
			if ms > newest {
				newest, where = ms, int64(i)
			}
		}
		if p := b.list("t", int32(number), -3); p.Offset != where || p.Timestamp != newest {
			t.Errorf("of %v: offset %d at %d, expected %d at %d", times[:number+1], p.Offset, p.Timestamp, where, newest)
		}
	}
}

func TestListOffsetsRefusesWhatAVersionDoesNotKnow(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	for _, c := range []struct {
		at      int64
		version int16
		want    *kerr.Error
	}{
		{-1, 1, nil}, {-2, 1, nil}, {-3, 6, kerr.UnsupportedVersion}, {-3, 7, nil}, {-4, 7, kerr.UnsupportedVersion}, {-4, 8, nil},
		{-5, 8, kerr.UnsupportedVersion}, {-5, 9, nil}, {-6, 10, kerr.UnsupportedVersion}, {-6, 11, nil}, {-7, 11, kerr.UnsupportedVersion}, {-1 << 63, 11, kerr.UnsupportedVersion},
	} {
		req := listRequest("t", 0, c.at)
		req.Version = c.version
		p := ask[*kmsg.ListOffsetsResponse](b, req).Topics[0].Partitions[0]
		wantCode(t, fmt.Sprintf("%d in version %d", c.at, c.version), p.ErrorCode, c.want)
	}
	wantCode(t, "unknown topic", b.list("none", 0, -1).ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "unknown partition", b.list("t", 1, -1).ErrorCode, kerr.UnknownTopicOrPartition)
	epoch := listRequest("t", 0, -1)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = 3
	wantCode(t, "leader epoch", ask[*kmsg.ListOffsetsResponse](b, epoch).Topics[0].Partitions[0].ErrorCode, kerr.UnknownLeaderEpoch)
}

func TestDeleteRecordsMovesTheBeginning(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	for range 3 {
		b.mustProduce("t", 0, sealed(t, batch.None, value("a"), value("b")))
	}
	for _, c := range []struct {
		before, low int64
		want        *kerr.Error
	}{
		{0, 0, nil}, {3, 3, nil}, {1, 3, nil}, {7, -1, kerr.OffsetOutOfRange}, {-2, -1, kerr.OffsetOutOfRange}, {-1, 6, nil},
	} {
		p := b.deleteRecords("t", 0, c.before)
		wantCode(t, fmt.Sprintf("before %d", c.before), p.ErrorCode, c.want)
		if p.LowWatermark != c.low {
			t.Errorf("before %d: low watermark %d, expected %d", c.before, p.LowWatermark, c.low)
		}
	}
	wantCode(t, "unknown topic", b.deleteRecords("none", 0, 0).ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "unknown partition", b.deleteRecords("t", 9, 0).ErrorCode, kerr.UnknownTopicOrPartition)
}

func TestOffsetForLeaderEpochKnowsOneEpoch(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("a"), value("b")))
	for _, c := range []struct {
		partition, current, asked int32
		epoch                     int32
		end                       int64
		want                      *kerr.Error
	}{
		{0, -1, 0, 0, 2, nil}, {0, 0, 0, 0, 2, nil}, {0, 0, 1, -1, -1, nil}, {0, 0, -1, -1, -1, nil}, {0, 1, 0, -1, -1, kerr.UnknownLeaderEpoch}, {4, 0, 0, -1, -1, kerr.UnknownTopicOrPartition},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 4
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.partition, c.current, c.asked
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := ask[*kmsg.OffsetForLeaderEpochResponse](b, req).Topics[0].Partitions[0]
		wantCode(t, fmt.Sprintf("%+v", c), p.ErrorCode, c.want)
		if p.LeaderEpoch != c.epoch || p.EndOffset != c.end {
			t.Errorf("%+v: epoch %d ends at %d", c, p.LeaderEpoch, p.EndOffset)
		}
	}
}

func TestListOffsetsRefusesAPartitionThatIsNamedMoreThanOnce(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("a")))
	req := listRequest("t", 0, 0)
	for range 1000 {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
	}
	req.Topics = append(req.Topics, req.Topics[0], listRequest("t", 1, 0).Topics[0])
	for i, rt := range ask[*kmsg.ListOffsetsResponse](b, req).Topics {
		for k, rp := range rt.Partitions {
			want := kerr.InvalidRequest
			if i == 2 {
				want = nil // the request names this partition once
			}
			wantCode(t, fmt.Sprintf("mention %d of topic %d", k, i), rp.ErrorCode, want)
		}
	}
}

// A partition that is named more than once is answered once, for what the last mention asks.
func TestDeleteRecordsCarriesOutTheLastMention(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	for partition := range int32(2) {
		b.mustProduce("t", partition, sealed(t, batch.None, value("a"), value("b"), value("c")))
	}
	mention := func(partition int32, before ...int64) (t kmsg.DeleteRecordsRequestTopic) {
		t.Topic = "t"
		for _, before := range before {
			t.Partitions = append(t.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: partition, Offset: before})
		}
		return t
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version = 2
	req.Topics = append(req.Topics, mention(0, 7, 3), mention(1, 2), mention(0, -1, 1))
	var got []string
	for _, rt := range ask[*kmsg.DeleteRecordsResponse](b, req).Topics {
		for _, p := range rt.Partitions {
			got = append(got, fmt.Sprintf("%d: %d, code %d", p.Partition, p.LowWatermark, p.ErrorCode))
		}
	}
	if want := []string{"0: 1, code 0", "1: 2, code 0"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	for partition, first := range []int64{1, 2} {
		if p := b.list("t", int32(partition), -2); p.Offset != first {
			t.Errorf("partition %d begins at %d, want %d", partition, p.Offset, first)
		}
	}
}
