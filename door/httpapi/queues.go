package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// queueView is a queue in an answer. In lists the counts are left out: they cost store calls.
type queueView struct {
	Name     string       `json:"name"`
	ID       string       `json:"id"`
	Topic    string       `json:"topic"`
	Settings settingsView `json:"settings"`
	Counts   *countsView  `json:"counts,omitempty"`
}

type settingsView struct {
	Lease       int64   `json:"lease_ms"`
	Attempts    int     `json:"attempts"` // -1: for ever
	Backoff     int64   `json:"backoff_ms"`
	BackoffMax  int64   `json:"backoff_max_ms"`
	Delays      []int64 `json:"delays_ms,omitempty"`
	TTL         int64   `json:"ttl_ms,omitempty"`
	DropExpired bool    `json:"drop_expired"`
	KeyOrder    bool    `json:"key_order"`
	KeepDone    bool    `json:"keep_done"`
	Window      int     `json:"window"`
	Paused      bool    `json:"paused"`
	Unique      bool    `json:"unique"`
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
	Priorities  int     `json:"priorities"`
}

type countsView struct {
	Ready   int64  `json:"ready"`
	Claimed int64  `json:"claimed"`
	Waiting int64  `json:"waiting"`
	Delayed *int64 `json:"delayed,omitempty"`
	Dead    int64  `json:"dead"`
	Oldest  int64  `json:"oldest_ms"`
}

func viewOfQueue(q queue.Info) queueView {
	s := q.Settings
	v := settingsView{
		Lease: s.Lease.Milliseconds(), Attempts: max(s.Attempts, -1), Backoff: s.Backoff.Milliseconds(), BackoffMax: s.BackoffMax.Milliseconds(), TTL: s.TTL.Milliseconds(),
		DropExpired: s.DropExpired, KeyOrder: s.KeyOrder, KeepDone: s.KeepDone, Window: s.Window, Paused: s.Paused, Unique: s.Unique,
		Concurrency: s.Concurrency, Rate: s.Rate, Priorities: s.Priorities,
	}
	for _, d := range s.Delays {
		v.Delays = append(v.Delays, d.Milliseconds())
	}
	return queueView{Name: q.Name, ID: q.ID, Topic: q.Topic, Settings: v}
}

// withQueue calls a function with the queue in the path.
func (s *Server) withQueue(ctx context.Context, c *call, do func(*queue.Queue) error) error {
	return s.cfg.Queues.With(ctx, c.r.PathValue("queue"), do)
}

// listQueues lists the queues that the caller may see.
func (s *Server) listQueues(c *call) error {
	read := func(ctx context.Context) ([]queue.Info, error) {
		return s.cfg.Queues.Select(ctx, c.who.queuePrefixes())
	}
	return answerList(c, "queues", read, func(q queue.Info) bool { return c.who.mayQueue(toDescribe, q.Name, q.Topic) }, viewOfQueue)
}

// describeQueue returns a queue with its counts.
func (s *Server) describeQueue(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil { // a queue may have thousands of partitions
		return err
	}
	return s.withQueue(ctx, c, func(q *queue.Queue) error {
		info, err := q.Now(ctx)
		if err != nil {
			return err
		}
		counts, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		v := viewOfQueue(info)
		v.Counts = &countsView{Ready: counts.Ready, Claimed: counts.Claimed, Waiting: counts.Waiting, Dead: counts.Dead, Oldest: counts.Oldest.Milliseconds()}
		if counts.Delayed >= 0 {
			v.Counts.Delayed = &counts.Delayed
		}
		return c.json(http.StatusOK, v)
	})
}

// queueChange is the body of a request that creates or alters a queue.
type queueChange struct {
	spec queue.Spec
	edit []func(*queue.Settings)
}

func (change queueChange) apply(s *queue.Settings) error {
	for _, edit := range change.edit {
		edit(s)
	}
	return nil
}

// createQueue creates a queue.
func (s *Server) createQueue(c *call) error {
	change, err := s.readQueueChange(c, true)
	if err != nil {
		return err
	}
	if !c.who.mayMakeQueue(change.spec.Name) {
		return c.who.forbidden(toMakeQueue, "queue", change.spec.Name)
	}
	_ = change.apply(&change.spec.Settings) // it never fails
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := s.cfg.Log.RefreshTopics(ctx); err != nil {
		return err
	}
	if err := s.mayTakeTopics(ctx, c, change.spec.Topic, queue.TopicsOf(change.spec.Name)); err != nil {
		return err
	}
	info, err := s.cfg.Queues.Create(ctx, change.spec)
	if uncertain(err) {
		return kindUnknown.because("the queue was sent to the store, or topics of it were created, but no answer came. GET /v1/queues/%s shows whether it exists. If the answer is unknown_queue, try again: topics that exist do no harm", url.PathEscape(shorten(change.spec.Name))).causedBy(err)
	}
	if err != nil {
		return err
	}
	c.Header().Set("Location", "/v1/queues/"+url.PathEscape(info.Name))
	return c.json(http.StatusCreated, viewOfQueue(info))
}

