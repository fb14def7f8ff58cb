package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
)

func TestReadingGoesOnWhereItStopped(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for i := range 5 {
		d.do("POST", "/v1/topics/orders/events", fmt.Sprint(i))
	}
	const path = "/v1/topics/orders/partitions/0/events"
	for query, want := range map[string]string{
		"?max=2":                    "0 1 → 2",
		"?offset=2&max=2":           "2 3 → 4",
		"?offset=4":                 "4 → 5",
		"?offset=5":                 "→ 5",
		"?offset=latest":            "→ 5",
		"?offset=earliest":          "0 1 2 3 4 → 5",
		"?max=99999999999999999999": "0 1 2 3 4 → 5",
	} {
		got := d.get(path+query, "Accept: application/x-ndjson")
		var values []string
		for line := range strings.Lines(got.body) {
			_, rest, _ := strings.Cut(line, `"value":"`)
			values = append(values, rest[:1])
		}
		if seen := strings.TrimSpace(strings.Join(values, " ") + " → " + got.header.Get("Weir-Next-Offset")); got.status != 200 || seen != want {
			t.Errorf("%s: %d, %s, want %s", query, got.status, seen, want)
		}
	}
	d.get(path+"?offset=6").refused(416, "offset_out_of_range", `"first_offset":0`, `"end_offset":5`)
	if err := d.log.Trim(t.Context(), 1, 3); err != nil {
		t.Fatal(err)
	}
	d.get(path+"?offset=2").refused(416, "offset_out_of_range", `"first_offset":3`, `"end_offset":5`)
	for _, query := range []string{"?offset=-1", "?offset=x", "?max=0", "?max=x", "?wait_ms=-1", "?wait=5", "?offset=1&offset=2"} {
		d.get(path+query).refused(400, "invalid_request")
	}
	d.get("/v1/topics/orders/partitions/1/events").refused(404, "unknown_partition", "0 to 0")
	d.get("/v1/topics/orders/partitions/x/events").refused(400, "invalid_request")
	d.get("/v1/topics/nowhere/partitions/0/events").refused(404, "unknown_topic")
}

func TestLongPollWakes(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		began := time.Now()
		woken := make(chan answer)
		go func() { woken <- d.get("/v1/topics/orders/partitions/0/events?wait_ms=60000") }()
		synctest.Wait()
		d.do("POST", "/v1/topics/orders/events?timestamp=1", "a").want(200, `{"partition":0,"offset":0}`)
		(<-woken).want(200, `{"events":[{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"a"}],"next_offset":1,"first_offset":0,"end_offset":1}`)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it woke after %v", took)
		}
	})
}

// H13
func TestLongPollIsCapped(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		began := time.Now()
		d.get("/v1/topics/orders/partitions/0/events?wait_ms=1000000000000").want(200, `{"events":[],"next_offset":0,"first_offset":0,"end_offset":0}`)
		if took := time.Since(began); took < 50*time.Second || took > 70*time.Second {
			t.Errorf("it waited for %v", took)
		}
	})
}

func TestLongPollEndsWhenTheServerStops(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		began := time.Now()
		ended := make(chan answer)
		go func() { ended <- d.get("/v1/topics/orders/partitions/0/events?wait_ms=60000") }()
		synctest.Wait()
		d.cancel()
		(<-ended).want(200, `{"events":[],"next_offset":0,"first_offset":0,"end_offset":0}`)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}
