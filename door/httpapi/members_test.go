package httpapi_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// client is a member of a group over HTTP.
type client struct {
	d    *door
	path string
}

func (d *door) join(groupName, body string) *client {
	d.t.Helper()
	got := d.asJSON("POST", "/v1/groups/"+groupName+"/members", body)
	if got.status != 201 {
		d.t.Fatalf("join: %d %s", got.status, got.body)
	}
	return &client{d, got.header.Get("Location")}
}

// events returns the values of the next events, sorted, and the cursor.
func (c *client) events(query string) (values []string, next string) {
	c.d.t.Helper()
	got := c.d.get(c.path + "/events" + query)
	var answer struct {
		Events []struct{ Topic, Value string }
		Next   string
	}
	got.decode(&answer)
	for _, e := range answer.Events {
		values = append(values, e.Value)
	}
	slices.Sort(values)
	return values, answer.Next
}

func (c *client) commit(body string) answer {
	c.d.t.Helper()
	return c.d.asJSON("POST", c.path+"/commit", body)
}

// publish publishes values, in turn to n partitions.
func (d *door) publish(topic string, n int, values ...string) {
	d.t.Helper()
	for i, v := range values {
		d.do("POST", fmt.Sprintf("/v1/topics/%s/events?partition=%d", topic, i%n), v)
	}
}

func TestMemberReadsAndCommits(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 2)
		d.topic("payments", 1)
		d.publish("orders", 2, "a", "b", "c", "d")
		d.publish("payments", 1, "p")
		c := d.join("billing%2Feu", `{"topics":["orders","payments"],"client":"a test/1"}`)
		all := []string{"a", "b", "c", "d", "p"}
		if got, _ := c.events(""); !slices.Equal(got, all) {
			t.Errorf("it gets %q", got)
		}
		got, next := c.events("?max=3")
		if len(got) != 3 {
			t.Errorf("it gets %q, and asked for 3", got)
		}
		rest, _ := c.events("?after=" + url.QueryEscape(next))
		if both := slices.Sorted(slices.Values(append(got, rest...))); !slices.Equal(both, all) {
			t.Errorf("before and after the cursor are %q and %q", got, rest)
		}
		c.commit(`{"next":"`+next+`"}`).want(204, "")
		if again, _ := c.events(""); !slices.Equal(again, rest) {
			t.Errorf("after the commit it gets %q, want %q", again, rest)
		}
		c.commit(`{"offsets":[{"topic":"orders","partition":0,"offset":2},{"topic":"orders","partition":1,"offset":2},{"topic":"payments","partition":0,"offset":1}]}`).want(204, "")
		c.commit(`{}`).want(204, "")
		if again, _ := c.events(""); len(again) > 0 {
			t.Errorf("after all was committed it gets %q", again)
		}
		if lines := d.get(c.path+"/events", "Accept: application/x-ndjson"); lines.body != "" {
			t.Errorf("in lines: %q", lines.body)
		}
		d.get("/v1/groups/billing%2Feu/offsets").want(200, `{"offsets":[
			{"topic":"orders","partition":0,"offset":2,"end_offset":2,"lag":0},{"topic":"orders","partition":1,"offset":2,"end_offset":2,"lag":0},
			{"topic":"payments","partition":0,"offset":1,"end_offset":1,"lag":0}],"total":3,"lag":0}`)

		d.do("DELETE", c.path, "").want(204, "")
		d.do("DELETE", c.path, "").refused(404, "unknown_member")
		d.get(c.path+"/events").refused(404, "unknown_member", "join again")
		c.commit(`{}`).refused(404, "unknown_member")
		next2 := d.join("billing%2Feu", `{"topics":["orders"]}`)
		d.publish("orders", 2, "e")
		if got, _ := next2.events("?wait_ms=10000"); !slices.Equal(got, []string{"e"}) {
			t.Errorf("the next member gets %q", got)
		}
	})
}

