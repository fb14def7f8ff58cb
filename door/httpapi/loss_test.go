package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/store/memory"
)

// onLoss runs a test with a store that knows that it lost its end, and with one that does not.
func onLoss(t *testing.T, test func(t *testing.T, d *door, store *memory.Store, silently bool)) {
	for name, silently := range map[string]bool{"the store tells": false, "only the bounds show it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, l := memory.New(), newPipes()
				d := openAt(t, store, httpapi.Config{}, l, l.dial)
				defer d.stop()
				test(t, d, store, silently)
			})
		})
	}
}

// lose makes the store lose what was published after the backup. When it returns the log knows, and
// partition 0 has grown past its old end.
func (d *door) lose(restore func(silently bool), silently bool, topic string) {
	d.t.Helper()
	changed := d.log.IncarnationChanged()
	restore(silently)
	select {
	case <-changed:
	case <-time.After(time.Minute): // fake time
		d.t.Fatal("the log did not see that its store lost its end")
	}
	for i := range 10 {
		d.do("POST", "/v1/topics/"+topic+"/events?partition=0", fmt.Sprint("new ", i))
	}
}

// A stream that waits ends, and so does one that is busy while the partition grows past its
// position.
func TestStreamEndsWhereTheStoreLostWhatItSent(t *testing.T) {
	onLoss(t, func(t *testing.T, d *door, store *memory.Store, silently bool) {
		d.topic("orders", 2)
		d.publish("orders", 1, "kept 0", "kept 1", "kept 2")
		restore := store.Backup()
		d.publish("orders", 1, "lost 3", "lost 4", strings.Repeat("lost 5", 10_000))
		waits := d.listen("/v1/topics/orders/events?from=earliest")
		waits.values(6)
		busy := d.listen("/v1/topics/orders/events?from=earliest")
		lines := d.listen("/v1/topics/orders/events?from=0:5&partition=0", "Accept: application/x-ndjson")
		synctest.Wait() // busy and lines write an event that their clients do not take yet
		d.lose(restore, silently, "orders")
		busy.values(6)
		for _, l := range []*listener{waits, busy} {
			if _, data, more := l.message(); more {
				t.Errorf("after what is lost the stream has %s", data)
			}
			d.resumes(l.id)
		}
		lines.lines.Scan()
		for lines.lines.Scan() {
			if text := lines.lines.Text(); text != "" {
				t.Errorf("after what is lost the lines have %s", text)
			}
		}
	})
}

// Where one partition of a stream lost its end, the others' events wait for the client to come
// back: their ids would hide the loss.
func TestNoIDHidesALoss(t *testing.T) {
	onLoss(t, func(t *testing.T, d *door, store *memory.Store, silently bool) {
		d.topic("orders", 2)
		d.publish("orders", 2, "kept", "kept elsewhere")
		restore := store.Backup()
		d.do("POST", "/v1/topics/orders/events?partition=1", strings.Repeat("lost", 10_000))
		l := d.listen("/v1/topics/orders/events?from=earliest")
		synctest.Wait() // it writes an event that its client does not take yet
		d.lose(restore, silently, "orders")
		d.publish("orders", 2, strings.Repeat("new", 100_000), "new elsewhere", "new 11", "newer elsewhere")
		l.values(3)
		for more := true; more; {
			_, _, more = l.message()
		}
		d.follow("/v1/topics/orders/events", "Last-Event-ID: "+l.id).refused(416, "offset_out_of_range", "topic orders, partition 1", "from offset 1 to 1", `"end_offset":1`)
	})
}

// resumes comes back with an id behind a loss of 3 to 5, is told so, and reads on as it is told to.
func (d *door) resumes(id string) {
	d.t.Helper()
	for range 2 { // it is told each time
		told := d.follow("/v1/topics/orders/events", "Last-Event-ID: "+id).
			refused(416, "offset_out_of_range", "topic orders, partition 0", "from offset 3 to 5", `"first_offset":0,"end_offset":3`)
		var p struct{ Detail string }
		if err := json.Unmarshal([]byte(told.body), &p); err != nil {
			d.t.Fatal(err)
		}
		_, from, _ := strings.Cut(p.Detail, "from=")
		l := d.listen("/v1/topics/orders/events?from=" + from)
		if got := l.values(2); !slices.Equal(got, []string{"new 0", "new 1"}) {
			d.t.Errorf("after the loss the stream has %q", got)
		}
		l.close()
		back := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+l.id)
		if got := back.values(1); got[0] != "new 2" {
			d.t.Errorf("it comes back to %q", got)
		}
		back.close()
	}
}

