package httpapi_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
)

// A body of 16 KiB with thousands of wrong events becomes megabytes: its events, their problems and
// the answer. They are counted before they are there.
func TestABodyOfManyWrongEventsCostsWhatTheBudgetsAllow(t *testing.T) {
	const clients, room, first, each = 30, 1 << 20, 12 << 20, 120 << 10
	for name, body := range map[string]string{
		"an array": `{"events":` + many(8000, "5") + `}`,
		"lines":    strings.Repeat("5\n", 8000),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, httpapi.Config{}.With(httpapi.Limits{BodyBytes: room, FetchBytes: room}), func(t *testing.T, d *door) {
				d.topic("orders", 1)
				media := "application/json"
				if name == "lines" {
					media = "application/x-ndjson"
				}
				if a := d.do("POST", "/v1/topics/orders/batch?partial=true", body, "Content-Type: "+media); a.status != 207 {
					t.Fatalf("%d %.200s", a.status, a.body)
				}
				before := live()
				var conns []net.Conn
				for range clients {
					c, err := d.dial(t.Context(), "", "")
					if err != nil {
						t.Fatal(err)
					}
					conns = append(conns, c)
					go fmt.Fprintf(c, "POST /v1/topics/orders/batch?partial=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", media, len(body), body)
				}
				synctest.Wait()
				if held := live() - before; held > 2*room+first+clients*each {
					t.Errorf("%d clients that take no answer hold %d bytes, the limit is %d", clients, held, 2*room+first+clients*each)
				}
				for _, c := range conns {
					c.Close()
				}
				synctest.Wait()
			})
		})
	}
}

// The answers of clients that read nothing stop nobody who publishes a batch.
func TestABatchIsTakenWhileOthersDoNotReadTheirOutcomes(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{BodyBytes: 1 << 20, FetchBytes: 1 << 20}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		body := strings.Repeat("5\n", 8000)
		for range 10 {
			c, err := d.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go fmt.Fprintf(c, "POST /v1/topics/orders/batch?partial=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		synctest.Wait()
		began := time.Now()
		if a := d.do("POST", "/v1/topics/orders/batch?partial=true", body, "Content-Type: application/x-ndjson"); a.status != 207 {
			t.Fatalf("%d %.200s", a.status, a.body)
		}
		if took := time.Since(began); took > 19*time.Second {
			t.Errorf("it waits %v", took)
		}
	})
}
