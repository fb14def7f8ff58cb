package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeCmd struct {
	brokerFlags
	Topic        string   `arg:"" names:"topic" help:"The topic to read."`
	Group        string   `help:"Read as a member of this consumer group, and commit the offsets of the printed records." placeholder:"NAME"`
	From         position `help:"Where to begin: ${position}. With --group, this is for partitions for which the group has committed nothing." default:"earliest" placeholder:"POSITION"`
	Partition    *int32   `help:"Read this partition only." placeholder:"N"`
	Follow       bool     `help:"Do not stop at the end of the topic: wait for more records." short:"f"`
	Max          int64    `help:"Stop after this many records; 0: no limit." short:"n" default:"0"`
	Output       format   `help:"What to print: text prints the values; json prints a JSON record on each line." enum:"text,json" default:"text"`
	KeySeparator string   `help:"For text: print the key, this separator, and the value." placeholder:"TEXT"`
	Raw          bool     `help:"For text: print the bytes unchanged, control characters too."`

	show func(out *bufio.Writer, r *kgo.Record) error // prints a record; nil: print does
}

func (consumeCmd) Help() string {
	return `Reads up to where the topic ended when the command began, unless --follow is given. If a shard of the store does not answer, the partitions on it are left out: the
command says which, and ends with the exit code 4. With --follow they are read as soon as the shard answers. With --output text, control characters are printed
as \n and \x1b, because a terminal would interpret them; --raw prints the bytes unchanged.

Examples:

  weir consume orders
  weir consume orders --from -1h --output json
  weir consume orders --group billing --follow
  weir consume orders --partition 0 --from 42 --max 1 --raw`
}

func (c *consumeCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	reach := &reachability{}
	todo, err := c.plan(ctx, admin, t)
	if err != nil {
		return c.answer(ctx, fmt.Sprintf("consume %q", c.Topic), err, "")
	}
	if len(todo.missing) > 0 {
		fmt.Fprintf(t.err, "weir: %s of topic %s cannot be read now, because what stores it does not answer; reading the others\n", todo.without(), printable(c.Topic))
	}
	client, err := c.connect(ctx, append(todo.options(c.Group), kgo.WithHooks(reach), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(time.Second))...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	count, err := c.read(ctx, client, admin, todo, reach, t)
	if err == nil && len(todo.missing) > 0 && (c.Max == 0 || count < c.Max) {
		err = c.notRead(todo)
	}
	if c.Group != "" {
		err = errors.Join(err, c.commit(ctx, client))
	}
	if t.errTTY {
		fmt.Fprintf(t.err, "%s\n", plural(count, "record"))
	}
	return err
}

func (c *consumeCmd) check() error {
	switch {
	case c.Group != "" && c.Partition != nil:
		return usage(errors.New("--group and --partition cannot be used together: a group assigns the partitions itself"), "give one of them")
	case c.Raw && c.Output.json():
		return usage(errors.New("--raw cannot be used with --output json"), "leave it out")
	case c.Max < 0:
		return usage(fmt.Errorf("--max %d is negative", c.Max), "give 1 or more, or 0 for no limit")
	}
	return nil
}

// missingEvery is how often --follow tries partitions that could not be read.
const missingEvery = time.Second

// read prints records until there is nothing left to do.
func (c *consumeCmd) read(ctx context.Context, client *kgo.Client, admin *kadm.Client, todo *plan, reach *reachability, t *terminal) (count int64, err error) {
	out := bufio.NewWriter(t.out)
	bar := progress{t: t}
	defer bar.done()
	moved, warned := time.Now(), false
	var left error // the membership was lost, and the group has assigned nothing since
	for ctx.Err() == nil && (c.Follow || todo.rest() != 0) && (c.Max == 0 || count < c.Max) {
		if c.Follow && len(todo.missing) > 0 && time.Since(todo.tried) > missingEvery {
			client.AddConsumePartitions(c.again(ctx, admin, t, todo))
		}
		poll, cancel := context.WithTimeout(ctx, time.Second)
		limit := 10_000
		if c.Max > 0 {
			limit = int(min(int64(limit), c.Max-count))
		}
		fetches := client.PollRecords(poll, limit)
		cancel()
		for _, failure := range fetches.Errors() {
			switch {
			case errors.Is(failure.Err, context.DeadlineExceeded), errors.Is(failure.Err, context.Canceled):
			case joinsAgain(failure.Err):
				if left == nil || left.Error() != failure.Err.Error() {
					fmt.Fprintf(t.err, "weir: this command lost its place in group %s, and joins again: %v\n", printable(c.Group), failure.Err)
				}
				left = failure.Err
			default:
				return count, c.answer(ctx, fmt.Sprintf("consume %s/%d", c.Topic, failure.Partition), failure.Err, "")
			}
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			if planned := todo.take(r); r.Attrs.IsControl() || !planned && !c.Follow {
				continue
			}
			show := c.print
			if c.show != nil {
				show = c.show
			}
			if err := show(out, r); err != nil {
				return count, err
			}
			client.MarkCommitRecords(r)
			count++
		}
		if err := out.Flush(); err != nil {
			return count, fmt.Errorf("print records: %w", err)
		}
		client.AllowRebalance()
		if !t.outTTY {
			bar.say("%d records", count)
		}
		if fetches.NumRecords() > 0 {
			moved, left = time.Now(), nil
		}
		lost := reach.lost()
		if lost != nil && !warned {
			fmt.Fprintf(t.err, "weir: the broker cannot be reached, trying again: %v\n", cause(lost))
		}
		warned = lost != nil
		if !c.Follow && time.Since(moved) > time.Duration(c.Timeout) {
			return count, errors.Join(c.stalled(ctx, todo, reach), left)
		}
	}
	return count, context.Cause(ctx)
}

// joinsAgain reports whether the client lost its membership in the group, as when the group's
// coordinator moves to another broker: the client joins again by itself.
func joinsAgain(err error) bool {
	lost := []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedMemberEpoch}
	var session *kgo.ErrGroupSession
	return errors.As(err, &session) && (kerr.IsRetriable(session.Err) || slices.ContainsFunc(lost, func(e error) bool { return errors.Is(session.Err, e) }))
}

