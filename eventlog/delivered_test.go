package eventlog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// ages are those of the records for which readers waited.
type ages struct {
	failures
	all []time.Duration
}

func (a *ages) Delivered(age time.Duration) { a.all = append(a.all, age) }

// Only who waited for records tells how long they took: others read what has been there.
func TestTheAgeOfRecordsIsToldForWhichAReaderWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &ages{}
		log := open(t, memory.New(), eventlog.Config{Observer: seen})
		p := topic(t, log, "t", 1).Partitions[0]
		publish := func(ago time.Duration) {
			t.Helper()
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v"), Timestamp: time.Now().Add(-ago).UnixMilli()}); err != nil {
				t.Error(err)
			}
		}
		fetch := func(from eventlog.Offset, wait time.Duration) {
			t.Helper()
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}, MaxWait: wait})
			if err != nil || len(got[0].Batches) == 0 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		publish(time.Minute)
		fetch(0, 0)
		fetch(0, time.Hour) // it is there already
		for i, ago := range []time.Duration{1500 * time.Millisecond, -time.Hour} {
			read := make(chan struct{})
			go func() { defer close(read); fetch(eventlog.Offset(i+1), time.Hour) }()
			synctest.Wait()
			time.Sleep(time.Second)
			publish(ago)
			<-read
		}
		if want := []time.Duration{1500 * time.Millisecond, 0}; !slices.Equal(seen.all, want) {
			t.Errorf("told: %v, want %v", seen.all, want)
		}
	})
}