func TestMemberThatBeginsAtTheEnd(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.publish("orders", 1, "before")
	c := d.join("g", `{"topics":["orders"],"from":"latest"}`)
	d.publish("orders", 1, "after")
	if got, _ := c.events("?wait_ms=10000"); !slices.Equal(got, []string{"after"}) {
		t.Errorf("it gets %q", got)
	}
}

// A member that has events of a partition keeps it until it is done with them; then another has it,
// and nobody gets an event twice.
func TestPartitionIsHandedOverOnceItsEventsAreDone(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 2)
		d.publish("orders", 2, "a", "b")
		first := d.join("g", `{"topics":["orders"]}`)
		mine, next := first.events("")
		if !slices.Equal(mine, []string{"a", "b"}) {
			t.Fatalf("the first gets %q", mine)
		}
		second := d.join("g", `{"topics":["orders"]}`)
		if got, _ := second.events("?wait_ms=10000"); len(got) > 0 {
			t.Errorf("the second gets %q, which the first still works on", got)
		}
		first.commit(`{"next":"`+next+`"}`).want(204, "")
		d.publish("orders", 2, "c", "d")
		other, _ := second.events("?wait_ms=20000") // before the first asks again
		one, _ := first.events("?wait_ms=10000")
		if all := slices.Sorted(slices.Values(append(one, other...))); len(one) != 1 || !slices.Equal(all, []string{"c", "d"}) {
			t.Errorf("the first gets %q, the second %q", one, other)
		}
	})
}

func TestSilentMemberIsLetGo(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		d.publish("orders", 1, "a")
		silent := d.join("g", `{"topics":["orders"],"session_ms":5000}`)
		_, next := silent.events("")
		other := d.join("g", `{"topics":["orders"],"session_ms":60000}`)
		if got, _ := other.events("?wait_ms=4000"); len(got) > 0 {
			t.Errorf("the other gets %q while the session of the first runs", got)
		}
		if got, _ := other.events("?wait_ms=20000"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after the session of the first the other gets %q", got)
		}
		silent.commit(`{"next":"`+next+`"}`).refused(404, "unknown_member")
		if !strings.Contains(d.said.String(), "sent no request for the time of its session") {
			t.Error("the log does not say why")
		}
	})
}

// When the process of a member dies, others wait for it hardly longer than for a silent client.
func TestTheSessionOfAMemberIsThatOfItsProcess(t *testing.T) {
	for asked, want := range map[int]int64{2000: 5000, 6000: 6000, 60_000: group.PeerSession.Milliseconds()} {
		store := memory.New()
		d := openOn(t, store, httpapi.Config{})
		d.topic("orders", 1)
		d.join("g", fmt.Sprintf(`{"topics":["orders"],"session_ms":%d}`, asked))
		beats, err := store.List(t.Context(), "group/member/g/", "", 10)
		if err != nil || len(beats) != 1 {
			t.Fatalf("the heartbeats are %v, %v", beats, err)
		}
		if has := fmt.Sprintf(`"session_ms":%d`, want); !strings.Contains(string(beats[0].Value), has) {
			t.Errorf("with session_ms %d the heartbeat is %s, which has no %s", asked, beats[0].Value, has)
		}
	}
}

func TestMemberThatNeverAsksIsLetGo(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		d.publish("orders", 1, "a")
		d.join("g", `{"topics":["orders"],"session_ms":5000}`)
		other := d.join("g", `{"topics":["orders"],"session_ms":60000}`)
		if got, _ := other.events("?wait_ms=30000"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after the session of the first the other gets %q", got)
		}
	})
}

func TestMemberThatAsksIsNotSilent(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		c := d.join("g", `{"topics":["orders"],"session_ms":1000}`)
		c.events("?wait_ms=30000") // longer than its session
		time.Sleep(900 * time.Millisecond)
		c.commit(`{}`).want(204, "")
		time.Sleep(900 * time.Millisecond)
		c.commit(`{}`).want(204, "")
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		c.commit(`{}`).refused(404, "unknown_member")
	})
}

