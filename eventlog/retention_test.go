package eventlog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// Who copies old records into a new topic gets as much time to read them as Kafka's log.retention.check.interval.ms gives.
func TestBackFilledRecordsStayForOneCheckInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		time.Sleep(7 * time.Second) // the log has run for longer than one tick
		p := topic(t, log, "history", 1).Partitions[0]
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("x"), Timestamp: 1234}); err != nil {
			t.Fatal(err)
		}
		held := func() eventlog.Offset {
			b, _ := log.Known(p)
			return b.Next - b.First
		}
		time.Sleep(5*time.Minute - time.Second)
		if held() != 1 {
			t.Error("a record of 1970 is gone before the first check is due")
		}
		time.Sleep(10 * time.Second)
		if held() != 0 {
			t.Error("a record of 1970 is there after the first check")
		}
	})
}

// A topic that keeps records for a short time is checked more often, so that they do not stay for several times as long.
func TestShortRetentionIsCheckedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Publish(t.Context(), made.Partitions[0], batch.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(71 * time.Second)
		if b, _ := log.Known(made.Partitions[0]); b.First != 1 {
			t.Errorf("a record that is kept for a minute is there after 71 s: %+v", b)
		}
	})
}

// A process that was stopped for long knows topics as they were: it must not delete what the topic keeps by now.
func TestAProcessThatIsBehindDoesNotTrimByOldSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "audit", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Publish(t.Context(), made.Partitions[0], batch.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		open(t, store, eventlog.Config{Poll: 24 * time.Hour}) // it hears of nothing, as if it had been stopped
		if _, err := log.AlterTopic(t.Context(), "audit", func(c map[string]string) error { c["retention.ms"] = "-1"; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if b, err := log.Bounds(t.Context(), made.Partitions[0]); err != nil || b[0].Bounds.First != 0 {
			t.Errorf("%+v, %v: a record that is kept for ever is gone", b, err)
		}
	})
}

// Retention finds where to trim, and the store loses its end before it does: younger records have these offsets now.
func TestRetentionDoesNotTrimByOffsetsOfALostEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seam := &asked{Store: store}
		log := open(t, seam, eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Partitions[0]
		restore := store.Backup()
		for range 10 {
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("old")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		found := false
		seam.onceBefore("topic/short", func() { // it looks at the topic's settings, right before it trims
			found = true
			changed := log.IncarnationChanged()
			restore(false)
			<-changed
			for range 3 {
				if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("young")}); err != nil {
					t.Error(err)
				}
			}
		})
		time.Sleep(25 * time.Second)
		if b, err := log.Bounds(t.Context(), p); err != nil || !found || b[0].Bounds.First != 0 || b[0].Bounds.Next != 3 {
			t.Errorf("%+v, %v (%v), want the three records that are younger than a minute", b, err, found)
		}
	})
}
