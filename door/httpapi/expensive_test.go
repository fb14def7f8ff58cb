package httpapi_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// wealthy fills a door with much of everything that a request can ask for: 50 topics, one of them
// with 10,000 partitions and one with 3 MB of events, 200 groups, one of them with 1,000 offsets,
// 12 queues, one of them with 300 dead letters, and one with 1,000 partitions. It returns a
// member's path.
func (d *door) wealthy() (member string) {
	d.t.Helper()
	ctx := d.t.Context()
	long := strings.Repeat("n", 200)
	for i := range 50 {
		d.topic(fmt.Sprint(long, i), 1)
	}
	d.topic("fat", 1)
	d.compressed("fat", 0, 30, 100<<10)
	wide, err := d.log.CreateTopic(ctx, eventlog.TopicSpec{Name: "wide", Partitions: 10_000})
	if err != nil {
		d.t.Fatal(err)
	}
	var offsets []group.Committed
	for i := range wide.Partitions {
		offsets = append(offsets, group.Committed{TopicPartition: group.TopicPartition{Topic: wide.ID, Partition: int32(i)}, Name: "wide", LeaderEpoch: -1})
	}
	commit := func(name string, offsets ...group.Committed) {
		if _, err := d.groups.Commit(ctx, group.Commit{Group: name, Generation: -1, Offsets: offsets}); err != nil {
			d.t.Fatal(err)
		}
	}
	commit("g", offsets[:1000]...)
	for i := range 200 {
		commit(fmt.Sprint(long, long, i), offsets[0])
	}
	for i := range 10 {
		d.queue(fmt.Sprint("q", i), "")
	}
	d.queue("poor", `"attempts":1`)
	if a := d.asJSON("POST", "/v1/queues", `{"name":"broad","partitions":1000}`); a.status >= 300 {
		d.t.Fatalf("%d %s", a.status, a.body)
	}
	for n := range 2 {
		var each []string
		for i := range 1000 {
			each = append(each, fmt.Sprintf(`{"key":"%d-%d","value":"v"}`, n, i))
		}
		if a := d.asJSON("POST", "/v1/queues/broad/batch", `{"messages":[`+strings.Join(each, ",")+`]}`); a.status >= 300 {
			d.t.Fatalf("%d %.300s", a.status, a.body)
		}
	}
	batch := `{"messages":` + many(100, fmt.Sprintf(`{"value":%q}`, strings.Repeat("m", 4000))) + `}`
	for range 3 {
		for _, queue := range []string{"poor", "q0"} {
			if a := d.asJSON("POST", "/v1/queues/"+queue+"/batch", batch); a.status >= 300 {
				d.t.Fatalf("%d %.300s", a.status, a.body)
			}
		}
	}
	for i := range 100 {
		path := fmt.Sprintf("/v1/queues/poor/schedules/s%d", i)
		if a := d.asJSON("PUT", path, `{"cron":"@yearly","message":{"value":"`+strings.Repeat("s", 60<<10)+`"}}`); a.status != 200 {
			d.t.Fatalf("%d %.300s", a.status, a.body)
		}
	}
	for dead := 0; dead < 300; {
		var claimed struct{ Messages []struct{ Receipt string } }
		d.asJSON("POST", "/v1/queues/poor/claim", `{"max":1000,"wait_ms":1000}`).into(200, &claimed)
		var receipts []string
		for _, m := range claimed.Messages {
			receipts = append(receipts, `"`+m.Receipt+`"`)
		}
		if dead += len(receipts); len(receipts) == 0 {
			d.t.Fatalf("after %d messages there are none", dead)
		}
		d.asJSON("POST", "/v1/queues/poor/nack", `{"receipts":[`+strings.Join(receipts, ",")+`]}`)
	}
	d.category("shop")
	d.fill("shop", "fat", 40, 100<<10)
	for i := range 5 {
		d.fill("shop", fmt.Sprint(long, i), 1, 1)
	}
	if a := d.append("shop", "tagged", `{"events":`+many(20, `{"type":"t","tags":["fat"],"value":"`+strings.Repeat("v", 5<<10)+`"}`)+`}`); a.status != 201 {
		d.t.Fatalf("%d %s", a.status, a.body)
	}
	d.asJSON("PUT", "/v1/categories/shop/streams/fat/snapshot", `{"version":40,"value":"`+strings.Repeat("s", 800<<10)+`"}`).want(204, "")
	return d.join("readers", `{"topics":["fat"]}`).path
}