func TestCommitOfAnothersPartitionIsFenced(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.topic("others", 1)
	c := d.join("g", `{"topics":["orders"]}`)
	c.commit(`{"offsets":[{"topic":"others","partition":0,"offset":0}]}`).refused(409, "fenced")
	c.commit(`{"offsets":[{"topic":"orders","partition":1,"offset":0}]}`).refused(409, "fenced")
	c.commit(`{"next":"`+forged("orders", 0, 77, 0)+`"}`).refused(409, "fenced")
	for _, bad := range []string{`{"next":"x"}`, `{"next":"","offsets":[]}`, `{"offsets":[{}]}`, `{"offsets":[{"topic":"orders","partition":0,"offset":-1}]}`, `{"offset":1}`, `[]`} {
		c.commit(bad).refused(400, "invalid_json")
	}
	d.get(c.path+"/events?after=x").refused(400, "invalid_request", "cursor")
	d.get(strings.Replace(c.path, "/g/", "/h/", 1)+"/events").refused(404, "unknown_member")
}

// forged is a cursor of one partition.
func forged(topic string, partition, since, offset uint64) string {
	raw := append([]byte{byte(len(topic))}, topic...)
	for _, n := range []uint64{1, partition, since, offset} {
		raw = binary.AppendUvarint(raw, n)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// The nearest relative of a forged receipt (H10) and a wrong expected version (H12), of which weir
// has none: a cursor that no answer gave.
func TestForgedCursorsAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.topic("secret", 1)
	d.publish("orders", 2, "a", "b")
	d.publish("secret", 1, "s")
	c := d.join("g", `{"topics":["orders"]}`)
	other := d.join("other", `{"topics":["secret"]}`)
	_, next := c.events("")
	_, theirs := other.events("")
	for name, cursor := range map[string]string{
		"of another time":   forged("orders", 0, 77, 1),
		"of no partition":   forged("orders", 5, 1, 1),
		"of another topic":  forged("secret", 0, 1, 1),
		"of another member": theirs,
	} {
		c.commit(`{"next":"`+cursor+`"}`).refused(409, "fenced")
		if got, _ := c.events("?after=" + cursor); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("after a cursor %s comes %q", name, got)
		}
	}
	c.commit(`{"next":"`+forged("orders", 0, 1, 2)+`"}`).refused(416, "offset_out_of_range")
	past := base64.RawURLEncoding.EncodeToString([]byte("\x06orders\x02\xff\xff\xff\xff\x07\x01\x01\x00\x01\x01")) // its second partition is number 1<<31
	for _, cursor := range []string{"orders/0/-1:1", past, next[1:], next + "A", next + next, forged("orders", 0, 1<<31, 1), forged("orders", 0, 1<<64-1, 1), forged("orders", 1<<31, 1, 1), forged("orders", 0, 1, 1<<63), forged("", 0, 1, 1)} {
		c.commit(`{"next":"`+cursor+`"}`).refused(400, "invalid_json", "not a valid cursor")
		d.get(c.path+"/events?after="+cursor).refused(400, "invalid_request", "not a valid cursor")
	}
	d.get("/v1/groups/g/offsets").want(200, `{"offsets":[],"total":0,"lag":0}`)
	c.commit(`{"next":"`+next+`"}`).want(204, "")
}

// What a member gets of very many partitions has a cursor that every program can carry, and all of
// it comes in the end.
func TestCursorOfManyPartitions(t *testing.T) {
	d := open(t, httpapi.Config{})
	const n, longest = 1500, 6 << 10
	name := strings.Repeat("orders-", 7)
	d.topic(name, n)
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `{"value":%d,"partition":%d}`+"\n", i, i)
	}
	if got := d.do("POST", "/v1/topics/"+name+"/batch", all.String(), "Content-Type: application/x-ndjson"); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	c := d.join("g", `{"topics":["`+name+`"]}`)
	first, next := c.events("?max=10000")
	if len(first) < 500 || len(first) == n || len(next) > longest {
		t.Errorf("%d events, and a cursor of %d letters", len(first), len(next))
	}
	d.get(c.path+"/events?max=10000&after="+next).refused(413, "too_large", fmt.Sprint(`"limit":`, longest), "Commit")
	seen := map[string]bool{}
	for len(seen) < n {
		got, next := c.events("?max=10000")
		if len(got) == 0 || len(next) > longest {
			t.Fatalf("after %d events come %d, and a cursor of %d letters", len(seen), len(got), len(next))
		}
		for _, v := range got {
			if seen[v] {
				t.Errorf("%s comes twice", v)
			}
			seen[v] = true
		}
		c.commit(`{"next":"`+next+`"}`).want(204, "")
	}
}

func TestMembersThatCannotBeAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{Members: 1}))
	d.topic("orders", 1)
	for body, says := range map[string]string{
		`{}`:                                     `\"topics\" is missing`,
		`{"topics":["a/b"]}`:                     "invalid topic name",
		`{"topics":["orders"],"from":"now"}`:     `"pointer":"/from"`,
		`{"topics":["orders"],"session_ms":999}`: "from 1000 to 1800000",
		`{"topics":["orders"],"session_ms":1e3}`: "a whole number",
		`{"topics":["orders"],"session":1000}`:   "allowed are",
		`{"topic":["orders"]}`:                   "did you mean topics?",
		`{"topics":"orders"}`:                    "an array is expected",
	} {
		if got := d.asJSON("POST", "/v1/groups/g/members", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	joined, err := d.groups.Join(t.Context(), group.Join{Group: "kafka", ClientID: "c", Session: 10 * time.Second, Rebalance: 10 * time.Second,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "stream"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.groups.Sync(t.Context(), group.Sync{Group: "kafka", Member: joined.Member, Generation: joined.Generation}); err != nil {
		t.Fatal(err)
	}
	d.asJSON("POST", "/v1/groups/kafka/members", `{"topics":["orders"]}`).refused(409, "other_members")

	c := d.join("g", `{"topics":["orders"]}`)
	d.asJSON("POST", "/v1/groups/g/members", `{"topics":["orders"]}`).refused(503, "overloaded", `"limit":1`)
	d.do("DELETE", c.path, "").want(204, "")
	d.join("g", `{"topics":["orders"]}`)
}

func TestMemberIsToldOfAGap(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.publish("orders", 1, "a", "b", "c")
	c := d.join("g", `{"topics":["orders"]}`)
	topic, err := d.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.log.Trim(t.Context(), topic.Partitions[0], 2); err != nil {
		t.Fatal(err)
	}
	if got := d.get(c.path + "/events?wait_ms=10000"); !strings.Contains(got.body, `"gaps":[{"topic":"orders","partition":0,"from":0,"to":2}]`) || !strings.Contains(got.body, `"value":"c"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Of two positions for one partition weir does not choose one.
func TestPositionsThatAreThereTwiceAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	d.publish("orders", 2, "a", "b", "c", "d")
	c := d.join("g", `{"topics":["orders"]}`)
	c.commit(`{"offsets":[{"topic":"orders","partition":0,"offset":2},{"topic":"orders","partition":0,"offset":1}]}`).refused(400, "invalid_json", "twice", `"pointer":"/offsets/1"`)
	for _, offsets := range []string{
		`{"topic":"orders","partition":0,"offset":2},{"topic":"orders","partition":0,"offset":1}`,
		`{"topic":"orders","offset":"earliest"},{"topic":"orders","partition":1,"offset":1}`,
		`{"topic":"orders","partition":0,"timestamp":1},{"topic":"orders","offset":"latest"}`,
	} {
		d.asJSON("PUT", "/v1/groups/resting/offsets", `{"offsets":[`+offsets+`]}`).refused(400, "invalid_request", "twice", "topic orders")
	}
	d.follow("/v1/topics/orders/events?from=0:1,1:0,0:2").refused(400, "invalid_request", "partition 0 is there twice")
	d.get("/v1/groups/g/offsets").want(200, `{"offsets":[],"total":0,"lag":0}`)
	d.get("/v1/groups/resting/offsets").refused(404, "unknown_group")
}

func TestNamesInPathsAreText(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for _, group := range []string{"%FF%FE", "a%C3", "%ED%A0%80"} {
		d.asJSON("POST", "/v1/groups/"+group+"/members", `{"topics":["orders"]}`).refused(400, "invalid_request", "UTF-8")
		d.asJSON("PUT", "/v1/groups/"+group+"/offsets", `{"offsets":[{"topic":"orders","offset":"latest"}]}`).refused(400, "invalid_request", "UTF-8")
		d.get("/v1/groups/"+group).refused(400, "invalid_request", "UTF-8")
	}
	d.get("/v1/groups").want(200, `{"groups":[]}`)
	d.join("gr%C3%BCn%20%F0%9F%92%B6", `{"topics":["orders"]}`)
	d.get("/v1/groups").want(200, `{"groups":[{"name":"grün 💶","state":"Stable","type":"consumer"}]}`)
}

// A topic may come later. Who misspelt its name sees that it is not there.
func TestMissingTopicsAreTold(t *testing.T) {
	store := memory.New()
	d, other := openOn(t, store, httpapi.Config{}), openOn(t, store, httpapi.Config{})
	d.topic("orders", 1)
	other.topic("payments", 1)
	got := d.asJSON("POST", "/v1/groups/g/members", `{"topics":["orders","ordres","payments"]}`)
	if got.status != 201 || !strings.Contains(got.body, `"missing":["ordres"]`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	c := d.join("later", `{"topics":["ordres"]}`)
	d.publish("orders", 1, "a")
	d.topic("ordres", 1)
	d.publish("ordres", 1, "b")
	if got, _ := c.events("?wait_ms=30000"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("it gets %q", got)
	}
	if got := d.asJSON("POST", "/v1/groups/g/members", `{"topics":["orders"]}`); got.status != 201 || strings.Contains(got.body, "missing") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Members came and went since the offsets were last reset. While one is there the reset is refused,
// and afterwards it is not.
func TestOffsetsAreResetAfterMembersCameAndWent(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 1)
		d.publish("orders", 1, "a", "b")
		for _, to := range []string{`"earliest"`, `"latest"`, "1", `"earliest"`} {
			reset := fmt.Sprintf(`{"offsets":[{"topic":"orders","offset":%s}]}`, to)
			if got := d.asJSON("PUT", "/v1/groups/g/offsets", reset); got.status != 200 {
				t.Fatalf("reset to %s: %d %s", to, got.status, got.body)
			}
			c := d.join("g", `{"topics":["orders"]}`)
			d.asJSON("PUT", "/v1/groups/g/offsets", reset).refused(409, "group_not_empty")
			d.do("DELETE", "/v1/groups/g", "").refused(409, "group_not_empty")
			if got := d.do("DELETE", c.path, ""); got.status != 204 {
				t.Fatalf("leave: %d %s", got.status, got.body)
			}
		}
		if got := d.do("DELETE", "/v1/groups/g", ""); got.status != 204 {
			t.Fatalf("delete: %d %s", got.status, got.body)
		}
	})
}

// What a client worked on in a topic that was deleted is not committed into the next topic of that
// name, whose events would be skipped.
func TestCommitOfADeletedTopicIsNotItsNamesakes(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		d.publish("orders", 1, "old", "old", "old")
		c := d.join("g", `{"topics":["orders"],"session_ms":1800000}`)
		if got := d.get(c.path + "/events"); strings.Count(got.body, `"value":"old`) != 3 {
			t.Fatalf("the member gets %s", got.body)
		}
		if err := d.log.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		d.topic("orders", 1)
		d.publish("orders", 1, "new", "new", "new")
		time.Sleep(30 * time.Second) // fake time, in which the member gets the new partition; idle connections are closed after a minute
		const three = `{"offsets":[{"topic":"orders","partition":0,"offset":3}]}`
		c.commit(three).refused(409, "fenced")
		if got := d.get(c.path + "/events?wait_ms=60000"); strings.Count(got.body, `"value":"new`) != 3 {
			t.Errorf("of the new topic the member gets %s", got.body)
		}
		c.commit(three).want(204, "")
	})
}
