package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type topicCmd struct {
	Create   topicCreateCmd   `cmd:"" help:"Create a topic."`
	List     topicListCmd     `cmd:"" help:"List topics."`
	Describe topicDescribeCmd `cmd:"" help:"Show a topic's partitions and settings."`
	Alter    topicAlterCmd    `cmd:"" help:"Change a topic's settings, or add partitions."`
	Delete   topicDeleteCmd   `cmd:"" help:"Delete topics and all their records."`
}

// topicSettings are the settings that have a flag, and --config for all other settings.
type topicSettings struct {
	Retention     *duration         `help:"Keep records at least this long: 12h, 7d. This sets retention.ms; to keep them without a limit, give --config retention.ms=-1." placeholder:"TIME"`
	RetentionSize *size             `help:"Delete the oldest records of a partition that is larger than this: 10GiB. This sets retention.bytes." placeholder:"SIZE"`
	Linger        *duration         `help:"Let records wait this long, 5s at most, to be written and acknowledged together: fewer and larger writes, fewer requests to S3. This sets weir.linger.ms." placeholder:"TIME"`
	Config        map[string]string `help:"A setting, with Kafka's name or weir's. May be given again." placeholder:"NAME=VALUE" mapsep:"none"`
}

func (s *topicSettings) values() (map[string]*string, error) {
	values := map[string]*string{}
	for name, value := range s.Config {
		values[name] = &value
	}
	set := func(flag, name string, n int64) error {
		if _, twice := values[name]; twice {
			return usage(fmt.Errorf("%s and --config %s both set %s", flag, name, name), "give one of them")
		}
		values[name] = kadm.StringPtr(strconv.FormatInt(n, 10))
		return nil
	}
	var err error
	if s.Retention != nil {
		err = set("--retention", "retention.ms", time.Duration(*s.Retention).Milliseconds())
	}
	if s.Linger != nil {
		err = errors.Join(err, set("--linger", "weir.linger.ms", time.Duration(*s.Linger).Milliseconds()))
	}
	if s.RetentionSize != nil {
		err = errors.Join(err, set("--retention-size", "retention.bytes", int64(*s.RetentionSize)))
	}
	return values, err
}

type topicCreateCmd struct {
	brokerFlags
	topicSettings
	Name        string `arg:"" help:"The topic's name."`
	Partitions  int32  `help:"Number of partitions; 0: the broker's default." default:"0"`
	IfNotExists bool   `help:"Succeed if the topic already exists."`
}

func (topicCreateCmd) Help() string {
	return `Examples:

  weir topic create orders
  weir topic create orders --partitions 8 --retention 7d
  weir topic create audit --config max.message.bytes=4194304 --if-not-exists`
}

func (c *topicCreateCmd) Run(ctx context.Context, t *terminal) error {
	values, err := c.values()
	if err != nil {
		return err
	}
	if c.Partitions < 0 {
		return usage(fmt.Errorf("--partitions %d is negative", c.Partitions), "give 1 or more, or 0 for the broker's default")
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	partitions := cmp.Or(c.Partitions, -1)
	created, err := admin.CreateTopics(ctx, partitions, -1, values, c.Name)
	response := created[c.Name]
	if c.IfNotExists && errors.Is(response.Err, kerr.TopicAlreadyExists) {
		_, err := fmt.Fprintf(t.out, "topic %s already exists\n", printable(c.Name))
		return err
	}
	if err := cmp.Or(err, response.Err); err != nil {
		return c.answer(ctx, fmt.Sprintf("create topic %q", c.Name), err, response.ErrMessage)
	}
	_, err = fmt.Fprintf(t.out, "created topic %s with %s\n", printable(c.Name), plural(int64(response.NumPartitions), "partition"))
	return err
}

type topicListCmd struct {
	brokerFlags
	Internal bool   `help:"Show internal topics too."`
	Output   format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (topicListCmd) Help() string {
	return "Examples:\n\n  weir topic list\n  weir topic list --output json --bootstrap broker-1:9092"
}

// topicRow is a topic in a list.
type topicRow struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Internal   bool   `json:"internal"`
}

func (c *topicListCmd) Run(ctx context.Context, t *terminal) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	topics, err := admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return c.answer(ctx, "list topics", err, "")
	}
	list, rows := []topicRow{}, [][]string{}
	for _, topic := range topics.Sorted() {
		if topic.IsInternal && !c.Internal {
			continue
		}
		list = append(list, topicRow{topic.Topic, len(topic.Partitions), topic.IsInternal})
		rows = append(rows, []string{topic.Topic, strconv.Itoa(len(topic.Partitions))})
	}
	if c.Output.json() {
		return printJSON(t, list)
	}
	return table(t.out, "TOPIC PARTITIONS", rows)
}

