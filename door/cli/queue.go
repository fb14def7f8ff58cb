package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/use/queue"
)

type queueCmd struct {
	Create   queueCreateCmd   `cmd:"" help:"Create a work queue."`
	List     queueListCmd     `cmd:"" help:"List work queues."`
	Describe queueDescribeCmd `cmd:"" help:"Show a queue's settings and how many messages it has."`
	Alter    queueAlterCmd    `cmd:"" help:"Change a queue's settings."`
	Delete   queueDeleteCmd   `cmd:"" help:"Delete queues. Their topics are not deleted."`
	Send     queueSendCmd     `cmd:"" help:"Enqueue lines from standard input."`
	Work     queueWorkCmd     `cmd:"" help:"Run a command for each message."`
	Peek     queuePeekCmd     `cmd:"" help:"Show messages or dead letters, without claiming them."`
	Redrive  queueRedriveCmd  `cmd:"" help:"Move dead letters back into the queue, or discard them."`
	Schedule scheduleCmd      `cmd:"" help:"Manage schedules, which enqueue messages at times that a cron expression gives."`
	Purge    queuePurgeCmd    `cmd:"" help:"Remove all messages that a queue has now."`
	Pause    queuePauseCmd    `cmd:"" help:"Pause a queue: claims get no messages."`
	Resume   queueResumeCmd   `cmd:"" help:"End a pause."`
}

// queueSettings are the settings that a command line can set.
type queueSettings struct {
	Lease       *duration  `help:"How long a claim lasts unless the worker asks for another time." placeholder:"TIME"`
	Attempts    *int       `help:"How many attempts a message has before it becomes a dead letter; -1: no limit." placeholder:"N"`
	Backoff     *duration  `help:"Upper limit of the pause after the first failed attempt; it doubles after each further one." placeholder:"TIME"`
	BackoffMax  *duration  `help:"Upper limit of the pause after any failed attempt." placeholder:"TIME"`
	RetryDelay  []duration `help:"The exact pause after the first failed attempt. May be given again, for the second and later attempts." placeholder:"TIME"`
	TTL         *duration  `help:"How old a message may be when it is claimed; an older one becomes a dead letter." name:"ttl" placeholder:"TIME"`
	DropExpired *bool      `help:"Drop messages that are older than --ttl; they do not become dead letters." negatable:""`
	KeyOrder    *bool      `help:"Handle messages of the same key one at a time, in order." negatable:""`
	KeepDone    *bool      `help:"Write handled messages to the topic QUEUE.done." negatable:""`
	Window      *int       `help:"How many messages of a partition may be claimed or waiting at the same time." placeholder:"N"`
	Unique      *bool      `help:"Messages may have a unique key." negatable:""`
	Concurrency *int       `help:"The most messages that may be claimed at the same time, by all processes together." placeholder:"N"`
	Rate        *float64   `help:"The most messages per second that may be claimed, by all processes together." placeholder:"N"`
	Priorities  *int       `help:"Number of priority levels." placeholder:"N"`
}

// checkLease refuses a lease that a queue would refuse.
func checkLease(lease *duration) error {
	if lease == nil || time.Duration(*lease) >= queue.LeaseMin && time.Duration(*lease) <= queue.LeaseMax {
		return nil
	}
	return usage(fmt.Errorf("--lease %v: it must be from %v to %v", time.Duration(*lease), queue.LeaseMin, queue.LeaseMax), "")
}

