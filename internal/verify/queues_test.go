package verify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/queue"
)

// queued is a rig with a queue of which messages are done, claimed, skipped, delayed, dead, and not
// touched yet.
func queued(r *rig) *queue.Queue {
	r.t.Helper()
	ctx := r.t.Context()
	_, err := r.Queues.Create(ctx, queue.Spec{Name: "mails", Partitions: 1, Settings: queue.Settings{Unique: true, Attempts: 1, Window: 100}})
	r.must(err)
	q, err := r.Queues.Open(ctx, "mails")
	r.must(err)
	for i := range 10 {
		_, err := q.Enqueue(ctx, queue.NewMessage{Value: []byte("mail"), Unique: fmt.Sprint("order ", i)})
		r.must(err)
	}
	_, err = q.Enqueue(ctx, queue.NewMessage{Value: []byte("later"), Delay: time.Hour, Unique: "later"})
	r.must(err)
	claimed, err := q.Claim(ctx, queue.Claim{Max: 5, Lease: time.Hour})
	r.must(err)
	if len(claimed) != 5 {
		r.t.Fatalf("claimed %d messages", len(claimed))
	}
	errs, err := q.Ack(ctx, claimed[0].Receipt, claimed[2].Receipt)
	r.must(err)
	for _, err := range errs {
		r.must(err)
	}
	_, err = q.Nack(ctx, queue.Nack{}, claimed[3].Receipt)
	r.must(err)
	r.clean()
	return q
}

func TestAMessageInTwoStatesIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		queued(r)
		key := r.keyUnder("queue/state/")
		value := string(r.get(key))
		for _, damaged := range []string{
			strings.Replace(value, `"runs":"`, `"runs":"w`, 1),                                     // a run more than there are messages
			value[:strings.LastIndexByte(value, ']')] + "," + partOf(value) + "]}",                 // the partition twice
			strings.Replace(value, `"next":5`, `"next":6`, 1),                                      // one message in no state
			strings.NewReplacer(`"next":5`, `"next":15`, `"runs":"`, `"runs":"w10`).Replace(value), // beyond the end
		} {
			if damaged == value {
				t.Fatalf("the state is not damaged: %s", value)
			}
			r.put(eventlog.Put{Key: key, Value: []byte(damaged)})
			r.finds("queues", verify.AtKey(key))
		}
		r.put(eventlog.Put{Key: key, Value: []byte(value)})
		other := key[:strings.LastIndexByte(key, '/')] + "/all"
		r.put(eventlog.Put{Key: other, Value: []byte(value)})
		r.finds("queues", verify.AtKey(other))
	})
}

// partOf is the first element of a state's parts.
func partOf(value string) string {
	from := strings.Index(value, `"parts":[`) + len(`"parts":[`)
	return value[from:strings.LastIndexByte(value, ']')]
}

func TestAnOldStateOfAQueueIsFoundByItsUniqueKeys(t *testing.T) {
	eachStore(t, func(r *rig) {
		q := queued(r)
		key := r.keyUnder("queue/state/")
		_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("mail"), Unique: "new"})
		r.must(err)
		var unique, place string
		list, err := r.store.List(t.Context(), "queue/unique/", "", 100)
		r.must(err)
		for _, kv := range list {
			if strings.HasSuffix(string(kv.Value), "-9") {
				unique, place = kv.Key, string(kv.Value)
			}
		}
		if unique == "" {
			t.Fatalf("no unique key of offset 9 among %v", list)
		}
		value := string(r.get(key))
		// All ten messages are done by this state, and their unique keys are there.
		r.put(eventlog.Put{Key: key, Value: []byte(fmt.Sprintf(`{"writer":"x","parts":[{"partition":%s,"floor":11,"next":11}]}`, between(value, `"partition":`, ",")))})
		found := r.examine()
		if len(found) == 0 {
			t.Fatalf("nothing was found")
		}
		seen := false
		for _, f := range found {
			seen = seen || f.Key == unique
			if f.Check != "queues" || !strings.HasPrefix(f.Key, "queue/unique/") {
				t.Errorf("found elsewhere: %s", f)
			}
		}
		if !seen {
			t.Errorf("the unique key of %s is not among %v", place, found)
		}
	})
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

func TestAUniqueKeyOfADeadMessageIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		q := queued(r)
		_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("mail"), Unique: "again"})
		r.must(err)
		list, err := r.store.List(t.Context(), "queue/unique/", "", 100)
		r.must(err)
		var last eventlog.KeyValue
		for _, kv := range list {
			if strings.HasSuffix(string(kv.Value), "-1") { // the second message is claimed
				last = kv
			}
		}
		if last.Key == "" {
			t.Fatalf("no unique key of offset 1 among %v", list)
		}
		for _, value := range []string{strings.TrimSuffix(string(last.Value), "-1") + "-0", strings.TrimSuffix(string(last.Value), "-1") + "-77", "nonsense"} { // the first message is done
			r.put(eventlog.Put{Key: last.Key, Value: []byte(value)})
			r.finds("queues", verify.AtKey(last.Key))
		}
	})
}

func TestAScheduleWithoutItsMessageIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		q := queued(r)
		_, err := q.SetSchedule(t.Context(), queue.Schedule{Name: "nightly", Cron: "0 3 * * *", Message: queue.NewMessage{Value: []byte("x")}})
		r.must(err)
		r.clean()
		key := r.keyUnder("queue/scheduled/")
		r.put(eventlog.Put{Key: key})
		r.finds("queues", verify.AtKey(key))
	})
}

func TestADamagedDefinitionOfAQueueIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		queued(r)
		key := "queue/def/mails"
		r.put(eventlog.Put{Key: key, Value: []byte(strings.Replace(string(r.get(key)), `"lease":"`, `"lease":"x`, 1))})
		r.finds("queues", verify.AtKey(key))
	})
}

func TestADeletedOrPurgedQueueIsNoFinding(t *testing.T) {
	eachStore(t, func(r *rig) {
		queued(r)
		r.must(r.Queues.Purge(t.Context(), "mails"))
		r.clean()
		r.must(r.Queues.Delete(t.Context(), "mails"))
		r.clean()
	})
}
