package kafka_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

const throttled = "leader.replication.throttled.replicas"

// alter changes throttled of topic t.
func (b *broker) alter(op kmsg.IncrementalAlterConfigOp, value string) kmsg.IncrementalAlterConfigsResponseResource {
	b.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = throttled, op, &value
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeTopic, "t", append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](b, req).Resources[0]
}

// The bound holds before a list is split, so it bounds the work on a list, too.
func TestAValueLongerThanKafkaAllowsIsRefusedByName(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	long := strings.Repeat("1:1,", 32767/4+1)
	for op, name := range map[kmsg.IncrementalAlterConfigOp]string{
		kmsg.IncrementalAlterConfigOpSet: "set", kmsg.IncrementalAlterConfigOpAppend: "append", kmsg.IncrementalAlterConfigOpSubtract: "subtract",
	} {
		got := b.alter(op, long)
		wantCode(t, name, got.ErrorCode, kerr.InvalidConfig)
		if said := text(got.ErrorMessage); !strings.Contains(said, throttled) || !strings.Contains(said, strconv.Itoa(32767)) {
			t.Errorf("%s is refused with %q, which names neither the setting nor the limit", name, said)
		}
	}
	wantCode(t, "half of the limit", b.alter(kmsg.IncrementalAlterConfigOpSet, strings.Repeat("1", 32767/2)).ErrorCode, nil)
	wantCode(t, "more than the other half", b.alter(kmsg.IncrementalAlterConfigOpAppend, strings.Repeat("2", 32767/2+2)).ErrorCode, kerr.InvalidConfig)
	made := createRequest("u", 1, 1)
	c := kmsg.NewCreateTopicsRequestTopicConfig()
	c.Name, c.Value = throttled, &long
	made.Topics[0].Configs = append(made.Topics[0].Configs, c)
	wantCode(t, "create", b.create(made).ErrorCode, kerr.InvalidConfig)
}

func TestAppendAndSubtractTreatAListAsASet(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	var items []string
	for i := range 5000 {
		items = append(items, strconv.Itoa(i))
	}
	for _, c := range []struct {
		op          kmsg.IncrementalAlterConfigOp
		value, want string
	}{
		{kmsg.IncrementalAlterConfigOpAppend, "7,4,7", "7,4"},
		{kmsg.IncrementalAlterConfigOpAppend, strings.Join(items, ","), "7,4,0,1,2,3,5,6," + strings.Join(items[8:], ",")},
		{kmsg.IncrementalAlterConfigOpSubtract, strings.Join(items[2:], ","), "0,1"},
		{kmsg.IncrementalAlterConfigOpSubtract, "9,1", "0"},
	} {
		got := b.alter(c.op, c.value)
		wantCode(t, text(got.ErrorMessage), got.ErrorCode, nil)
		topic, err := b.log.TopicNow(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		if now := topic.Setting(throttled); now != c.want {
			t.Errorf("after operation %d with %.20s it is %.40s…, want %.40s…", c.op, c.value, now, c.want)
		}
	}
}

// A value counts with its length, as often as it is in the answer.
func TestLongSettingsThatNobodyTakesStayWithinTheBudget(t *testing.T) {
	const clients, topics = 100, 5
	const limit = 2*pool + clients*(96<<10)
	measuresMemory(t)
	crowd(t, func(t *testing.T, l *pipes, b *broker, _ *troubled) {
		long := strings.Repeat("1", 32767)
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version, req.IncludeSynonyms = 4, true
		for n := range topics {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, strconv.Itoa(n)
			req.Resources = append(req.Resources, r)
			b.createTopic(r.ResourceName, 1, map[string]string{throttled: long, "follower.replication.throttled.replicas": long})
		}
		before := liveBytes()
		var conns []*wire
		for range clients {
			w := l.patient(t)
			conns = append(conns, w)
			go func() { _, _ = w.nc.Write(frame(req, 1)) }()
		}
		synctest.Wait()
		if held := liveBytes() - before; held > limit {
			t.Errorf("%d clients that take no answer hold %d bytes, the limit is %d", clients, held, limit)
		}
		for _, w := range conns {
			w.nc.Close()
		}
		synctest.Wait()
	})
}