// mayTakeTopics checks that a client does not gain access to existing topics through a queue:
// access to a queue is access to the records of its topic, and of the topics of its dead letters
// and priorities. named is the topic in the request, or "": an API key without access to this topic
// is refused whether or not the topic exists, and so does not learn which. A user may let the queue
// create only topics that the user may create.
func (s *Server) mayTakeTopics(ctx context.Context, c *call, named string, topics []string) error {
	for _, name := range append(topics, named) {
		uses, creates := c.who.mayTopic(toRead, name) && c.who.mayTopic(toWrite, name), c.who.user == "" || c.who.mayTopic(toCreate, name)
		if name == "" || uses && creates {
			continue
		}
		_, err := s.cfg.Log.Topic(ctx, name)
		switch {
		case c.who.user != "" && err != nil && !errors.Is(err, eventlog.ErrUnknownTopic):
			return err
		case c.who.user != "" && (err == nil && !uses || err != nil && !creates):
			return kindForbidden.because("the queue would use topic %s; for this the %s needs READ and WRITE on the topic if it exists, and CREATE if it does not", shorten(name), c.who)
		case c.who.user == "" && (name == named || err == nil):
			return kindForbidden.because("the queue would use topic %s; for this the %s needs read and write access to the topic", shorten(name), c.who)
		}
	}
	return nil
}

// alterQueue changes settings, all or nothing.
func (s *Server) alterQueue(c *call) error {
	change, err := s.readQueueChange(c, false)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := s.cfg.Log.RefreshTopics(ctx); err != nil {
		return err
	}
	name := c.r.PathValue("queue")
	info, err := s.cfg.Queues.Alter(ctx, name, func(settings *queue.Settings) error {
		before := queue.TopicsOfSettings(name, *settings)
		if err := change.apply(settings); err != nil {
			return err
		}
		added := slices.DeleteFunc(queue.TopicsOfSettings(name, *settings), func(topic string) bool { return slices.Contains(before, topic) })
		return s.mayTakeTopics(ctx, c, "", added)
	})
	if uncertain(err) {
		return kindUnknown.because("the change was sent to the store, or topics for it were created, but no answer came. GET /v1/queues/%s shows the settings; it is safe to send the request again", url.PathEscape(shorten(name))).causedBy(err)
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, viewOfQueue(info))
}

// deleteQueue deletes a queue. Its topics stay.
func (s *Server) deleteQueue(c *call) error { return s.queueVerb(c, s.cfg.Queues.Delete) }
func (s *Server) pauseQueue(c *call) error  { return s.queueVerb(c, s.cfg.Queues.Pause) }
func (s *Server) resumeQueue(c *call) error { return s.queueVerb(c, s.cfg.Queues.Resume) }

// purgeQueue discards a queue's messages.
func (s *Server) purgeQueue(c *call) error {
	err := s.queueVerb(c, s.cfg.Queues.Purge)
	if uncertain(err) {
		return kindUnknown.because("the purge was sent to the store, or a topic was created for it, but no answer came. Purge again: that also removes messages that have come meanwhile").causedBy(err)
	}
	return err
}

// queueVerb is a handler for an action that needs only the queue's name.
func (s *Server) queueVerb(c *call, do func(context.Context, string) error) error {
	if err := s.noBody(c); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := do(ctx, c.r.PathValue("queue")); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// readQueueChange reads the body of a request that creates or alters a queue.
func (s *Server) readQueueChange(c *call, named bool) (change queueChange, err error) {
	body, err := s.jsonBody(c)
	if err != nil {
		return change, err
	}
	known := []string{"name", "topic", "partitions", "settings"}
	if !named {
		known = known[3:]
	}
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) (err error) {
			switch {
			case member == "name" && named:
				change.spec.Name, err = r.string()
			case member == "topic" && named:
				change.spec.Topic, err = r.string()
				if err == nil && change.spec.Topic == "" {
					err = r.fail("it is empty; leave it out if the topic has the name of the queue")
				}
			case member == "partitions" && named:
				var n int64
				n, err = r.integer(1, eventlog.PartitionsMax)
				change.spec.Partitions = int(n)
			case member == "settings":
				change.edit, err = readSettings(r)
			default:
				err = r.unknown(member, known...)
			}
			return err
		})
	})
	if err == nil && named && change.spec.Name == "" {
		err = kindInvalidJSON.because(`"name" is missing`)
	}
	return change, err
}