// many is a JSON array of so many values.
func many(n int, value string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
}

// expensive are the most expensive requests of each route, as a path and a body; "-" stands for the
// route's own path. What changes a queue as a whole is asked of one that is not there: it answers
// with few bytes, and many at once would only wait for each other.
func expensive(member string) map[string][2]string {
	events := `{"events":` + many(500, `{"value":"v"}`) + `}`
	receipts := `{"receipts":` + many(200, `"AAAA"`) + `}`
	return map[string][2]string{
		"GET /openapi.yaml":                                                 {"-", ""},
		"POST /v1/topics/{topic}/events":                                    {"/v1/topics/fat/events", strings.Repeat("x", 20<<10)},
		"POST /v1/topics/{topic}/batch":                                     {"/v1/topics/fat/batch?partial=true", events},
		"GET /v1/topics/{topic}/partitions/{partition}/events":              {"/v1/topics/fat/partitions/0/events?offset=0", ""},
		"GET /v1/topics/{topic}/events":                                     {"/v1/topics/fat/events?from=earliest", ""},
		"GET /v1/topics":                                                    {"-", ""},
		"POST /v1/topics":                                                   {"-", `{"name":"fat"}`},
		"GET /v1/topics/{topic}":                                            {"/v1/topics/wide", ""},
		"PATCH /v1/topics/{topic}":                                          {"/v1/topics/wide", `{}`},
		"DELETE /v1/topics/{topic}":                                         {"/v1/topics/none", ""},
		"GET /v1/groups":                                                    {"-", ""},
		"GET /v1/groups/{group}":                                            {"/v1/groups/g", ""},
		"DELETE /v1/groups/{group}":                                         {"/v1/groups/none", ""},
		"GET /v1/groups/{group}/offsets":                                    {"/v1/groups/g/offsets", ""},
		"PUT /v1/groups/{group}/offsets":                                    {"/v1/groups/g/offsets", `{"offsets":[{"topic":"wide","offset":"earliest"}]}`},
		"POST /v1/groups/{group}/members":                                   {"/v1/groups/wide/members", `{"topics":["fat"]}`},
		"DELETE /v1/groups/{group}/members/{member}":                        {"/v1/groups/g/members/none", ""},
		"GET /v1/groups/{group}/members/{member}/events":                    {member + "/events", ""},
		"POST /v1/groups/{group}/members/{member}/commit":                   {member + "/commit", `{"offsets":` + many(200, `{"topic":"fat","partition":0,"offset":0}`) + `}`},
		"GET /v1/queues":                                                    {"-", ""},
		"POST /v1/queues":                                                   {"-", `{"name":"q0"}`},
		"GET /v1/queues/{queue}":                                            {"/v1/queues/poor", ""},
		"PATCH /v1/queues/{queue}":                                          {"/v1/queues/none", `{"settings":{"delays_ms":` + many(100, "1000") + `}}`},
		"DELETE /v1/queues/{queue}":                                         {"/v1/queues/none", ""},
		"POST /v1/queues/{queue}/pause":                                     {"/v1/queues/none/pause", ""},
		"POST /v1/queues/{queue}/resume":                                    {"/v1/queues/none/resume", ""},
		"POST /v1/queues/{queue}/purge":                                     {"/v1/queues/none/purge", ""},
		"POST /v1/queues/{queue}/messages":                                  {"/v1/queues/q2/messages", strings.Repeat("x", 20<<10)},
		"POST /v1/queues/{queue}/batch":                                     {"/v1/queues/q2/batch", strings.Replace(events, "events", "messages", 1)},
		"GET /v1/queues/{queue}/messages":                                   {"/v1/queues/q0/messages?max=1000", ""},
		"GET /v1/queues/{queue}/messages/{message}":                         {"/v1/queues/q0/messages/0-0", ""},
		"GET /v1/queues/{queue}/schedules":                                  {"/v1/queues/poor/schedules", ""},
		"GET /v1/queues/{queue}/schedules/{schedule}":                       {"/v1/queues/poor/schedules/s1", ""},
		"PUT /v1/queues/{queue}/schedules/{schedule}":                       {"/v1/queues/q2/schedules/s", `{"cron":"@daily","message":{"value":"` + strings.Repeat("x", 60<<10) + `"}}`},
		"DELETE /v1/queues/{queue}/schedules/{schedule}":                    {"/v1/queues/none/schedules/s", ""},
		"POST /v1/queues/{queue}/claim":                                     {"/v1/queues/q0/claim", `{"max":1000}`},
		"POST /v1/queues/{queue}/ack":                                       {"/v1/queues/q0/ack", receipts},
		"POST /v1/queues/{queue}/nack":                                      {"/v1/queues/q0/nack", receipts},
		"POST /v1/queues/{queue}/extend":                                    {"/v1/queues/q0/extend", receipts},
		"GET /v1/queues/{queue}/dead":                                       {"/v1/queues/poor/dead?max=1000", ""},
		"POST /v1/queues/{queue}/dead/redrive":                              {"/v1/queues/none/dead/redrive", `{"all":true}`},
		"POST /v1/queues/{queue}/dead/discard":                              {"/v1/queues/none/dead/discard", `{"all":true}`},
		"GET /v1/categories":                                                {"-", ""},
		"POST /v1/categories":                                               {"-", `{"name":"shop"}`},
		"GET /v1/categories/{category}":                                     {"/v1/categories/shop", ""},
		"GET /v1/categories/{category}/streams":                             {"/v1/categories/shop/streams?max=1000", ""},
		"GET /v1/categories/{category}/streams/{stream}/events":             {"/v1/categories/shop/streams/fat/events?max=1000", ""},
		"GET /v1/categories/{category}/streams/{stream}/events" + andFollow: {"/v1/categories/shop/streams/fat/events", ""},
		"GET /v1/topics/{topic}/events" + andFollow:                         {"/v1/topics/fat/events?from=earliest", ""},
		"POST /v1/categories/{category}/streams/{stream}/events":            {"/v1/categories/shop/streams/s/events", strings.ReplaceAll(events, `"value"`, `"type":"t","value"`)},
		"DELETE /v1/categories/{category}/streams/{stream}":                 {"/v1/categories/shop/streams/none", ""},
		"PATCH /v1/categories/{category}":                                   {"/v1/categories/none", `{"retention":{"events":5}}`},
		"PUT /v1/categories/{category}/streams/{stream}/retention":          {"/v1/categories/shop/streams/none/retention", `{"events":5}`},
		"DELETE /v1/categories/{category}/streams/{stream}/retention":       {"/v1/categories/shop/streams/none/retention", ""},
		"POST /v1/categories/append":                                        {"-", `{"streams":[` + strings.Replace(strings.ReplaceAll(events, `"value"`, `"type":"t","value"`), "{", `{"category":"shop","stream":"s","expect":0,`, 1) + `]}`},
		"GET /v1/categories/{category}/events":                              {"/v1/categories/shop/events?tag=fat", ""},
		"POST /v1/categories/{category}/subjects/forget":                    {"/v1/categories/shop/subjects/forget", `{"subject":"none"}`},
		"GET /v1/projections":                                               {"-", ""},
		"GET /v1/projections/{projection}":                                  {"/v1/projections/none", ""},
		"DELETE /v1/projections/{projection}":                               {"/v1/projections/none", ""},
		"POST /v1/projections/{projection}/rebuild":                         {"/v1/projections/none/rebuild", ""},
		"POST /v1/projections/{projection}/pause":                           {"/v1/projections/none/pause", ""},
		"POST /v1/projections/{projection}/resume":                          {"/v1/projections/none/resume", ""},
		"GET /v1/keys":                                                      {"-", ""},
		"POST /v1/keys":                                                     {"-", `{"name":"k","access":["read"],"topics":` + many(100, `"`+strings.Repeat("n", 249)+`"`) + `}`},
		"GET /v1/keys/{key}":                                                {"/v1/keys/none", ""},
		"POST /v1/keys/{key}/rotate":                                        {"/v1/keys/none/rotate", ""},
		"DELETE /v1/keys/{key}":                                             {"/v1/keys/none", ""},
		"GET /v1/users":                                                     {"-", ""},
		"POST /v1/users":                                                    {"-", `{"name":"u","password":"a long password"}`},
		"GET /v1/users/{user}":                                              {"/v1/users/user1", ""},
		"PUT /v1/users/{user}/password":                                     {"/v1/users/user1/password", `{"password":"a long password"}`},
		"DELETE /v1/users/{user}":                                           {"/v1/users/none", ""},
		"GET /v1/acls":                                                      {"-", ""},
		"POST /v1/acls":                                                     {"-", `{"principal":"User:a","effect":"allow","operation":"read","resource_type":"topic","name":"` + strings.Repeat("n", 255) + `"}`},
		"DELETE /v1/acls":                                                   {"/v1/acls?principal=User:none", ""},
		"GET /v1/quotas":                                                    {"-", ""},
		"PATCH /v1/quotas":                                                  {"-", `{"user":"user1","limits":{"producer_byte_rate":5}}`},
		"DELETE /v1/quotas":                                                 {"/v1/quotas?user=none", ""},
		"POST /v1/categories/{category}/streams/{stream}/archive":           {"/v1/categories/shop/streams/none/archive", ""},
		"POST /v1/categories/{category}/streams/{stream}/unarchive":         {"/v1/categories/shop/streams/none/unarchive", ""},
		"GET /v1/categories/{category}/streams/{stream}/snapshot":           {"/v1/categories/shop/streams/fat/snapshot", ""},
		"PUT /v1/categories/{category}/streams/{stream}/snapshot":           {"/v1/categories/shop/streams/fat/snapshot", `{"version":40,"value":"` + strings.Repeat("x", 100<<10) + `"}`},
	}
}

