package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type groupCmd struct {
	List     groupListCmd     `cmd:"" help:"List consumer groups."`
	Describe groupDescribeCmd `cmd:"" help:"Show a group's members, committed offsets and lag."`
	Reset    groupResetCmd    `cmd:"" help:"Set the committed offsets of a group that has no members."`
	Delete   groupDeleteCmd   `cmd:"" help:"Delete groups and their committed offsets."`
}

type groupListCmd struct {
	brokerFlags
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (groupListCmd) Help() string {
	return "Examples:\n\n  weir group list\n  weir group list --output json"
}

// groupRow is a group in a list.
type groupRow struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Type  string `json:"type"` // the protocol type
}

func (c *groupListCmd) Run(ctx context.Context, t *terminal) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return c.answer(ctx, "list groups", err, "")
	}
	list, rows := []groupRow{}, [][]string{}
	for _, g := range groups.Sorted() {
		list = append(list, groupRow{g.Group, g.State, g.ProtocolType})
		rows = append(rows, []string{g.Group, g.State, g.ProtocolType})
	}
	if c.Output.json() {
		return printJSON(t, list)
	}
	return table(t.out, "GROUP STATE PROTOCOL", rows)
}

type groupDescribeCmd struct {
	brokerFlags
	Name   string `arg:"" names:"group" help:"The group's name."`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (groupDescribeCmd) Help() string {
	return "Examples:\n\n  weir group describe billing\n  weir group describe billing --output json"
}

// groupPicture is a group as describe shows it.
type groupPicture struct {
	Name       string         `json:"name"`
	State      string         `json:"state"`
	Assignor   string         `json:"assignor"`
	Members    []memberRow    `json:"members"`
	Partitions []partitionLag `json:"partitions"`
	Lag        int64          `json:"lag"`
}

type memberRow struct {
	ID       string `json:"id"`
	Instance string `json:"instance,omitempty"`
	Client   string `json:"client"`
	Host     string `json:"host"`
}

// partitionLag is how far a group has come in a partition, with the names that the HTTP API has.
// Offset is nil if the group never committed.
type partitionLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    *int64 `json:"offset"`
	EndOffset int64  `json:"end_offset"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
}

func (c *groupDescribeCmd) Run(ctx context.Context, t *terminal) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	picture, err := picture(ctx, admin, c.Name)
	if err != nil {
		return c.answer(ctx, fmt.Sprintf("describe group %q", c.Name), err, "")
	}
	if c.Output.json() {
		return printJSON(t, picture)
	}
	fmt.Fprintf(t.out, "group %s: %s, %s, lag %d\n\n", printable(picture.Name), strings.ToLower(picture.State),
		plural(int64(len(picture.Members)), "member"), picture.Lag)
	var rows [][]string
	for _, p := range picture.Partitions {
		committed := "-"
		if p.Offset != nil {
			committed = strconv.FormatInt(*p.Offset, 10)
		}
		rows = append(rows, []string{p.Topic, fmt.Sprint(p.Partition), committed, fmt.Sprint(p.EndOffset), fmt.Sprint(p.Lag),
			cmp.Or(p.Member, "-")})
	}
	return table(t.out, "TOPIC PARTITION COMMITTED END LAG MEMBER", rows)
}

// picture asks for a group of any type: brokers do not show members of the consumer protocol
// (KIP-848) among the classic ones.
func picture(ctx context.Context, admin *kadm.Client, name string) (groupPicture, error) {
	consumers, err := admin.DescribeConsumerGroups(ctx, name)
	if found := consumers[name]; err == nil && found.Err == nil && len(found.Members) > 0 {
		return consumersPicture(ctx, admin, found)
	}
	lags, err := admin.Lag(ctx, name)
	group := lags[name]
	if err == nil && group.State == "Dead" {
		err = kerr.GroupIDNotFound
	}
	return pictureOf(group), cmp.Or(err, group.DescribeErr, group.FetchErr)
}

func consumersPicture(ctx context.Context, admin *kadm.Client, group kadm.DescribedConsumerGroup) (groupPicture, error) {
	picture := groupPicture{Name: group.Group, State: group.State, Assignor: group.AssignorName, Members: []memberRow{}, Partitions: []partitionLag{}}
	committed, err := admin.FetchOffsets(ctx, group.Group)
	if err := cmp.Or(err, committed.Error()); err != nil {
		return picture, err
	}
	reads := make(map[string]map[int32]string) // who has a partition; "": nobody
	read := func(topic string, partition int32, member string) {
		if reads[topic] == nil {
			reads[topic] = make(map[int32]string)
		}
		reads[topic][partition] = member
	}
	committed.Each(func(o kadm.OffsetResponse) { read(o.Topic, o.Partition, "") })
	for _, m := range group.Members {
		row := memberRow{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			row.Instance = *m.InstanceID
		}
		picture.Members = append(picture.Members, row)
		m.Assignment.Each(func(topic string, partition int32) {
			if topic != "" { // a topic that was deleted has an id only
				read(topic, partition, m.ClientID+m.ClientHost)
			}
		})
	}
	topics := slices.Sorted(maps.Keys(reads))
	if len(topics) == 0 {
		return picture, nil
	}
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return picture, err
	}
	ends, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return picture, err
	}
	for _, topic := range topics {
		for _, n := range slices.Sorted(maps.Keys(reads[topic])) {
			start, _ := starts.Lookup(topic, n)
			end, _ := ends.Lookup(topic, n)
			p := partitionLag{Topic: topic, Partition: n, EndOffset: end.Offset, Member: reads[topic][n], Lag: end.Offset - start.Offset}
			if o, is := committed.Lookup(topic, n); is && o.At >= 0 {
				p.Offset, p.Lag = &o.At, max(0, end.Offset-max(o.At, start.Offset))
			}
			picture.Lag += p.Lag
			picture.Partitions = append(picture.Partitions, p)
		}
	}
	return picture, nil
}

func pictureOf(group kadm.DescribedGroupLag) groupPicture {
	picture := groupPicture{Name: group.Group, State: group.State, Assignor: group.Protocol,
		Members: []memberRow{}, Partitions: []partitionLag{}, Lag: group.Lag.Total()}
	for _, m := range group.Members {
		row := memberRow{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			row.Instance = *m.InstanceID
		}
		picture.Members = append(picture.Members, row)
	}
	for _, l := range group.Lag.Sorted() {
		p := partitionLag{Topic: l.Topic, Partition: l.Partition, EndOffset: l.End.Offset, Lag: l.Lag}
		if l.Commit.At >= 0 {
			p.Offset = &l.Commit.At
		}
		if l.Member != nil {
			p.Member = l.Member.ClientID + l.Member.ClientHost
		}
		picture.Partitions = append(picture.Partitions, p)
	}
	return picture
}

type groupResetCmd struct {
	brokerFlags
	consent
	Name   string   `arg:"" names:"group" help:"The group's name."`
	Topic  []string `help:"Topics whose offsets to set. Default: all for which the group has committed offsets." placeholder:"NAME"`
	To     position `help:"The new position: ${position}." required:"" placeholder:"POSITION"`
	DryRun bool     `help:"Show what would change, and change nothing."`
	Output format   `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (groupResetCmd) Help() string {
	return `Examples:

  weir group reset billing --to earliest --dry-run
  weir group reset billing --to -1h --topic orders --yes
  weir group reset billing --to 2026-01-31T08:00:00Z --yes`
}

// move is one partition's committed offset, before and after a reset. Before is -1 if there was
// none.
type move struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    int64  `json:"before"`
	After     int64  `json:"after"`
}