// Bounds of a queue's settings, the same as in package queue.
const (
	leaseMin, leaseMax = 100, 12 * 60 * 60 * 1000 // milliseconds
	pauseMax           = 100 * 365 * 24 * 60 * 60 * 1000
	attemptsMax        = 1_000_000
	delaysMax          = 100
	windowMost         = 10_000
	concurrencyMax     = 100_000
	rateMax            = 1_000_000
	prioritiesMax      = 8
)

// readSettings reads settings; null resets one to its default.
func readSettings(r *jsonReader) (edits []func(*queue.Settings), err error) {
	err = r.object(func(name string) error {
		setting, known := queueSettings[name]
		if !known {
			return r.unknown(name, settingsOrder...)
		}
		edit, err := setting(r)
		edits = append(edits, edit)
		return err
	})
	return edits, err
}

var settingsOrder = strings.Fields(`lease_ms attempts backoff_ms backoff_max_ms delays_ms ttl_ms drop_expired key_order keep_done window paused unique
	concurrency rate priorities`)

// queueSettings has a function for each setting. It reads the setting's value, and returns how that
// changes a queue's settings.
var queueSettings = map[string]func(*jsonReader) (func(*queue.Settings), error){
	"lease_ms":       millis(leaseMin, leaseMax, func(s *queue.Settings) *time.Duration { return &s.Lease }),
	"backoff_ms":     millis(1, pauseMax, func(s *queue.Settings) *time.Duration { return &s.Backoff }),
	"backoff_max_ms": millis(1, pauseMax, func(s *queue.Settings) *time.Duration { return &s.BackoffMax }),
	"ttl_ms":         millis(1, pauseMax, func(s *queue.Settings) *time.Duration { return &s.TTL }),
	"window":         count(1, windowMost, func(s *queue.Settings) *int { return &s.Window }),
	"concurrency":    count(1, concurrencyMax, func(s *queue.Settings) *int { return &s.Concurrency }),
	"priorities":     count(1, prioritiesMax, func(s *queue.Settings) *int { return &s.Priorities }),
	"drop_expired":   flag(func(s *queue.Settings) *bool { return &s.DropExpired }),
	"key_order":      flag(func(s *queue.Settings) *bool { return &s.KeyOrder }),
	"keep_done":      flag(func(s *queue.Settings) *bool { return &s.KeepDone }),
	"paused":         flag(func(s *queue.Settings) *bool { return &s.Paused }),
	"unique":         flag(func(s *queue.Settings) *bool { return &s.Unique }),
	"attempts": func(r *jsonReader) (func(*queue.Settings), error) {
		read := count(-1, attemptsMax, func(s *queue.Settings) *int { return &s.Attempts })
		if r.peek() == '0' {
			return nil, r.fail("attempts must be 1 or more, -1 for no limit, or null for the default")
		}
		return read(r)
	},
	"delays_ms": func(r *jsonReader) (func(*queue.Settings), error) {
		var delays []time.Duration
		if r.null() {
			return func(s *queue.Settings) { s.Delays = nil }, nil
		}
		err := r.array(func(i int) error {
			if i == delaysMax {
				return r.fail("there are more than %d delays, the limit", delaysMax)
			}
			ms, err := r.integer(0, pauseMax)
			delays = append(delays, time.Duration(ms)*time.Millisecond)
			return err
		})
		return func(s *queue.Settings) { s.Delays = delays }, err
	},
	"rate": func(r *jsonReader) (func(*queue.Settings), error) {
		if r.null() {
			return func(s *queue.Settings) { s.Rate = 0 }, nil
		}
		rate, err := r.positive(rateMax)
		return func(s *queue.Settings) { s.Rate = rate }, err
	},
}

func millis(least, most int64, field func(*queue.Settings) *time.Duration) func(*jsonReader) (func(*queue.Settings), error) {
	return func(r *jsonReader) (func(*queue.Settings), error) {
		if r.null() {
			return func(s *queue.Settings) { *field(s) = 0 }, nil
		}
		ms, err := r.integer(least, most)
		return func(s *queue.Settings) { *field(s) = time.Duration(ms) * time.Millisecond }, err
	}
}

func count(least, most int64, field func(*queue.Settings) *int) func(*jsonReader) (func(*queue.Settings), error) {
	return func(r *jsonReader) (func(*queue.Settings), error) {
		if r.null() {
			return func(s *queue.Settings) { *field(s) = 0 }, nil
		}
		n, err := r.integer(least, most)
		return func(s *queue.Settings) { *field(s) = int(n) }, err
	}
}

func flag(field func(*queue.Settings) *bool) func(*jsonReader) (func(*queue.Settings), error) {
	return func(r *jsonReader) (func(*queue.Settings), error) {
		if r.null() {
			return func(s *queue.Settings) { *field(s) = false }, nil
		}
		on, err := r.boolean()
		return func(s *queue.Settings) { *field(s) = on }, err
	}
}
