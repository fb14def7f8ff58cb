package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

type scheduleCmd struct {
	Create   scheduleCreateCmd   `cmd:"" help:"Create a schedule, or replace the one of the same name."`
	List     scheduleListCmd     `cmd:"" help:"List a queue's schedules."`
	Describe scheduleDescribeCmd `cmd:"" help:"Show a schedule and its message, as JSON."`
	Delete   scheduleDeleteCmd   `cmd:"" help:"Delete a schedule. Messages that it has enqueued are not deleted."`
}

// schedulePicture is a schedule as the server shows it in a list.
type schedulePicture struct {
	Name   string `json:"name"`
	Cron   string `json:"cron"`
	Zone   string `json:"zone,omitempty"`
	Paused bool   `json:"paused"`
	Next   *int64 `json:"next,omitempty"`
	Broken bool   `json:"broken,omitempty"`
}

type scheduleCreateCmd struct {
	serverFlags
	Queue    string  `arg:"" names:"queue" help:"The queue's name."`
	Name     string  `arg:"" help:"The schedule's name."`
	Cron     string  `required:"" help:"Minute, hour, day of the month, month and day of the week; or @hourly, @daily, @weekly, @monthly, @yearly." placeholder:"EXPRESSION"`
	Zone     string  `help:"The time zone of the expression, such as Europe/Berlin. Default: UTC." env:"-" placeholder:"NAME"`
	Value    *string `help:"The message's value. Default: standard input." placeholder:"TEXT"`
	Key      *string `help:"The message's key." placeholder:"KEY"`
	Unique   string  `help:"The message's unique key: a tick enqueues nothing while the message of an earlier tick is not done." env:"-" placeholder:"KEY"`
	Priority int     `help:"The message's priority; 0 is the lowest." default:"0"`
	Paused   bool    `help:"Create the schedule paused: it enqueues nothing. To resume it, set it again without this flag."`
}

func (scheduleCreateCmd) Help() string {
	return `Examples:

  weir queue schedule create mail digest --cron '30 8 * * MON-FRI' --zone Europe/Berlin --value '{"kind": "digest"}'
  weir queue schedule create mail cleanup --cron @daily < cleanup.json`
}

// scheduledMax is the largest value of a scheduled message.
const scheduledMax = 64 << 10

func (c *scheduleCreateCmd) Run(ctx context.Context, t *terminal) error {
	var value []byte
	if c.Value != nil {
		value = []byte(*c.Value)
	} else {
		if t.inTTY {
			fmt.Fprintln(t.err, "Reading the message's value from the terminal. Ctrl-D ends.")
		}
		var err error
		if value, err = io.ReadAll(io.LimitReader(t.in, scheduledMax+1)); err != nil {
			return failed(fmt.Errorf("read the message's value: %w", err), "")
		}
	}
	if len(value) > scheduledMax {
		return usage(fmt.Errorf("the message's value has more than %d bytes, the limit of a schedule", scheduledMax), "store large data elsewhere, and put a reference to it into the message")
	}
	message := map[string]any{"priority": c.Priority}
	if text, base := encodeBytes(value); text != nil {
		message["value"] = *text
	} else {
		message["value_b64"] = *base
	}
	if c.Key != nil {
		message["key"] = *c.Key
	}
	if c.Unique != "" {
		message["unique"] = c.Unique
	}
	body := map[string]any{"cron": c.Cron, "paused": c.Paused, "message": message}
	if c.Zone != "" {
		body["zone"] = c.Zone
	}
	var set schedulePicture
	if err := c.ask(ctx, "PUT", apiPath("queues", c.Queue, "schedules", c.Name), body, &set, 0); err != nil {
		return c.answer(fmt.Sprintf("set schedule %q of queue %q", c.Name, c.Queue), err)
	}
	next := "paused"
	if set.Next != nil {
		next = "next at " + moment(set.Next)
	}
	_, err := fmt.Fprintf(t.out, "set schedule %s of queue %s, %s\n", printable(set.Name), printable(c.Queue), next)
	return err
}

type scheduleListCmd struct {
	serverFlags
	Queue  string `arg:"" names:"queue" help:"The queue's name."`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (scheduleListCmd) Help() string {
	return "Examples:\n\n  weir queue schedule list mail\n  weir queue schedule list mail --output json"
}

func (c *scheduleListCmd) Run(ctx context.Context, t *terminal) error {
	var list struct {
		Schedules []schedulePicture `json:"schedules"`
	}
	if err := c.ask(ctx, "GET", apiPath("queues", c.Queue, "schedules"), nil, &list, 0); err != nil {
		return c.answer(fmt.Sprintf("list the schedules of queue %q", c.Queue), err)
	}
	if c.Output.json() {
		return printJSON(t, list.Schedules)
	}
	rows := [][]string{}
	for _, s := range list.Schedules {
		state := "open"
		switch {
		case s.Broken:
			state = "broken"
		case s.Paused:
			state = "paused"
		}
		rows = append(rows, []string{s.Name, state, moment(s.Next), cmp.Or(s.Zone, "UTC"), s.Cron})
	}
	return table(t.out, "SCHEDULE STATE NEXT ZONE CRON", rows)
}

type scheduleDescribeCmd struct {
	serverFlags
	Queue string `arg:"" names:"queue" help:"The queue's name."`
	Name  string `arg:"" help:"The schedule's name."`
}

func (scheduleDescribeCmd) Help() string {
	return "Examples:\n\n  weir queue schedule describe mail digest"
}

func (c *scheduleDescribeCmd) Run(ctx context.Context, t *terminal) error {
	var one json.RawMessage // its message's value may have any number
	if err := c.ask(ctx, "GET", apiPath("queues", c.Queue, "schedules", c.Name), nil, &one, 0); err != nil {
		return c.answer(fmt.Sprintf("describe schedule %q of queue %q", c.Name, c.Queue), err)
	}
	return printJSON(t, one)
}

type scheduleDeleteCmd struct {
	serverFlags
	Queue string `arg:"" names:"queue" help:"The queue's name."`
	Name  string `arg:"" help:"The schedule's name."`
}

func (scheduleDeleteCmd) Help() string {
	return "Examples:\n\n  weir queue schedule delete mail digest"
}

func (c *scheduleDeleteCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.ask(ctx, "DELETE", apiPath("queues", c.Queue, "schedules", c.Name), nil, nil, 0); err != nil {
		return c.answer(fmt.Sprintf("delete schedule %q of queue %q", c.Name, c.Queue), err)
	}
	_, err := fmt.Fprintf(t.out, "deleted schedule %s of queue %s\n", printable(c.Name), printable(c.Queue))
	return err
}