func (c *groupResetCmd) Run(ctx context.Context, t *terminal) error {
	if !c.DryRun {
		if err := c.obtain(t, "move the offsets of group "+c.Name+" to "+c.To.String(), c.Name); err != nil {
			return err
		}
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	tried := fmt.Sprintf("reset group %q", c.Name)
	moves, err := c.plan(ctx, admin)
	if err != nil {
		return c.answer(ctx, tried, err, "")
	}
	if !c.DryRun {
		to := kadm.Offsets{}
		for _, m := range moves {
			to.AddOffset(m.Topic, m.Partition, m.After, -1)
		}
		if err := admin.CommitAllOffsets(ctx, c.Name, to); err != nil {
			return c.answer(ctx, tried, err, "")
		}
	}
	if c.Output.json() {
		return printJSON(t, moves)
	}
	var rows [][]string
	for _, m := range moves {
		rows = append(rows, []string{m.Topic, fmt.Sprint(m.Partition), fmt.Sprint(m.Before), fmt.Sprint(m.After)})
	}
	return table(t.out, "TOPIC PARTITION BEFORE AFTER", rows)
}

// plan finds the new offset of each partition. A group with members is refused: they would
// overwrite the reset.
func (c *groupResetCmd) plan(ctx context.Context, admin *kadm.Client) ([]move, error) {
	groups, err := admin.DescribeGroups(ctx, c.Name)
	if err := cmp.Or(err, groups[c.Name].Err); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	n := len(groups[c.Name].Members)
	if consumers, err := admin.DescribeConsumerGroups(ctx, c.Name); err == nil { // of the consumer protocol (KIP-848)
		n = max(n, len(consumers[c.Name].Members))
	}
	if n > 0 {
		return nil, failed(fmt.Errorf("reset group %q: the group has %s", c.Name, plural(int64(n), "member")), hints[kerr.NonEmptyGroup.Code])
	}
	committed, err := admin.FetchOffsets(ctx, c.Name)
	if err := cmp.Or(err, committed.Error()); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	topics := c.Topic
	if len(topics) == 0 {
		for topic := range committed {
			topics = append(topics, topic)
		}
	}
	if len(topics) == 0 {
		return nil, failed(fmt.Errorf("reset group %q: the group has committed no offsets", c.Name), "give the topics with --topic")
	}
	target, err := resolve(ctx, admin, c.To, topics...)
	if err != nil {
		return nil, err
	}
	var moves []move
	target.Each(func(o kadm.ListedOffset) {
		before := int64(-1)
		if was, ok := committed.Lookup(o.Topic, o.Partition); ok {
			before = was.At
		}
		moves = append(moves, move{o.Topic, o.Partition, before, o.Offset})
	})
	slices.SortFunc(moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return moves, nil
}

type groupDeleteCmd struct{ deletion }

func (groupDeleteCmd) Help() string {
	return "Examples:\n\n  weir group delete billing\n  weir group delete billing audit --yes"
}

func (c *groupDeleteCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "group", "its committed offsets", func(admin *kadm.Client) (deleted, error) {
		responses, err := admin.DeleteGroups(ctx, c.Names...)
		answers := deleted{}
		for name, r := range responses {
			answers[name] = answer{r.Err, r.ErrMessage}
		}
		return answers, err
	})
}
