package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/stream"
)

// streamed is a rig with a category that has two streams of five events each, with tags and
// subjects, a deleted one and one whose first events were forgotten.
func streamed(r *rig) *stream.Category {
	r.t.Helper()
	ctx := r.t.Context()
	c, err := r.Streams.CreateCategory(ctx, stream.Spec{Name: "accounts", Partitions: 2})
	r.must(err)
	appendTo := func(name string) {
		for i := range 5 {
			_, err := c.Append(ctx, name, stream.Any, stream.NewEvent{Type: "paid", Data: fmt.Appendf(nil, "%d", i), Tags: []string{"country/de", "x" + name}})
			r.must(err)
		}
	}
	for _, name := range []string{"a/1", "a-2", "gone", "short"} {
		appendTo(name)
	}
	_, err = c.Append(ctx, "secret", stream.NoStream, stream.NewEvent{Type: "paid", Data: []byte("1"), Subject: "me"}, stream.NewEvent{Type: "paid", Data: []byte("1")})
	r.must(err)
	r.must(c.SaveSnapshot(ctx, "a-2", stream.Snapshot{Version: 3, Data: []byte("three")}))
	_, err = c.Delete(ctx, "gone", stream.Exists)
	r.must(err)
	r.must(c.Forget(ctx, "short", 3))
	r.clean()
	return c
}

func (r *rig) eventKey(c *stream.Category, name string, version int) string {
	return fmt.Sprintf("stream/event/%s/%s/%019d", c.ID(), name, version)
}

func TestAMissingKeyOfAnEventIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		for _, version := range []int{0, 2, 4} {
			key := r.eventKey(c, "a-2", version)
			before := r.get(key)
			r.put(eventlog.Put{Key: key})
			r.finds("streams", verify.AtKey(key), "streams") // its tags, too
			r.put(eventlog.Put{Key: key, Value: before})
		}
		r.clean()
	})
}

func TestAnEventWithAnotherContentThanItsRecordIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := r.eventKey(c, "a-2", 2)
		r.put(eventlog.Put{Key: key, Value: r.get(r.eventKey(c, "a-2", 3))}) // the event after it
		r.finds("streams", verify.AtKey(key), "streams")
	})
}

func TestADamagedEventIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := r.eventKey(c, "a-2", 2)
		value := append([]byte(nil), r.get(key)...)
		value[len(value)-2] ^= 64
		r.put(eventlog.Put{Key: key, Value: value})
		r.finds("streams", verify.AtKey(key), "streams")
	})
}

func TestAHeadOfAnOldBackupIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := "stream/head/" + c.ID().String() + "/a-2"
		old := r.get(key)
		_, err := c.Append(t.Context(), "a-2", stream.Any, stream.NewEvent{Type: "paid"})
		r.must(err)
		r.clean()
		r.put(eventlog.Put{Key: key, Value: old})
		r.finds("streams", verify.AtKey(r.eventKey(c, "a-2", 5)), "streams")
	})
}

func TestAHeadBeyondTheEventsIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := "stream/head/" + c.ID().String() + "/a-2"
		r.put(eventlog.Put{Key: key, Value: []byte(strings.Replace(string(r.get(key)), `"next":5`, `"next":6`, 1))})
		r.finds("streams", verify.AtKey(r.eventKey(c, "a-2", 5)))
		r.put(eventlog.Put{Key: key, Value: []byte(strings.Replace(string(r.get(key)), `"next":6`, `"next":5,"first":9`, 1))})
		r.finds("streams", verify.AtKey(key))
	})
}

func TestAMissingHeadIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		r.put(eventlog.Put{Key: "stream/head/" + c.ID().String() + "/a-2"})
		r.finds("streams", verify.AtKey(r.eventKey(c, "a-2", 0)), "streams")
	})
}

func TestAMissingKeyOfATagIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := r.keyUnder("stream/tagged/" + c.ID().String() + "/xa-2/")
		r.put(eventlog.Put{Key: key})
		r.finds("streams", verify.AtKey(key))
	})
}

func TestAKeyOfATagThatNamesAnotherEventIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := r.keyUnder("stream/tagged/" + c.ID().String() + "/xa-2/")
		r.put(eventlog.Put{Key: key, Value: fmt.Appendf(nil, "a-2/%019d", 1)})
		r.finds("streams", verify.AtKey(key), "streams")
	})
}

func TestACountOfATagThatIsTooLowIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := "stream/tag/" + c.ID().String() + "/xa-2"
		r.put(eventlog.Put{Key: key, Value: []byte("4")})
		r.finds("streams", verify.AtKey(key))
		r.put(eventlog.Put{Key: key})
		r.finds("streams", verify.AtKey(key))
	})
}

func TestAMissingKeyOfASubjectIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := "stream/subject/" + c.ID().String() + "/me"
		r.put(eventlog.Put{Key: key})
		r.finds("streams", verify.AtKey(key))
	})
}

func TestASnapshotOfALaterVersionIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		key := fmt.Sprintf("stream/snapshot/%s/a-2/%019d", c.ID(), int64(1<<63-1-77))
		r.put(eventlog.Put{Key: key, Value: []byte{1, 2}})
		r.finds("streams", verify.AtKey(key))
	})
}

func TestAnEventThatIsInTheLogTwiceIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		c := streamed(r)
		topic, err := r.Log.Topic(t.Context(), "accounts")
		r.must(err)
		for _, p := range topic.Partitions {
			batches := r.batches(p)
			if len(batches) == 0 {
				continue
			}
			again := batches[len(batches)-1]
			r.commit(eventlog.Entry{Batches: []eventlog.Batch{again.Batch}})
			r.finds("streams", verify.Place{Topic: c.Name(), Number: indexOf(topic, p), Partition: p, Offset: again.End()})
			return
		}
	})
}

func indexOf(t eventlog.Topic, p eventlog.Partition) int {
	for n, has := range t.Partitions {
		if has == p {
			return n
		}
	}
	return -1
}
