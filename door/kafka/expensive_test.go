package kafka_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// expensive fills a request with as many mentions as fit of what there is: a large topic, a group, a broker.
func expensive(v reflect.Value, name string, id [16]byte, repeat, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for i := range v.NumField() {
			f := v.Field(i)
			switch field := v.Type().Field(i).Name; {
			case field == "Version" || field == "UnknownTags":
			case field == "ResourceType":
				f.SetInt(int64(kmsg.ConfigResourceTypeTopic))
			case field == "TopicID":
				f.Set(reflect.ValueOf(id))
			case strings.HasPrefix(field, "Include"):
				f.SetBool(true)
			default:
				expensive(f, name, id, repeat, depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		n := repeat
		if depth > 1 {
			n = 3
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			expensive(v.Index(i), name, id, repeat, depth)
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.New(v.Type().Elem()))
			v.Elem().SetString(name)
		}
	case reflect.String:
		v.SetString(name)
	case reflect.Int64:
		v.SetInt(1)
	}
}

// A request may cost what there is once, and a multiple of its own bytes: not their product.
func TestNoRequestCostsMoreThanItsBytesAndWhatThereIs(t *testing.T) {
	b := start(t, kafka.Config{NoAutoCreate: true})
	topic := b.createTopic("t", 2000, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("v")))
	metadata := strings.Repeat("m", 4000)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "t", -1
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = "t"
	for number := range int32(20) { // 80 KiB of metadata
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Metadata = number, &metadata
		of.Partitions = append(of.Partitions, p)
	}
	commit.Topics = append(commit.Topics, of)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, commit).Topics[0].Partitions[0].ErrorCode, nil)

	const (
		size   = 64 << 10 // of a request
		factor = 80       // bytes allocated for each, by the broker and by this test's client; garbage included
		there  = 24 << 20 // what all there is takes, in one answer
	)
	for _, key := range b.keys() {
		if key == kmsg.Fetch {
			continue // its records have a budget of their own
		}
		for _, named := range []string{"t", "no such", ""} {
			version := b.maxVersion(key)
			id := topic.ID
			if named != "t" {
				id = [16]byte{1}
			}
			for repeat := 256; repeat <= 1<<14; repeat *= 4 {
				req := kmsg.RequestForKey(int16(key))
				expensive(reflect.ValueOf(req).Elem(), named, id, repeat, 0)
				req.SetVersion(version)
				raw := frame(req, 1)
				if len(raw) > size {
					break
				}
				if got, limit := b.costOf(req, raw), uint64(factor*len(raw)+there); got > limit {
					t.Errorf("%s of %q: a request of %d bytes allocated %d, the limit is %d", key.Name(), named, len(raw), got, limit)
				}
			}
		}
	}
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