// values are the settings that were given, by the names of the HTTP API.
func (s *queueSettings) values() map[string]any {
	values := map[string]any{}
	for name, d := range map[string]*duration{"lease_ms": s.Lease, "backoff_ms": s.Backoff, "backoff_max_ms": s.BackoffMax, "ttl_ms": s.TTL} {
		if d != nil {
			values[name] = time.Duration(*d).Milliseconds()
		}
	}
	for name, n := range map[string]*int{"attempts": s.Attempts, "window": s.Window, "concurrency": s.Concurrency, "priorities": s.Priorities} {
		if n != nil {
			values[name] = *n
		}
	}
	for name, on := range map[string]*bool{"drop_expired": s.DropExpired, "key_order": s.KeyOrder, "keep_done": s.KeepDone, "unique": s.Unique} {
		if on != nil {
			values[name] = *on
		}
	}
	if s.Rate != nil {
		values["rate"] = *s.Rate
	}
	if len(s.RetryDelay) > 0 {
		delays := []int64{}
		for _, d := range s.RetryDelay {
			delays = append(delays, time.Duration(d).Milliseconds())
		}
		values["delays_ms"] = delays
	}
	return values
}

// queuePicture is a queue as the server shows it.
type queuePicture struct {
	Name     string         `json:"name"`
	ID       string         `json:"id"`
	Topic    string         `json:"topic"`
	Settings map[string]any `json:"settings"`
	Counts   *queueCounts   `json:"counts,omitempty"`
}

type queueCounts struct {
	Ready   int64  `json:"ready"`
	Claimed int64  `json:"claimed"`
	Waiting int64  `json:"waiting"`
	Delayed *int64 `json:"delayed,omitempty"` // nil: unknown
	Dead    int64  `json:"dead"`
	Oldest  int64  `json:"oldest_ms"`
}

type queueCreateCmd struct {
	serverFlags
	queueSettings
	Name        string `arg:"" help:"The queue's name."`
	Topic       string `help:"The topic that has the messages. It may exist already; others can still read it. Default: a topic with the name of the queue." placeholder:"NAME"`
	Partitions  int    `help:"Number of partitions of the topic, if it does not exist yet; 0: 4." default:"0"`
	IfNotExists bool   `help:"Succeed if the queue already exists."`
}

func (queueCreateCmd) Help() string {
	return `Examples:

  weir queue create mail
  weir queue create mail --attempts 5 --retry-delay 10s --retry-delay 5m --ttl 2d
  weir queue create audit --topic orders --key-order --if-not-exists`
}

func (c *queueCreateCmd) Run(ctx context.Context, t *terminal) error {
	if err := checkLease(c.Lease); err != nil {
		return err
	}
	body := map[string]any{"name": c.Name, "settings": c.values()}
	if c.Topic != "" {
		body["topic"] = c.Topic
	}
	if c.Partitions != 0 {
		body["partitions"] = c.Partitions
	}
	var made queuePicture
	err := c.ask(ctx, "POST", apiPath("queues"), body, &made, 0)
	var p *apiProblem
	if c.IfNotExists && errors.As(err, &p) && p.is("queue_exists") {
		_, err := fmt.Fprintf(t.out, "queue %s already exists\n", printable(c.Name))
		return err
	}
	if err != nil {
		return c.answer(fmt.Sprintf("create queue %q", c.Name), err)
	}
	_, err = fmt.Fprintf(t.out, "created queue %s on topic %s\n", printable(made.Name), printable(made.Topic))
	return err
}

