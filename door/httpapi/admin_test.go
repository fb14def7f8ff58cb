package httpapi_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/group"
)

func TestTopicsAreLookedAfter(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{Partitions: 3})
		d.get("/v1/topics").want(200, `{"topics":[]}`)
		made := d.asJSON("POST", "/v1/topics", `{"name":"orders","partitions":2,"config":{"retention.ms":3600000,"compression.type":"zstd"}}`)
		if at := made.header.Get("Location"); made.status != 201 || at != "/v1/topics/orders" {
			t.Fatalf("%d %s, Location %s", made.status, made.body, at)
		}
		d.asJSON("POST", "/v1/topics", `{"name":"orders"}`).refused(409, "topic_exists")
		d.asJSON("POST", "/v1/topics", `{"name":"defaults"}`)
		var list struct{ Topics []topic }
		d.get("/v1/topics").decode(&list)
		if len(list.Topics) != 2 || list.Topics[0].Name != "defaults" || list.Topics[0].Partitions != 3 || list.Topics[1].Partitions != 2 {
			t.Errorf("%+v", list)
		}

		d.do("POST", "/v1/topics/orders/events?partition=1", "a")
		var one topic
		d.get("/v1/topics/orders").decode(&one)
		if one.Config["retention.ms"] != "3600000" || one.Settings["compression.type"] != "zstd" || one.Settings["cleanup.policy"] != "delete" ||
			len(one.Holds) != 2 || one.Holds[1].EndOffset != 1 || one.Holds[1].Bytes == 0 {
			t.Errorf("%+v", one)
		}

		one = topic{}
		d.asJSON("PATCH", "/v1/topics/orders", `{"partitions":4,"config":{"retention.ms":null,"max.message.bytes":"1000"}}`).decode(&one)
		if _, set := one.Config["retention.ms"]; set || one.Config["max.message.bytes"] != "1000" || one.Partitions != 4 {
			t.Errorf("%+v", one)
		}
		d.asJSON("PATCH", "/v1/topics/orders", `{"partitions":3}`).refused(400, "invalid_request", "has 4 partitions, and that number can only be raised")
		d.asJSON("PATCH", "/v1/topics/nowhere", `{"partitions":3}`).refused(404, "unknown_topic")

		d.do("DELETE", "/v1/topics/orders", "").want(204, "")
		d.do("DELETE", "/v1/topics/orders", "").refused(404, "unknown_topic")
		d.get("/v1/topics/orders").refused(404, "unknown_topic")
		d.do("POST", "/v1/topics/orders/events", "a").refused(404, "unknown_topic", "POST /v1/topics")
	})
}

type topic struct {
	Name       string
	Partitions int
	Config     map[string]string
	Settings   map[string]string
	Holds      []struct {
		EndOffset int64 `json:"end_offset"`
		Bytes     int64
	}
}

