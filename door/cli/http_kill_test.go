package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/internal/seed"
)

// Of two processes that serve one store the one that all clients use is killed. Through the other
// one a publication whose answer was lost is sent again and is there once, a stream goes on with
// the next event, and a member takes over what the dead one's had.
func TestHTTPClientsOutliveTheProcessTheyUse(t *testing.T) {
	binary := build(t)
	for name, store := range durableStores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := seed.Random(t)
			first, second := start(t, binary, "serve", "--store", store), start(t, binary, "serve", "--store", store)
			first.must(t, "POST", "/v1/topics", `{"name":"orders","partitions":4}`, nil)

			lost := first.join(t)
			heir := second.join(t)
			const total, publishers = 400, 4
			fatal := 40 + random.Int64N(200) // the answer after which the process dies, while others are on their way
			var publishing, streaming sync.WaitGroup
			var answered atomic.Int64
			answers := make([]string, total)
			for from := range publishers {
				publishing.Go(func() {
					via := first
					for i := from; i < total; {
						status, body, _, err := via.send("POST", "/v1/topics/orders/events", fmt.Sprint(i), fmt.Sprint("key-", i))
						switch {
						case err != nil && via == first:
							via = second
						case err != nil || status != 200:
							t.Errorf("event %d: %d %s, %v", i, status, body, err)
							return
						default:
							answers[i] = body
							i += publishers
							if answered.Add(1) == fatal {
								_ = first.cmd.Process.Kill()
							}
						}
					}
				})
			}
			var seen map[string]int
			streaming.Go(func() { seen = follow(t, total, first, second) })

			// The one member takes some events, and never says what became of them.
			taken, _, _ := lost.events(t)
			publishing.Wait()
			streaming.Wait()
			_ = first.cmd.Wait() // killed, as it should be
			for i := range total {
				if seen[fmt.Sprint(i)] != 1 {
					t.Errorf("event %d came %d times through the stream", i, seen[fmt.Sprint(i)])
				}
			}

			// What the dead process acknowledged the other one knows.
			for i := range total {
				status, body, header, err := second.send("POST", "/v1/topics/orders/events", fmt.Sprint(i), fmt.Sprint("key-", i))
				if err != nil || status != 200 || body != answers[i] || header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("event %d again: %d %s %v, %v; the first answer was %s", i, status, body, header, err, answers[i])
				}
			}
			held := 0
			for p := range 4 {
				_, body := second.must(t, "GET", fmt.Sprintf("/v1/topics/orders/partitions/%d/events?offset=0", p), "", nil)
				held += strings.Count(body, `"offset":`)
			}
			if held != total {
				t.Errorf("the log holds %d events, want %d", held, total)
			}

			inherited := make(map[string]bool)
			for len(inherited) < total {
				got, next, ok := heir.events(t)
				if !ok {
					t.Fatalf("the heir gets no more after %d events", len(inherited))
				}
				for _, v := range got {
					inherited[v] = true
				}
				second.must(t, "POST", heir.path+"/commit", `{"next":"`+next+`"}`, nil)
			}
			for _, v := range taken {
				if !inherited[v] {
					t.Errorf("event %s was with the dead one's member, and is lost", v)
				}
			}
		})
	}
}

// send sends a request under an idempotency key, if there is one, and returns the answer.
func (p *process) send(method, path, body, key string) (status int, answer string, header http.Header, err error) {
	r, err := http.NewRequest(method, "http://"+p.http+path, strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), response.Header, err
}

// must sends a request that succeeds, and reads its answer into v, if that is not nil.
func (p *process) must(t *testing.T, method, path, body string, v any) (http.Header, string) {
	t.Helper()
	status, answer, header, err := p.send(method, path, body, "")
	if err != nil || status >= 300 {
		t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(answer), v); err != nil {
			t.Fatal(err)
		}
	}
	return header, answer
}

// member is a member of the group billing.
type member struct {
	p    *process
	path string
}

func (p *process) join(t *testing.T) *member {
	t.Helper()
	header, _ := p.must(t, "POST", "/v1/groups/billing/members", `{"topics":["orders"]}`, nil)
	return &member{p, header.Get("Location")}
}

// events returns the next events, and the cursor behind them. It is false when the process is gone,
// or nothing comes.
func (m *member) events(t *testing.T) (values []string, next string, ok bool) {
	status, body, _, err := m.p.send("GET", m.path+"/events?wait_ms=60000", "", "")
	var got struct {
		Events []struct{ Value string }
		Next   string
	}
	if err != nil {
		return nil, "", false
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Errorf("member: %d %s, %v", status, body, err)
		return nil, "", false
	}
	for _, e := range got.Events {
		values = append(values, e.Value)
	}
	return values, got.Next, len(values) > 0
}

// follow reads a stream, from one process after the other, until it has so many events, and counts
// each.
func follow(t *testing.T, total int, through ...*process) map[string]int {
	seen, id := make(map[string]int), ""
	for _, p := range through {
		r, err := http.NewRequest("GET", "http://"+p.http+"/v1/topics/orders/events?from=earliest", nil)
		if err != nil {
			t.Error(err)
			return seen
		}
		r.Header.Set("Accept", "text/event-stream")
		if id != "" {
			r.Header.Set("Last-Event-ID", id)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			continue // dead already
		}
		lines, event := bufio.NewReader(response.Body), ""
		for len(seen) < total {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
			switch string(name) {
			case "id":
				event = string(value)
			case "data":
				var e struct{ Value string }
				if err := json.Unmarshal(value, &e); err != nil {
					t.Error(err)
				}
				seen[e.Value]++
				id = event
			}
		}
		response.Body.Close()
	}
	if len(seen) != total {
		t.Errorf("the stream had %d events of %d", len(seen), total)
	}
	return seen
}