type queueListCmd struct {
	serverFlags
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (queueListCmd) Help() string {
	return "Examples:\n\n  weir queue list\n  weir queue list --output json --server https://weir.example.org"
}

func (c *queueListCmd) Run(ctx context.Context, t *terminal) error {
	var list struct {
		Queues []queuePicture `json:"queues"`
	}
	if err := c.ask(ctx, "GET", apiPath("queues"), nil, &list, 0); err != nil {
		return c.answer("list queues", err)
	}
	if c.Output.json() {
		return printJSON(t, list.Queues)
	}
	rows := [][]string{}
	for _, q := range list.Queues {
		state := "open"
		if q.Settings["paused"] == true {
			state = "paused"
		}
		rows = append(rows, []string{q.Name, q.Topic, state})
	}
	return table(t.out, "QUEUE TOPIC STATE", rows)
}

type queueDescribeCmd struct {
	serverFlags
	Name   string `arg:"" names:"queue" help:"The queue's name."`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (queueDescribeCmd) Help() string {
	return "Examples:\n\n  weir queue describe mail\n  weir queue describe mail --output json"
}

func (c *queueDescribeCmd) Run(ctx context.Context, t *terminal) error {
	var q queuePicture
	if err := c.ask(ctx, "GET", apiPath("queues", c.Name), nil, &q, 0); err != nil {
		return c.answer(fmt.Sprintf("describe queue %q", c.Name), err)
	}
	if c.Output.json() {
		return printJSON(t, q)
	}
	if n := q.Counts; n != nil {
		delayed := "?"
		if n.Delayed != nil {
			delayed = fmt.Sprint(*n.Delayed)
		}
		err := table(t.out, "TOPIC READY CLAIMED WAITING DELAYED DEAD OLDEST", [][]string{{q.Topic, fmt.Sprint(n.Ready), fmt.Sprint(n.Claimed), fmt.Sprint(n.Waiting), delayed, fmt.Sprint(n.Dead),
			(time.Duration(n.Oldest) * time.Millisecond).String()}})
		if err != nil {
			return err
		}
		fmt.Fprintln(t.out)
	}
	var rows [][]string
	for name, value := range q.Settings {
		if n, is := value.(float64); is {
			value = strconv.FormatFloat(n, 'f', -1, 64)
		}
		rows = append(rows, []string{name, fmt.Sprint(value)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return table(t.out, "SETTING VALUE", rows)
}

type queueAlterCmd struct {
	serverFlags
	queueSettings
	Name  string   `arg:"" names:"queue" help:"The queue's name."`
	Unset []string `help:"Settings to set back to their default, with the names that weir queue describe shows." placeholder:"NAME"`
}

func (queueAlterCmd) Help() string {
	return "Examples:\n\n  weir queue alter mail --attempts 20\n  weir queue alter mail --rate 50 --unset ttl_ms"
}

func (c *queueAlterCmd) Run(ctx context.Context, t *terminal) error {
	if err := checkLease(c.Lease); err != nil {
		return err
	}
	values := c.values()
	for _, name := range c.Unset {
		if _, twice := values[name]; twice {
			return usage(fmt.Errorf("%s is given both to set and to --unset", name), "give one of them")
		}
		values[name] = nil
	}
	if len(values) == 0 {
		return usage(errors.New("nothing to change"), "`weir queue alter --help` shows the settings")
	}
	if err := c.ask(ctx, "PATCH", apiPath("queues", c.Name), map[string]any{"settings": values}, nil, 0); err != nil {
		return c.answer(fmt.Sprintf("alter queue %q", c.Name), err)
	}
	_, err := fmt.Fprintf(t.out, "changed %s of queue %s\n", plural(int64(len(values)), "setting"), printable(c.Name))
	return err
}

type queueDeleteCmd struct {
	serverFlags
	consent
	Names []string `arg:"" names:"queue" name:"name" help:"The names of the queues."`
}

func (queueDeleteCmd) Help() string {
	return "Examples:\n\n  weir queue delete mail\n  weir queue delete mail bills --yes"
}

func (c *queueDeleteCmd) Run(ctx context.Context, t *terminal) error {
	names := strings.Join(c.Names, " ")
	if err := c.obtain(t, "delete the queue "+names+" and the state of its messages", names); err != nil {
		return err
	}
	var first error
	for _, name := range c.Names {
		if err := c.ask(ctx, "DELETE", apiPath("queues", name), nil, nil, 0); err != nil {
			first = cmp.Or(first, c.answer(fmt.Sprintf("delete queue %q", name), err))
			continue
		}
		fmt.Fprintf(t.out, "deleted queue %s\n", printable(name))
	}
	return first
}

// queueVerb is a command that needs a queue's name and nothing else.
type queueVerb struct {
	serverFlags
	Name string `arg:"" names:"queue" help:"The queue's name."`
}

func (c *queueVerb) run(ctx context.Context, t *terminal, verb, done string) error {
	if err := c.ask(ctx, "POST", apiPath("queues", c.Name, verb), nil, nil, 0); err != nil {
		return c.answer(fmt.Sprintf("%s queue %q", verb, c.Name), err)
	}
	_, err := fmt.Fprintf(t.out, "%s queue %s\n", done, printable(c.Name))
	return err
}

type queuePurgeCmd struct {
	queueVerb
	consent
}

func (queuePurgeCmd) Help() string {
	return `Removes ready, claimed, waiting and delayed messages from the queue. Dead letters and the records of the topic are not deleted.

Examples:

  weir queue purge mail
  weir queue purge mail --yes`
}

func (c *queuePurgeCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.obtain(t, "remove all messages of the queue "+c.Name, c.Name); err != nil {
		return err
	}
	return c.run(ctx, t, "purge", "purged")
}

type queuePauseCmd struct{ queueVerb }

func (queuePauseCmd) Help() string { return "Examples:\n\n  weir queue pause mail" }

func (c *queuePauseCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "pause", "paused")
}

type queueResumeCmd struct{ queueVerb }

func (queueResumeCmd) Help() string { return "Examples:\n\n  weir queue resume mail" }

func (c *queueResumeCmd) Run(ctx context.Context, t *terminal) error {
	return c.run(ctx, t, "resume", "resumed")
}

type queuePeekCmd struct {
	serverFlags
	Name   string `arg:"" names:"queue" help:"The queue's name."`
	ID     string `arg:"" optional:"" help:"Show the state of this message. An id of weir.enqueue_id in SQL is a number."`
	Dead   bool   `help:"Show dead letters."`
	State  string `help:"Show messages in this state: ready, claimed, waiting, delayed or, in a queue with --keep-done, done. Default: any of the first three." placeholder:"STATE"`
	Max    int    `help:"Show at most this many." short:"n" default:"20"`
	Output format `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (queuePeekCmd) Help() string {
	return "TIME is when the lease ends, when the message can be claimed again, or when it was done. A message that was enqueued with a delay, or comes again after more than a minute, is delayed.\n\n" +
		"Examples:\n\n  weir queue peek mail\n  weir queue peek mail --state delayed\n  weir queue peek mail 12-1017\n  weir queue peek mail --dead --output json"
}

// peeked is a message or a dead letter as the server shows it.
type peeked struct {
	ID, Letter, State, Reason, Worker, Error string
	Attempt, Attempts                        int
	Until, Died                              *int64
	DoneAt                                   *int64 `json:"done_at"`
	Key, Value                               *string
}

func (c *queuePeekCmd) Run(ctx context.Context, t *terminal) error {
	tried := fmt.Sprintf("peek at queue %q", c.Name)
	switch {
	case c.ID != "" && c.Dead:
		return usage(errors.New("--dead lists dead letters, and an id shows one message: they cannot be used together"), "give one of them")
	case c.State != "" && (c.ID != "" || c.Dead):
		return usage(errors.New("--state cannot be used with an id or with --dead"), "give one of them")
	case c.Max < 1:
		return usage(fmt.Errorf("--max %d is less than 1", c.Max), "")
	}
	var found []json.RawMessage
	list, err := "", error(nil)
	switch {
	case c.ID != "":
		found = make([]json.RawMessage, 1)
		err = c.ask(ctx, "GET", apiPath("queues", c.Name, "messages", c.ID), nil, &found[0], 0)
	case c.Dead:
		list = "letters"
		found, err = c.list(ctx, "dead", list)
	default:
		list = "messages"
		found, err = c.list(ctx, "messages", list)
	}
	switch {
	case err != nil:
		return c.answer(tried, err)
	case c.Output.json() && list == "":
		return printJSON(t, found[0])
	case c.Output.json():
		return printJSON(t, map[string][]json.RawMessage{list: found})
	}
	rows := [][]string{}
	for _, text := range found {
		var m peeked
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%s: the server's answer: %w", tried, err)
		}
		rows = append(rows, m.row(list))
	}
	if len(rows) == 0 && list == "messages" && c.State == "" {
		fmt.Fprintln(t.err, "no message is ready, claimed or waiting; delayed ones: --state delayed; dead letters: --dead")
	}
	header := map[string]string{
		"":         "ID STATE ATTEMPT TIME WORKER ERROR",
		"messages": "ID STATE ATTEMPT TIME WORKER ERROR VALUE",
		"letters":  "LETTER ID REASON ATTEMPTS DIED WORKER ERROR VALUE",
	}
	return table(t.out, header[list], rows)
}

// list gets messages or dead letters, page by page: c.Max of them at most. A page of messages says
// where the next one begins. A page of letters begins after the last letter of the page before; an
// empty page is the end.
func (c *queuePeekCmd) list(ctx context.Context, resource, list string) ([]json.RawMessage, error) {
	found := []json.RawMessage{}
	q := url.Values{}
	if c.State != "" {
		q.Set("state", c.State)
	}
	for {
		q.Set("max", strconv.Itoa(c.Max-len(found)))
		var page struct {
			Messages, Letters []json.RawMessage
			Next              string
		}
		if err := c.ask(ctx, "GET", apiPath("queues", c.Name, resource)+"?"+q.Encode(), nil, &page, 0); err != nil {
			return nil, err
		}
		found = append(append(found, page.Messages...), page.Letters...)
		if page.Next == "" && len(page.Letters) == 0 || len(found) >= c.Max {
			return found, nil
		}
		if page.Next != "" {
			q.Set("from", page.Next)
			continue
		}
		var last peeked
		if err := json.Unmarshal(page.Letters[len(page.Letters)-1], &last); err != nil {
			return nil, err
		}
		q.Set("after", last.Letter)
	}
}

// row is a line of a table: of a list of messages or letters, or of one message.
func (m peeked) row(list string) []string {
	if list == "letters" {
		return []string{m.Letter, m.ID, m.Reason, strconv.Itoa(m.Attempts), moment(m.Died), cmp.Or(m.Worker, "-"), cmp.Or(m.Error, "-"), m.start()}
	}
	row := []string{m.ID, m.State, strconv.Itoa(m.Attempt), moment(cmp.Or(m.Until, m.DoneAt)), cmp.Or(m.Worker, "-"), cmp.Or(m.Error, "-")}
	if list == "messages" {
		row = append(row, m.start())
	}
	return row
}

// start is the beginning of a value, for a table.
func (m peeked) start() string {
	switch {
	case m.Value == nil:
		return "(bytes)"
	case len(*m.Value) > 60:
		return strings.ToValidUTF8((*m.Value)[:60], "") + "…"
	}
	return *m.Value
}

// moment shows a point in time; nil is one that does not exist.
func moment(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return time.UnixMilli(*ms).UTC().Format("2006-01-02T15:04:05Z")
}

type queueRedriveCmd struct {
	serverFlags
	consent
	Name    string   `arg:"" names:"queue" help:"The queue's name."`
	Letters []string `arg:"" optional:"" help:"The ids of the dead letters, or of their messages, as weir queue peek QUEUE --dead shows them."`
	All     bool     `help:"All dead letters that exist now."`
	Rate    float64  `help:"With --all: at most this many per second; 0: no limit." default:"0"`
	Discard bool     `help:"Delete the dead letters instead of moving them back into the queue."`
}

func (queueRedriveCmd) Help() string {
	return `Examples:

  weir queue redrive mail 14-3 14-4
  weir queue redrive mail --all --rate 50
  weir queue redrive mail --all --discard --yes`
}

func (c *queueRedriveCmd) Run(ctx context.Context, t *terminal) error {
	verb, done := "redrive", "moved"
	if c.Discard {
		verb, done = "discard", "discarded"
	}
	switch {
	case c.All == (len(c.Letters) > 0):
		return usage(errors.New("give either dead letters or --all"), "`weir queue peek QUEUE --dead` lists the dead letters")
	case !c.All && c.Rate != 0:
		return usage(errors.New("--rate can only be given with --all"), "")
	}
	if c.Discard {
		if err := c.obtain(t, "discard dead letters of the queue "+c.Name, c.Name); err != nil {
			return err
		}
	}
	bar := progress{t: t}
	defer bar.done()
	var taken int64
	var missing []string
	var err error
	if c.All {
		taken, err = c.sweep(ctx, verb, func(taken int64) { bar.say("%d %s", taken, done) })
	} else {
		taken, missing, err = c.takeEach(ctx, verb)
	}
	bar.done()
	if err != nil {
		return c.answer(fmt.Sprintf("%s dead letters of queue %q (%d %s)", verb, c.Name, taken, done), err)
	}
	if _, err := fmt.Fprintf(t.out, "%s %s\n", done, plural(taken, "dead letter")); err != nil {
		return err
	}
	if len(missing) > 0 {
		return failed(fmt.Errorf("queue %q has no dead letter with the id, or of the message, %s", c.Name, strings.Join(missing, ", ")),
			"`weir queue peek QUEUE --dead` lists the dead letters; `weir queue peek QUEUE ID` shows the state of a message")
	}
	return nil
}

// sweptAnswer is the answer to a request that redrives or discards.
type sweptAnswer struct {
	Taken   int64
	Until   string
	Problem *apiProblem
}

// take sends one request that redrives or discards.
func (c *queueRedriveCmd) take(ctx context.Context, verb string, body map[string]any) (swept sweptAnswer, err error) {
	err = c.ask(ctx, "POST", apiPath("queues", c.Name, "dead", verb), body, &swept, 10*time.Second)
	if err == nil && swept.Problem != nil {
		err = swept.Problem
	}
	return swept, err
}

// sweep redrives or discards all dead letters. After each request that leaves some, it calls say
// with the number of those taken until then.
func (c *queueRedriveCmd) sweep(ctx context.Context, verb string, say func(taken int64)) (taken int64, err error) {
	body := map[string]any{"all": true}
	if c.Rate != 0 {
		body["per_second"] = c.Rate
	}
	for {
		swept, err := c.take(ctx, verb, body)
		taken += swept.Taken
		if err != nil || swept.Until == "" {
			return taken, err
		}
		say(taken)
		body["until"] = swept.Until
	}
}

// takeEach redrives or discards the dead letters that the arguments name by their own ids or by
// those of their messages. Missing are the arguments for which there is none.
func (c *queueRedriveCmd) takeEach(ctx context.Context, verb string) (taken int64, missing []string, err error) {
	for _, id := range c.Letters {
		n, err := c.takeOne(ctx, verb, id)
		taken += n
		if err != nil {
			return taken, missing, err
		}
		if n == 0 {
			missing = append(missing, id)
		}
	}
	return taken, missing, nil
}

func (c *queueRedriveCmd) takeOne(ctx context.Context, verb, id string) (taken int64, err error) {
	swept, err := c.take(ctx, verb, map[string]any{"letters": []string{id}})
	if err != nil || swept.Taken > 0 {
		return swept.Taken, err
	}
	letter, err := c.letterOf(ctx, id)
	if err != nil || letter == "" {
		return 0, err
	}
	swept, err = c.take(ctx, verb, map[string]any{"letters": []string{letter}})
	return swept.Taken, err
}

// letterOf returns the dead letter of a message; "" if it has none.
func (c *queueRedriveCmd) letterOf(ctx context.Context, message string) (letter string, err error) {
	var found peeked
	err = c.ask(ctx, "GET", apiPath("queues", c.Name, "messages", message), nil, &found, 0)
	var p *apiProblem
	if errors.As(err, &p) && p.is("unknown_message") {
		return "", nil
	}
	return found.Letter, err
}