func (a answer) decode(v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil || a.status >= 300 {
		a.t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

func TestTopicsThatCannotBeAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	for body, says := range map[string]string{
		`{}`:             `\"name\" is missing`,
		`{"name":""}`:    `\"name\" is missing`,
		`{"name":"a/b"}`: "invalid topic name",
		`{"name":"` + strings.Repeat("a", 250) + `"}`: "the limit is 249",
		`{"name":"а"}`:                                        "invalid topic name", // Cyrillic
		`{"name":5}`:                                          `"pointer":"/name"`,
		`{"name":"a","partitions":0}`:                         `"pointer":"/partitions"`,
		`{"name":"a","partitions":10001}`:                     "from 1 to 10000",
		`{"name":"a","partitions":1.5}`:                       "a whole number",
		`{"name":"a","partition":1}`:                          "did you mean partitions?",
		`{"name":"a","config":{"retention":1}}`:               "allowed are cleanup.policy",
		`{"name":"a","config":{"retention.mss":1}}`:           "did you mean retention.ms?",
		`{"name":"a","config":{"retention.ms":"x"}}`:          `"pointer":"/config/retention.ms"`,
		`{"name":"a","config":{"retention.ms":[1]}}`:          `"pointer":"/config/retention.ms"`,
		`{"name":"a","config":{"cleanup.policy":"compress"}}`: "allowed: compact, delete",
		`{"name":"a","config":[]}`:                            "an object is expected here, but there is an array",
	} {
		if got := d.asJSON("POST", "/v1/topics", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	d.do("POST", "/v1/topics", `{"name":"a"}`, "Content-Type: text/plain").refused(415, "unsupported_media_type", "application/json")
	d.get("/v1/topics").want(200, `{"topics":[]}`)
}

func TestAQueuesTopicsCannotBeCompacted(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.asJSON("POST", "/v1/queues", `{"name":"mail","settings":{"keep_done":true,"priorities":2}}`)
		for _, topic := range []string{"mail", "mail.p1", "mail.dlt", "mail.done"} {
			d.asJSON("PATCH", "/v1/topics/"+topic, `{"config":{"cleanup.policy":"compact"}}`).
				refused(400, "invalid_request", `queue \"mail\" needs all records`)
		}
	})
}

func TestGroupsAreLookedAfter(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 2)
		var lines strings.Builder // at once, so that a batch in the log has several
		for i := range 6 {
			fmt.Fprintf(&lines, `{"value":"a","partition":%d,"timestamp":%d}`+"\n", i%2, 1000*i)
		}
		d.do("POST", "/v1/topics/orders/batch", lines.String(), "Content-Type: application/x-ndjson")
		d.get("/v1/groups").want(200, `{"groups":[]}`)
		d.get("/v1/groups/billing").refused(404, "unknown_group")
		d.get("/v1/groups/billing/offsets").refused(404, "unknown_group")

		const name = "/v1/groups/billing%2Feu%20%F0%9F%92%B6"
		reset := func(body, want string) {
			t.Helper()
			d.asJSON("PUT", name+"/offsets", body).want(200, want)
			d.get(name+"/offsets").want(200, want)
		}
		row := func(partition, offset, lag int) string {
			return fmt.Sprintf(`{"topic":"orders","partition":%d,"offset":%d,"end_offset":3,"lag":%d}`, partition, offset, lag)
		}
		reset(`{"offsets":[{"topic":"orders","offset":"earliest"}]}`, `{"offsets":[`+row(0, 0, 3)+","+row(1, 0, 3)+`],"total":2,"lag":6}`)
		reset(`{"offsets":[{"topic":"orders","offset":"latest"}]}`, `{"offsets":[`+row(0, 3, 0)+","+row(1, 3, 0)+`],"total":2,"lag":0}`)
		reset(`{"offsets":[{"topic":"orders","partition":0,"offset":1},{"topic":"orders","partition":1,"offset":2}]}`, `{"offsets":[`+row(0, 1, 2)+","+row(1, 2, 1)+`],"total":2,"lag":3}`)
		reset(`{"offsets":[{"topic":"orders","timestamp":2500}]}`, `{"offsets":[`+row(0, 2, 1)+","+row(1, 1, 2)+`],"total":2,"lag":3}`)
		reset(`{"offsets":[{"topic":"orders","timestamp":99999}]}`, `{"offsets":[`+row(0, 3, 0)+","+row(1, 3, 0)+`],"total":2,"lag":0}`)
		d.asJSON("PUT", name+"/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":0},{"topic":"orders","partition":1,"offset":4}]}`).
			refused(416, "offset_out_of_range", `"end_offset":3`)
		d.get(name+"/offsets").want(200, `{"offsets":[`+row(0, 3, 0)+","+row(1, 3, 0)+`],"total":2,"lag":0}`)

		d.get("/v1/groups").want(200, `{"groups":[{"name":"billing/eu 💶","state":"Empty","type":""}]}`)
		d.get(name).want(200, `{"name":"billing/eu 💶","state":"Empty","type":"","generation":0,"members":[]}`)
		d.do("DELETE", name, "").want(204, "")
		d.do("DELETE", name, "").refused(404, "unknown_group")
	})
}

func TestOffsetsThatMakeNoSenseAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for body, says := range map[string]string{
		`{"offsets":[]}`:                                                "missing or empty",
		`{"offsets":[{"offset":1}]}`:                                    "the topic is missing",
		`{"offsets":[{"topic":"orders"}]}`:                              "either offset or timestamp",
		`{"offsets":[{"topic":"orders","offset":1,"timestamp":1}]}`:     "either offset or timestamp",
		`{"offsets":[{"topic":"orders","offset":"newest"}]}`:            `\"earliest\" or \"latest\"`,
		`{"offsets":[{"topic":"orders","offset":-1}]}`:                  `"pointer":"/offsets/0/offset"`,
		`{"offsets":[{"topic":"orders","offset":9223372036854775808}]}`: `"pointer":"/offsets/0/offset"`,
		`{"offset":[]}`: "did you mean offsets?",
	} {
		if got := d.asJSON("PUT", "/v1/groups/g/offsets", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	d.asJSON("PUT", "/v1/groups/g/offsets", `{"offsets":[{"topic":"nowhere","offset":1}]}`).refused(404, "unknown_topic")
	d.asJSON("PUT", "/v1/groups/g/offsets", `{"offsets":[{"topic":"orders","partition":1,"offset":1}]}`).refused(404, "unknown_partition")
	d.asJSON("PUT", "/v1/groups/"+strings.Repeat("g", 513)+"/offsets", `{"offsets":[{"topic":"orders","offset":"latest"}]}`).
		refused(400, "invalid_request", "512")
}

func TestGroupWithMembersIsNotTouched(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	peer, err := group.New(d.log, group.Config{}).JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Client: "a test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Leave(t.Context())
	d.asJSON("PUT", "/v1/groups/g/offsets", `{"offsets":[{"topic":"orders","offset":"latest"}]}`).refused(409, "group_not_empty")
	d.do("DELETE", "/v1/groups/g", "").refused(409, "group_not_empty")
	got := d.get("/v1/groups/g")
	for _, part := range []string{`"client":"a test"`, `"partitions":{"orders":[0,1]}`, `"state":"Stable"`} {
		if !strings.Contains(got.body, part) {
			t.Errorf("%s\nlacks %s", got.body, part)
		}
	}
}