type topicDescribeCmd struct {
	brokerFlags
	Name   string `arg:"" names:"topic" help:"The topic's name."`
	All    bool   `help:"Also show settings that are at their default."`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (topicDescribeCmd) Help() string {
	return "Examples:\n\n  weir topic describe orders\n  weir topic describe orders --all --output json"
}

// topicPicture is a topic as describe shows it. A partition holds the offsets from First up to, not
// including, Next.
type topicPicture struct {
	Name       string             `json:"name"`
	Partitions []partitionPicture `json:"partitions"`
	Settings   []setting          `json:"settings"`
}

type partitionPicture struct {
	Partition int32 `json:"partition"`
	Leader    int32 `json:"leader"`
	First     int64 `json:"first_offset"`
	Next      int64 `json:"next_offset"`
	Records   int64 `json:"records"`
}

type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"source"`
}

func (c *topicDescribeCmd) Run(ctx context.Context, t *terminal) error {
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	picture, err := c.picture(ctx, admin)
	if err != nil {
		return c.answer(ctx, fmt.Sprintf("describe topic %q", c.Name), err, "")
	}
	if c.Output.json() {
		return printJSON(t, picture)
	}
	var partitions, settings [][]string
	for _, p := range picture.Partitions {
		partitions = append(partitions, []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Leader),
			fmt.Sprint(p.First), fmt.Sprint(p.Next), fmt.Sprint(p.Records)})
	}
	for _, s := range picture.Settings {
		settings = append(settings, []string{s.Name, s.Value, s.From})
	}
	if err := table(t.out, "PARTITION LEADER FIRST NEXT RECORDS", partitions); err != nil || len(settings) == 0 {
		return err
	}
	fmt.Fprintln(t.out)
	return table(t.out, "SETTING VALUE SOURCE", settings)
}

func (c *topicDescribeCmd) picture(ctx context.Context, admin *kadm.Client) (*topicPicture, error) {
	topics, err := admin.ListTopicsWithInternal(ctx, c.Name)
	if err := cmp.Or(err, topics[c.Name].Err); err != nil {
		return nil, err
	}
	first, err := admin.ListStartOffsets(ctx, c.Name)
	if err := cmp.Or(err, first.Error()); err != nil {
		return nil, err
	}
	next, err := admin.ListEndOffsets(ctx, c.Name)
	if err := cmp.Or(err, next.Error()); err != nil {
		return nil, err
	}
	picture := &topicPicture{Name: c.Name, Settings: []setting{}}
	for _, p := range topics[c.Name].Partitions.Sorted() {
		from, to := first[c.Name][p.Partition].Offset, next[c.Name][p.Partition].Offset
		picture.Partitions = append(picture.Partitions, partitionPicture{p.Partition, p.Leader, from, to, to - from})
	}
	configs, err := admin.DescribeTopicConfigs(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	described, err := configs.On(c.Name, nil)
	if err := cmp.Or(err, described.Err); err != nil {
		return nil, err
	}
	for _, config := range described.Configs {
		if c.All || config.Source == kmsg.ConfigSourceDynamicTopicConfig {
			picture.Settings = append(picture.Settings, setting{config.Key, config.MaybeValue(),
				strings.ToLower(strings.ReplaceAll(config.Source.String(), "_", " "))})
		}
	}
	slices.SortFunc(picture.Settings, func(a, b setting) int { return cmp.Compare(a.Name, b.Name) })
	return picture, nil
}

type topicAlterCmd struct {
	brokerFlags
	topicSettings
	Name       string   `arg:"" names:"topic" help:"The topic's name."`
	Unset      []string `help:"Settings to set back to their default." placeholder:"NAME"`
	Partitions int      `help:"Increase the number of partitions to this. Afterwards, many keys go to other partitions than before." default:"0"`
}

func (topicAlterCmd) Help() string {
	return `Examples:

  weir topic alter orders --retention 30d
  weir topic alter orders --config retention.ms=-1 --unset retention.bytes
  weir topic alter orders --partitions 16`
}

func (c *topicAlterCmd) Run(ctx context.Context, t *terminal) error {
	values, err := c.values()
	if err != nil {
		return err
	}
	var changes []kadm.AlterConfig
	for name, value := range values {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range c.Unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 && c.Partitions == 0 {
		return usage(errors.New("nothing to change"), "give --retention, --retention-size, --config, --unset or --partitions")
	}
	admin, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	tried := fmt.Sprintf("alter topic %q", c.Name)
	if len(changes) > 0 {
		altered, err := admin.AlterTopicConfigs(ctx, changes, c.Name)
		if err != nil {
			return c.answer(ctx, tried, err, "")
		}
		response, err := altered.On(c.Name, nil)
		if err := cmp.Or(err, response.Err); err != nil {
			return c.answer(ctx, tried, err, response.ErrMessage)
		}
		fmt.Fprintf(t.out, "changed %s of topic %s\n", plural(int64(len(changes)), "setting"), printable(c.Name))
	}
	if c.Partitions != 0 {
		grown, err := admin.UpdatePartitions(ctx, c.Partitions, c.Name)
		if err := cmp.Or(err, grown[c.Name].Err); err != nil {
			return c.answer(ctx, tried, err, grown[c.Name].ErrMessage)
		}
		fmt.Fprintf(t.out, "topic %s has %s now\n", printable(c.Name), plural(int64(c.Partitions), "partition"))
	}
	return nil
}

type topicDeleteCmd struct{ deletion }

func (topicDeleteCmd) Help() string {
	return "Examples:\n\n  weir topic delete orders\n  weir topic delete orders audit --yes"
}

func (c *topicDeleteCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "topic", "all its records", func(admin *kadm.Client) (deleted, error) {
		responses, err := admin.DeleteTopics(ctx, c.Names...)
		answers := deleted{}
		for name, r := range responses {
			answers[name] = answer{r.Err, r.ErrMessage}
		}
		return answers, err
	})
}
