package httpapi

import (
	"context"
	"net/http"

	"github.com/weir-log/weir/use/queue"
)

// scheduleView is a schedule in a list, without its message.
type scheduleView struct {
	Name   string `json:"name"`
	Cron   string `json:"cron"`
	Zone   string `json:"zone,omitempty"`
	Paused bool   `json:"paused"`
	Next   int64  `json:"next,omitempty"`
	Broken bool   `json:"broken,omitempty"`
}

// listSchedules lists a queue's schedules, by name.
func (s *Server) listSchedules(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	list, err := s.schedules(ctx, c)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, map[string][]scheduleView{"schedules": list})
}

func (s *Server) schedules(ctx context.Context, c *call) ([]scheduleView, error) {
	if err := c.build(ctx); err != nil { // listing schedules reads their messages, too
		return nil, err
	}
	list := []scheduleView{}
	err := s.withQueue(ctx, c, func(q *queue.Queue) error {
		all, err := q.Schedules(ctx)
		for _, one := range all {
			v := scheduleView{Name: one.Name, Cron: one.Cron, Zone: one.Zone, Paused: one.Paused, Broken: one.Err != nil}
			if !one.Next.IsZero() {
				v.Next = one.Next.UnixMilli()
			}
			list = append(list, v)
		}
		return err
	})
	return list, err
}

// describeSchedule returns a schedule with its message. One that cannot be read is shown as in the
// list.
func (s *Server) describeSchedule(c *call) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	name := c.r.PathValue("schedule")
	err := s.answerSchedule(ctx, c, func(q *queue.Queue) (queue.Schedule, error) { return q.Schedule(ctx, name) })
	if err == nil || problemOf(err).Type != problemPrefix+kindInternal.name {
		return err
	}
	list, listErr := s.schedules(ctx, c)
	if listErr != nil {
		return listErr
	}
	for _, v := range list {
		if v.Name == name && v.Broken {
			return c.json(http.StatusOK, v)
		}
	}
	return err
}

// setSchedule creates a schedule, or replaces the one of its name.
func (s *Server) setSchedule(c *call) error {
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	wanted, err := parseSchedule(body)
	if err != nil {
		return err
	}
	wanted.Name = c.r.PathValue("schedule")
	ctx, cancel := c.withTimeout()
	defer cancel()
	return s.answerSchedule(ctx, c, func(q *queue.Queue) (queue.Schedule, error) { return q.SetSchedule(ctx, wanted) })
}

// answerSchedule answers with the schedule that ask returns.
func (s *Server) answerSchedule(ctx context.Context, c *call, ask func(*queue.Queue) (queue.Schedule, error)) error {
	claim, err := c.claimAnswer(ctx, scheduleBytes, scheduleBytes)
	if err != nil {
		return err
	}
	defer claim.Release()
	return s.withQueue(ctx, c, func(q *queue.Queue) error {
		answer, err := ask(q)
		if err != nil {
			return err
		}
		c.Header()["Content-Type"] = jsonType
		e, end := pageEncoder(c, claim)
		defer end()
		e.schedule(&answer)
		e.string("\n")
		return nil
	})
}

// scheduleBytes is the memory for a schedule in an answer: its message has at most 64 KiB.
const scheduleBytes = 128 << 10

// deleteSchedule ends a schedule.
func (s *Server) deleteSchedule(c *call) error {
	return s.queueVerb(c, func(ctx context.Context, name string) error {
		return s.cfg.Queues.With(ctx, name, func(q *queue.Queue) error { return q.DeleteSchedule(ctx, c.r.PathValue("schedule")) })
	})
}

func parseSchedule(body []byte) (wanted queue.Schedule, err error) {
	cron, message := false, false
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(name string) (err error) {
			switch name {
			case "cron":
				cron = true
				wanted.Cron, err = r.string()
			case "zone":
				wanted.Zone, err = r.string()
			case "paused":
				wanted.Paused, err = r.boolean()
			case "message":
				message = true
				wanted.Message, err = parseMessage(r)
			default:
				err = r.unknown(name, "cron", "zone", "paused", "message")
			}
			return err
		})
	})
	switch {
	case err != nil:
		return wanted, err
	case !cron:
		return wanted, kindInvalidJSON.because(`"cron" is missing`)
	case !message:
		return wanted, kindInvalidJSON.because(`"message" is missing`)
	}
	return wanted, nil
}

// schedule writes a schedule.
func (e *encoder) schedule(s *queue.Schedule) {
	e.string(`{`)
	e.field("name", []byte(s.Name))
	e.string(`,`)
	e.field("cron", []byte(s.Cron))
	if s.Zone != "" {
		e.string(`,`)
		e.field("zone", []byte(s.Zone))
	}
	if s.Paused {
		e.string(`,"paused":true`)
	} else {
		e.string(`,"paused":false`)
	}
	if !s.Next.IsZero() {
		e.string(`,"next":`)
		e.int(s.Next.UnixMilli())
	}
	e.string(`,"message":{`)
	if s.Message.Unique != "" {
		e.field("unique", []byte(s.Message.Unique))
		e.string(`,`)
	}
	e.string(`"priority":`)
	e.int(int64(s.Message.Priority))
	e.content(s.Message.Key, s.Message.Value, s.Message.Headers)
	e.string(`}}`)
}
