package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/use/audit"
)

type auditCmd struct {
	brokerFlags
	Since  position `help:"The first events: ${position}." default:"earliest" placeholder:"POSITION"`
	Who    string   `help:"Only what this user, API key (its name or its id) or operating system's user has done." placeholder:"NAME" env:"-"`
	Object string   `help:"Only what was done to this topic, user, queue, or whatever has the name; kind/NAME names one kind, such as topic/orders." placeholder:"NAME" env:"-"`
	Follow bool     `help:"Do not stop with the last event: wait for more." short:"f"`
	Output format   `help:"What to print: text for people, without what was before and after, or json, an event on each line." enum:"text,json" default:"text"`
}

func (auditCmd) Help() string {
	return `The events are records of the topic weir.audit, which any client may read that has the right to. docs/security.md says what is recorded.

Examples:

  weir audit
  weir audit --since -24h --who alice
  weir audit --object topic/orders --output json
  weir audit --follow`
}

func (c *auditCmd) Run(ctx context.Context, t *terminal) error {
	read := consumeCmd{brokerFlags: c.brokerFlags, Topic: audit.Topic, From: c.Since, Follow: c.Follow, Output: c.Output, show: c.show}
	return read.Run(ctx, t)
}

// show prints an event, if it is one that was asked for.
func (c *auditCmd) show(out *bufio.Writer, r *kgo.Record) error {
	e, err := audit.Parse(r.Value)
	if err != nil {
		return failed(fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err), "")
	}
	switch key := string(r.Key); {
	case c.Who != "" && c.Who != e.Who.Name && c.Who != e.Who.ID:
		return nil
	case c.Object != "" && c.Object != e.Object && c.Object != key:
		return nil
	case c.Output.json():
		_, err = out.Write(append(printableJSON(r.Value), '\n'))
		return err
	}
	who := e.Who.Type
	if name := cmp.Or(e.Who.Name, e.Who.ID); name != "" {
		who += " " + name
	}
	_, err = fmt.Fprintf(out, "%s  %s  %s %s  %s  %s\n", e.Time.Format("2006-01-02T15:04:05.000Z"), printable(who), e.Who.Door, printable(e.Who.Address), e.Verb, printable(e.Object))
	return err
}