// stalled says why nothing comes although the topic's end is not reached.
func (c *consumeCmd) stalled(ctx context.Context, todo *plan, reach *reachability) error {
	if err := reach.lost(); err != nil {
		return c.unreachable(err)
	}
	left := todo.rest()
	if c.Group == "" && left > 0 {
		if err := c.giveUp(ctx, todo); err != nil {
			return err
		}
		if len(todo.missing) > 0 {
			return c.notRead(todo)
		}
	}
	if left < 0 {
		return failed(fmt.Errorf("consume %q: group %q assigned no partitions to this command within %s", c.Topic, c.Group, time.Duration(c.Timeout)),
			"the group may still wait for members that have ended without leaving; --timeout sets how long to wait, --follow waits without a limit")
	}
	return failed(fmt.Errorf("consume %q: no record arrived for %s, and %s before the end were not read", c.Topic, time.Duration(c.Timeout), plural(left, "offset")),
		"--timeout sets how long to wait, --follow waits without a limit")
}

func (c *consumeCmd) notRead(todo *plan) error {
	return unreachable(fmt.Errorf("consume %q: not all of %s was read, because what stores it does not answer", c.Topic, todo.without()),
		"repeat the command when it answers again, with --partition for what is missing; with --follow it is read as soon as it answers")
}

// commit commits the group's offsets after what was printed, and nothing more. It has the time of
// one request, even after a signal.
func (c *consumeCmd) commit(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(c.Timeout))
	defer cancel()
	return c.answer(ctx, fmt.Sprintf("commit the offsets of group %q", c.Group), client.CommitMarkedOffsets(ctx), "")
}

func (c *consumeCmd) print(out *bufio.Writer, r *kgo.Record) error {
	if c.Output.json() {
		text, err := encodeRecord(r)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	text := r.Value
	if c.KeySeparator != "" {
		text = bytes.Join([][]byte{r.Key, r.Value}, []byte(c.KeySeparator))
	}
	if !c.Raw {
		text = []byte(printable(string(text)))
	}
	out.Write(text)
	return out.WriteByte('\n') // a bufio.Writer keeps its first error
}
