package audit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Changes of queues, categories, streams and projections are told, each once, and what was refused
// is not.
func TestEachChangeOfQueuesAndStreamsIsOneEvent(t *testing.T) {
	everystore.Run(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		r := record(t, reopen(t), false)
		ctx := audit.By(t.Context(), alice)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		only := func(what string, verb audit.Verb, object, before, after string) { // besides the topics that it makes
			t.Helper()
			var events []audit.Recorded
			for _, e := range r.news() {
				if !strings.HasPrefix(string(e.Verb), "topic.") {
					events = append(events, e)
				}
			}
			if len(events) != 1 {
				t.Errorf("%s: %+v", what, events)
				return
			}
			if e := events[0]; e.Who != alice || e.Verb != verb || e.Object != object || !has(e.Before, before) || !has(e.After, after) {
				t.Errorf("%s: %+v, before %s, after %s; want %s %s, %q, %q", what, e, e.Before, e.After, verb, object, before, after)
			}
		}
		publisher := publish.New(r.Log.Log, publish.Config{Logger: quiet})
		queues := queue.New(r.Log.Log, publisher, queue.Config{Logger: quiet})
		running, stop := context.WithCancel(context.Background())
		ran := make(chan error, 2)
		go func() { ran <- queues.Run(running) }()
		go func() { ran <- publisher.Run(running) }()
		defer func() {
			stop()
			must(errors.Join(<-ran, <-ran))
		}()

		_, err := queues.Create(ctx, queue.Spec{Name: "mail", Partitions: 1})
		must(err)
		only("create a queue", audit.QueueCreate, "mail", "", `"attempts":10 "topic":"mail"`)
		if _, err := queues.Create(ctx, queue.Spec{Name: "mail"}); !errors.Is(err, queue.ErrQueueExists) {
			t.Error(err)
		}
		r.silent("a queue that exists")
		_, err = queues.Alter(ctx, "mail", func(s *queue.Settings) error { s.Attempts = 3; return nil })
		must(err)
		only("alter a queue", audit.QueueAlter, "mail", `"attempts":10`, `"attempts":3`)
		_, err = queues.Alter(ctx, "mail", func(s *queue.Settings) error { s.Attempts = 3; return nil })
		must(err)
		r.silent("a change of a queue that is none")
		must(queues.Pause(ctx, "mail"))
		only("pause a queue", audit.QueuePause, "mail", `"attempts":3`, `"paused":true`)
		must(queues.Resume(ctx, "mail"))
		only("resume a queue", audit.QueueResume, "mail", `"paused":true`, `"attempts":3`)
		must(queues.Purge(ctx, "mail"))
		only("purge a queue", audit.QueuePurge, "mail", "topic", "topic")
		must(queues.With(ctx, "mail", func(q *queue.Queue) error {
			_, err := q.SetSchedule(ctx, queue.Schedule{Name: "daily", Cron: "0 8 * * *", Message: queue.NewMessage{Value: []byte("marked")}})
			return err
		}))
		only("set a schedule", audit.ScheduleSet, "mail/daily", "", `"cron":"0`)
		must(queues.With(ctx, "mail", func(q *queue.Queue) error { return q.DeleteSchedule(ctx, "daily") }))
		only("delete a schedule", audit.ScheduleDelete, "mail/daily", "daily", "")
		must(queues.Delete(ctx, "mail"))
		only("delete a queue", audit.QueueDelete, "mail", `"attempts":3`, "")

		streams := stream.New(r.Log.Log, stream.Config{Logger: quiet})
		accounts, err := streams.CreateCategory(ctx, stream.Spec{Name: "accounts", Partitions: 1})
		must(err)
		only("create a category", audit.CategoryCreate, "accounts", "", "{}")
		must(accounts.SetRetention(ctx, stream.Retention{Age: time.Hour}))
		only("alter a category", audit.CategoryAlter, "accounts", "{}", "{")
		_, err = accounts.Append(ctx, "one", stream.NoStream, stream.NewEvent{Type: "opened", Data: []byte("marked"), Subject: "marked"})
		must(err)
		r.silent("an append")
		must(accounts.ForgetSubject(ctx, "marked"))
		only("forget a subject", audit.SubjectForget, "accounts", "subject_sha256", "")
		must(accounts.ForgetSubject(ctx, "marked"))
		r.silent("a subject that is forgotten")
		must(accounts.Forget(ctx, "one", 1))
		only("forget events", audit.StreamForget, "accounts/one", "", `"before_version":1`)
		must(accounts.Forget(ctx, "one", 1))
		r.silent("events that are forgotten already")
		must(accounts.Archive(ctx, "one", stream.Any))
		only("archive a stream", audit.StreamAlter, "accounts/one", "", `"archived":true`)
		must(accounts.Archive(ctx, "one", stream.Any))
		r.silent("a stream that is archived already")
		must(accounts.Unarchive(ctx, "one"))
		only("open a stream again", audit.StreamAlter, "accounts/one", "", `"archived":false`)
		must(accounts.SetStreamRetention(ctx, "one", &stream.Retention{Events: 10}))
		only("a stream's own retention", audit.StreamAlter, "accounts/one", "", `"events":10`)
		must(accounts.SetStreamRetention(ctx, "one", nil))
		only("no retention of its own", audit.StreamAlter, "accounts/one", "", `"stream":"one"`)
		_, err = accounts.Delete(ctx, "one", stream.Exists)
		must(err)
		only("delete a stream", audit.StreamDelete, "accounts/one", `"stream":"one"`, "")
		if _, err = accounts.Delete(ctx, "one", stream.Any); err != nil {
			t.Error(err)
		}
		r.silent("a stream that is deleted")

		_, err = streams.EnsureProjection(t.Context(), "balances", 1, nil)
		must(err)
		for _, c := range []struct {
			do   func(context.Context, string) (stream.Projection, error)
			verb audit.Verb
			then string
		}{{streams.PauseProjection, audit.ProjectionPause, `"paused":true`}, {streams.ResumeProjection, audit.ProjectionResume, `"resumed":1`}, {streams.RebuildProjection, audit.ProjectionRebuild, `"next":`}} {
			_, err := c.do(ctx, "balances")
			must(err)
			only(string(c.verb), c.verb, "balances", `"run":`, c.then)
		}
		must(streams.DeleteProjection(ctx, "balances", func(stream.Projection) error { return nil }))
		only("delete a projection", audit.ProjectionDelete, "balances", `"run":`, "")
		groups := group.New(r.Log.Log, group.Config{Logger: quiet})
		topic, err := r.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1})
		must(err)
		of := group.Committed{TopicPartition: group.TopicPartition{Topic: topic.ID}}
		_, err = groups.Commit(ctx, group.Commit{Group: "billing", Generation: -1, Offsets: []group.Committed{of}})
		must(err)
		r.silent("a commit")
		of.Name, of.Offset = "orders", 7
		_, err = groups.Commit(ctx, group.Commit{Group: "billing", Generation: -1, Offsets: []group.Committed{of}, Reset: true})
		must(err)
		only("set offsets", audit.GroupReset, "billing", `"offsets":1 "topic":"orders" "offset":0`, `"offset":7`)
		_, err = groups.Commit(ctx, group.Commit{Group: "billing", Generation: -1, Offsets: []group.Committed{of}, Reset: true})
		must(err)
		r.silent("offsets that are so already")
		errs, err := groups.DeleteOffsets(ctx, "billing", []group.Committed{of})
		must(errors.Join(append(errs, err)...))
		only("delete offsets", audit.GroupReset, "billing", `"offset":7`, "")
		errs, err = groups.DeleteOffsets(ctx, "billing", []group.Committed{of})
		must(errors.Join(append(errs, err)...))
		r.silent("offsets that are not there")
		_, err = groups.Commit(ctx, group.Commit{Group: "billing", Generation: -1, Offsets: []group.Committed{of}})
		must(err)
		must(groups.Delete(ctx, "billing"))
		only("delete a group", audit.GroupDelete, "billing", `"offsets":1`, "")
		if strings.Contains(r.all.String(), "marked") {
			t.Error("the events have what messages, events and subjects hold")
		}
	})
}