// A client that was away while the store lost its end, and the partition grew past the client's
// position, is told.
func TestAPositionBehindALossIsRefused(t *testing.T) {
	onLoss(t, func(t *testing.T, d *door, store *memory.Store, silently bool) {
		d.topic("orders", 2)
		d.publish("orders", 1, "kept 0", "kept 1", "kept 2")
		restore := store.Backup()
		early := d.listen("/v1/topics/orders/events?from=earliest")
		early.values(3)
		early.close()
		d.publish("orders", 2, "lost 3", "lost elsewhere", "lost 4", "lost elsewhere", "lost 5")
		late := d.listen("/v1/topics/orders/events?from=earliest")
		late.values(8)
		late.close()
		d.lose(restore, silently, "orders")
		d.publish("orders", 2, "new 10", "new elsewhere", "new 11", "new elsewhere", "new 12", "new elsewhere")
		d.resumes(late.id)

		// What was read before the loss is still there.
		l := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+early.id)
		if got := l.values(1); !strings.HasPrefix(got[0], "new ") {
			t.Errorf("after what was kept comes %q", got)
		}
		l.close()

		// Without an epoch nobody knows what was read.
		mark, _, _ := strings.Cut(early.id, ".")
		old := late.id[:strings.LastIndex(late.id, ".")]
		for _, from := range []string{old, mark + "/0:6,1:2", "0:6,1:2"} {
			l := d.listen("/v1/topics/orders/events?partition=0&from=" + from)
			if got := l.values(1); got[0] != "new 3" {
				t.Errorf("at %s comes %q", from, got)
			}
			l.close()
		}
	})
}

// What was lost in several partitions is not skipped in one because the client was told of another.
func TestALossInSeveralPartitionsIsResumedInAll(t *testing.T) {
	onLoss(t, func(t *testing.T, d *door, store *memory.Store, silently bool) {
		d.topic("orders", 2)
		d.publish("orders", 2, "kept", "kept")
		restore := store.Backup()
		d.publish("orders", 2, "lost", "lost")
		l := d.listen("/v1/topics/orders/events?from=earliest")
		l.values(4)
		synctest.Wait()
		d.lose(restore, silently, "orders")
		d.do("POST", "/v1/topics/orders/events?partition=1", "new elsewhere")
		d.do("POST", "/v1/topics/orders/events?partition=1", "newer elsewhere")
		told := d.follow("/v1/topics/orders/events", "Last-Event-ID: "+l.id).refused(416, "offset_out_of_range")
		_, from, _ := strings.Cut(told.body, "from=")
		from, _, _ = strings.Cut(from, `"`)
		got := d.listen("/v1/topics/orders/events?from=" + from).values(12)
		for _, want := range []string{"new 0", "new elsewhere"} {
			if !slices.Contains(got, want) {
				t.Errorf("after the loss the stream has %q", got)
			}
		}
	})
}

// An idle stream goes on in a new epoch where nothing is lost, and gives its client an id of it:
// the log forgets old ones.
func TestIdleStreamGetsAnIDOfTheNewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, l := memory.New(), newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		d.publish("orders", 1, "kept")
		idle := d.listen("/v1/topics/orders/events?from=earliest")
		idle.values(1)
		runs := idle.id[:strings.LastIndex(idle.id, ".")+1]
		id := ""
		for range 10 {
			changed := d.log.IncarnationChanged()
			store.Backup()(false)
			<-changed
			id = fmt.Sprint(runs, d.log.LeaderEpoch())
			for idle.lines.Scan() && idle.lines.Text() != "id: "+id {
			}
			if idle.lines.Text() != "id: "+id {
				t.Fatalf("the stream ends without the id %s: %v", id, idle.lines.Err())
			}
			if idle.lines.Scan(); idle.lines.Text() != "" {
				t.Errorf("after the id comes %q, and clients take an id at an empty line", idle.lines.Text())
			}
		}
		idle.close()
		back := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+runs+"0")
		for range 2 { // after how soon to retry
			back.lines.Scan()
		}
		if back.lines.Text() != "id: "+id {
			t.Errorf("a stream of the first epoch begins with %s, want the id %s", back.lines.Text(), id)
		}
		d.publish("orders", 1, "new")
		if got := back.values(1); got[0] != "new" {
			t.Errorf("it comes back to %q", got)
		}
	})
}