// andFollow marks a request whose events come as they are published.
const andFollow = ", followed"

var follows = []string{"GET /v1/topics/{topic}/events" + andFollow, "GET /v1/categories/{category}/streams/{stream}/events" + andFollow}

// accepts is the Accept of a request.
func accepts(pattern string) string {
	if slices.Contains(follows, pattern) {
		return "text/event-stream"
	}
	return "application/json"
}

// What answers hold while nobody takes them stays within what the door may have for bodies and
// answers, whatever is asked for, however many ask.
func TestAnswersThatNobodyTakesStayWithinTheirBudget(t *testing.T) {
	const (
		clients = 20
		room    = 1 << 20   // for bodies, and for answers
		made    = 6 << 20   // four answers being made whole, a page beyond the budget, and what bodies become when they are parsed
		each    = 100 << 10 // goroutines and buffers, and a small body and answer, which are not counted
		limit   = 2*room + made + clients*each
	)
	synctest.Test(t, func(t *testing.T) {
		store, at := memory.New(), newPipes()
		cfg := managing(store).With(httpapi.Limits{BodyBytes: room, FetchBytes: room})
		cfg.Insecure = true // connections in memory come from no address
		d := openAt(t, store, cfg, at, at.dial)
		defer d.stop()
		requests, administrator := expensive(d.wealthy()), ""
		for _, pattern := range slices.Concat(httpapi.Routes(), follows) {
			pattern, _, _ = strings.Cut(pattern, "?")
			r, there := requests[pattern]
			if !there {
				t.Errorf("%s: which is its most expensive request?", pattern)
				continue
			}
			method, path, _ := strings.Cut(pattern, " ")
			if r[0] != "-" {
				path = r[0]
			}
			if administrator == "" && manages(pattern) {
				administrator = d.administrator(cfg)
			}
			var conns []net.Conn
			before := live()
			for range clients {
				c, err := d.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
				go fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sAccept: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, administrator, accepts(pattern), len(r[1]), r[1])
			}
			synctest.Wait()
			if held := live() - before; held > limit {
				t.Errorf("%s: %d clients that take no answer hold %d bytes, the limit is %d", pattern, clients, held, limit)
			}
			for _, c := range conns {
				c.Close()
			}
			synctest.Wait()
		}
	})
}
