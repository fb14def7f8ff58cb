package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
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
			{"topic":"payments","partition":0,"offset":1,"end_offset":1,"lag":0}],"lag":0}`)

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

// A member that has events of a partition keeps it until it is done with them; then another has it, and nobody gets an event twice.
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
		if !strings.Contains(d.said.String(), "silent for its whole session") {
			t.Error("the log does not say why")
		}
	})
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
	c.commit(`{"next":"orders/0/77:0"}`).refused(409, "fenced")
	for _, bad := range []string{`{"next":"x"}`, `{"next":"","offsets":[]}`, `{"offsets":[{}]}`, `{"offsets":[{"topic":"orders","partition":0,"offset":-1}]}`, `{"offset":1}`, `[]`} {
		c.commit(bad).refused(400, "invalid_json")
	}
	d.get(c.path+"/events?after=x").refused(400, "invalid_request", "cursor")
	d.get(strings.Replace(c.path, "/g/", "/h/", 1)+"/events").refused(404, "unknown_member")
}

func TestMembersThatCannotBeAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{Members: 1})
	d.topic("orders", 1)
	for body, says := range map[string]string{
		`{}`:                                     `\"topics\" is missing`,
		`{"topics":["a/b"]}`:                     "invalid topic name",
		`{"topics":["orders"],"from":"now"}`:     `"pointer":"/from"`,
		`{"topics":["orders"],"session_ms":999}`: "from 1000 to 1800000",
		`{"topics":["orders"],"session_ms":1e3}`: "a whole number",
		`{"topics":["orders"],"session":1000}`:   "known are",
		`{"topic":["orders"]}`:                   "do you mean topics?",
		`{"topics":"orders"}`:                    "an array is needed",
	} {
		if got := d.asJSON("POST", "/v1/groups/g/members", body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s\ndoes not say %s", body, got.status, got.body, says)
		}
	}
	joined, err := d.groups.Join(t.Context(), group.Join{Group: "kafka", ClientID: "c", Session: 10 * time.Second, Rebalance: 10 * time.Second,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}}})
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
