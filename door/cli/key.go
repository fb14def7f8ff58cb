package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create a key and print its secret, which cannot be shown again."`
	List   keyListCmd   `cmd:"" help:"List keys, without their secrets."`
	Rotate keyRotateCmd `cmd:"" help:"Create a key with the rights of another one, and print its secret."`
	Delete keyDeleteCmd `cmd:"" help:"Delete keys: nobody can use them any more."`
}

type keyStore struct{ accessStore }

// with does something with the keys of the store, which must exist.
func (c *keyStore) with(ctx context.Context, t *terminal, do func(context.Context, *apikey.Keys) error) error {
	return c.direct(ctx, t, "a key", c.keys(ctx, do))
}

// withNew does something with the keys of the store, which is created if it does not exist.
func (c *keyStore) withNew(ctx context.Context, t *terminal, do func(context.Context, *apikey.Keys) error) error {
	return c.directNew(ctx, t, "a key", c.keys(ctx, do))
}

func (c *keyStore) keys(ctx context.Context, do func(context.Context, *apikey.Keys) error) func(eventlog.Store, *slog.Logger) error {
	hints := []hint{{apikey.ErrUnknown, "`weir key list` lists the keys"}, {apikey.ErrTooMany, ""}, {apikey.ErrRevoked, "`weir key create` makes another key"},
		{eventlog.ErrUnsure, "`weir key list` shows whether the change was made; if a new key is listed, revoke it: its secret was not printed"}}
	return c.running(ctx, func(ctx context.Context, log *audit.Log, logger *slog.Logger) error {
		return do(ctx, apikey.New(log, logger))
	}, hints)
}

type keyCreateCmd struct {
	keyStore
	Name      string    `arg:"" help:"The name of the person or program that uses the key. Several keys may have the same name."`
	Access    []string  `help:"What the key allows: read (consume, commit offsets, work queues), write (publish, enqueue), admin (everything), metrics (read /metrics). May be given again." enum:"read,write,admin,metrics" required:"" env:"-" placeholder:"WHAT"`
	Topic     []string  `help:"Allow topics whose names begin with this prefix. May be given again." env:"-" sep:"none" placeholder:"PREFIX"`
	TopicName []string  `help:"Allow the topic with exactly this name. May be given again, and with --topic." env:"-" sep:"none" placeholder:"NAME"`
	AllTopics bool      `help:"Allow all topics." env:"-"`
	Group     []string  `help:"Allow consumer groups whose names begin with this prefix. May be given again. Default: as for topics." env:"-" sep:"none" placeholder:"PREFIX"`
	GroupName []string  `help:"Allow the consumer group with exactly this name. May be given again, and with --group." env:"-" sep:"none" placeholder:"NAME"`
	AllGroups bool      `help:"Allow all consumer groups." env:"-"`
	Queue     []string  `help:"Allow work queues whose names begin with this prefix, and their messages. May be given again, and without topics. Default: as for topics." env:"-" sep:"none" placeholder:"PREFIX"`
	QueueName []string  `help:"Allow the work queue with exactly this name, and its messages. May be given again, and with --queue." env:"-" sep:"none" placeholder:"NAME"`
	AllQueues bool      `help:"Allow all work queues. This is the default with --all-topics and --all-groups." env:"-"`
	Expires   *duration `help:"How long the key is valid: 12h, 90d. Default: until it is revoked." env:"-" placeholder:"TIME"`
	NotBefore time.Time `help:"The key is not valid before this time: 2026-01-31T08:00:00Z." env:"-" placeholder:"TIME"`
}

func (keyCreateCmd) Help() string {
	return `The secret is printed once and not stored: the store has only its hash. Servers on the store accept the key within seconds, without a restart. Give the store of the server with --store.
To rotate a key, make a second one with weir key rotate, give it to the clients, and revoke the first.

What a key allows is set only with these flags, not with environment variables. --queue mail is for all queues whose names begin with mail, such as mail2; --queue-name mail is for the queue mail alone.
A key that is limited to some topics allows the consumer groups, and the queues, that its flags for topics would name, unless there are flags for groups, or for queues.

Examples:

  weir key create mailer --access read --access write --queue-name mail
  weir key create billing --access read --topic-name orders --group-name billing
  weir key create shop --access write --topic orders. --topic payments. --expires 90d
  weir key create prometheus --access metrics
  weir key create ops --access admin --all-topics --all-groups --store postgres://weir@db.internal/weir --output json`
}

// check refuses flags that do not say what the key is for, or that contradict each other.
func (c *keyCreateCmd) check() error {
	topics, groups, queues := len(c.Topic)+len(c.TopicName) > 0, len(c.Group)+len(c.GroupName) > 0, len(c.Queue)+len(c.QueueName) > 0
	reads := slices.Contains(c.Access, string(apikey.Read)) || slices.Contains(c.Access, string(apikey.Admin))
	onlyMetrics := !reads && !slices.Contains(c.Access, string(apikey.Write))
	switch some := topics || c.AllTopics || groups || c.AllGroups || queues || c.AllQueues; {
	case onlyMetrics && some:
		return usage(errors.New("a key with --access metrics alone is for no topics, groups and queues"), "leave out the flags for these, or give the key --access read or write, too")
	case onlyMetrics:
		return nil
	case !topics && !c.AllTopics && !queues && !c.AllQueues:
		return usage(errors.New("the topics that the key allows are missing"), "add --topic PREFIX, --topic-name NAME or --all-topics; for a key that allows only queues, --queue PREFIX, --queue-name NAME or --all-queues")
	case topics && c.AllTopics:
		return usage(errors.New("--all-topics contradicts --topic and --topic-name"), "give all topics, or some")
	case groups && c.AllGroups:
		return usage(errors.New("--all-groups contradicts --group and --group-name"), "give all groups, or some")
	case queues && c.AllQueues:
		return usage(errors.New("--all-queues contradicts --queue and --queue-name"), "give all queues, or some")
	case c.AllTopics && !groups && !c.AllGroups && reads:
		return usage(errors.New("the groups that the key allows are missing"), "add --group PREFIX, --group-name NAME, or --all-groups")
	}
	return nil
}

// tellPrefixes says on the terminal which flags have a prefix that looks like a whole name.
func (c *keyCreateCmd) tellPrefixes(t *terminal) {
	for _, given := range []struct {
		flag     string
		prefixes []string
	}{{"topic", c.Topic}, {"group", c.Group}, {"queue", c.Queue}} {
		for _, prefix := range given.prefixes {
			if last, _ := utf8.DecodeLastRuneInString(prefix); unicode.IsLetter(last) || unicode.IsDigit(last) {
				fmt.Fprintf(t.err, "--%[1]s %[2]s is a prefix: the key is for %[2]s2, too. --%[1]s-name %[2]s is exactly one %[1]s.\n", given.flag, printable(prefix))
			}
		}
	}
}

// keyMade is a new key as JSON.
type keyMade struct {
	apikey.Key
	Secret string `json:"secret"`
}

func (c *keyCreateCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	spec := apikey.Spec{Name: c.Name, Topics: c.Topic, TopicNames: c.TopicName, AllTopics: c.AllTopics, Groups: c.Group, GroupNames: c.GroupName, AllGroups: c.AllGroups,
		Queues: c.Queue, QueueNames: c.QueueName, AllQueues: c.AllQueues, From: c.NotBefore}
	for _, a := range c.Access {
		spec.Access = append(spec.Access, apikey.Access(a))
	}
	if c.Expires != nil {
		spec.Expires = time.Now().UTC().Add(time.Duration(*c.Expires)).Truncate(time.Second)
	}
	if store.Missing(c.Store) {
		fmt.Fprintf(t.err, "The store %s does not exist yet, and is created now. A server accepts the key only if it is started with this --store.\n", printable(c.Store))
	}
	return c.withNew(ctx, t, func(ctx context.Context, keys *apikey.Keys) error {
		key, secret, err := keys.Create(ctx, spec)
		if err == nil {
			c.tellPrefixes(t)
		}
		return c.printNew(t)(key, secret, err)
	})
}

type keyRotateCmd struct {
	keyStore
	ID string `arg:"" names:"key" help:"The id of the key, as weir key list shows it."`
}

func (keyRotateCmd) Help() string {
	return `The new key has the name and the rights of the other one, and is valid from now on, for as long as the other one was made for. The other one stays valid: give the new secret to the clients, and revoke it.

Examples:

  weir key rotate 3k7qhd2m
  weir key rotate 3k7qhd2m --store postgres://weir@db.internal/weir --output json`
}

func (c *keyRotateCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, func(ctx context.Context, keys *apikey.Keys) error { return c.printNew(t)(keys.Rotate(ctx, c.ID)) })
}

// printNew prints a key that was just made, and its secret, unless there is an error.
func (c *keyStore) printNew(t *terminal) func(key apikey.Key, secret string, err error) error {
	return func(key apikey.Key, secret string, err error) error {
		if err != nil {
			return err
		}
		if c.Output.json() {
			fmt.Fprintln(t.err, withoutKeys)
			return printJSON(t, keyMade{key, secret})
		}
		_, err = fmt.Fprintf(t.out, `created key %s for %s, in %s
  %s

The secret, which cannot be shown again:

  %s

Every server on this store accepts the key within seconds. Clients send it with every request to the server's --http address:

  SECRET=…
  curl -H "Authorization: Bearer $SECRET" %s

%s
`, key.ID, printable(key.Name), store.Redact(c.Store), strings.Join(scope(key), ", "), secret, allowed(key), withoutKeys)
		return err
	}
}

// withoutKeys says what a key does not protect.
const withoutKeys = "Keys protect HTTP, and --kafka addresses with sasl_ssl or sasl_plaintext (user: the key's name, password: its secret). Clients that can connect to another --kafka address need no key; `weir serve --kafka off` closes it."

// allowed is the end of a curl command that works with the key. A key that may only write needs the
// name of an existing topic or queue.
func allowed(k apikey.Key) string {
	what, prefixes, names, name, add := "topics", k.Topics, k.TopicNames, "TOPIC", "/events"
	if !k.AllTopics && len(k.Topics)+len(k.TopicNames) == 0 {
		what, prefixes, names, name, add = "queues", k.Queues, k.QueueNames, "QUEUE", "/messages"
	}
	const server = "http://127.0.0.1:8080"
	switch path := server + "/v1/" + what; {
	case slices.Contains(k.Access, apikey.Read) || slices.Contains(k.Access, apikey.Admin):
		return path
	case !slices.Contains(k.Access, apikey.Write):
		return server + "/metrics"
	case len(names) > 0:
		return "-d hello " + path + "/" + names[0] + add
	case len(prefixes) > 0:
		return "-d hello " + path + "/" + prefixes[0] + name + add
	default:
		return "-d hello " + path + "/" + name + add
	}
}

// scope says what a key allows.
func scope(k apikey.Key) []string {
	words := []string{"access " + accessOf(k), "topics " + patterns(k.AllTopics, k.Topics, k.TopicNames, " "),
		"groups " + patterns(k.AllGroups, k.Groups, k.GroupNames, " "), "queues " + patterns(k.AllQueues, k.Queues, k.QueueNames, " ")}
	if !k.From.IsZero() {
		words = append(words, "from "+k.From.Format(time.RFC3339))
	}
	if !k.Expires.IsZero() {
		words = append(words, "until "+k.Expires.Format(time.RFC3339))
	}
	return words
}

// patterns shows which names a key is for, as apikey.Patterns does.
func patterns(all bool, prefixes, names []string, between string) string {
	if all {
		return "(all)"
	}
	return cmp.Or(strings.Join(apikey.Patterns(prefixes, names), between), "(none)")
}

func accessOf(k apikey.Key) string {
	var words []string
	for _, a := range k.Access {
		words = append(words, string(a))
	}
	return strings.Join(words, ",")
}

type keyListCmd struct{ keyStore }

func (keyListCmd) Help() string {
	return "Examples:\n\n  weir key list\n  weir key list --store postgres://weir@db.internal/weir --output json"
}

// keyRow is a key in a list.
type keyRow struct {
	apikey.Key
	State string `json:"state"`
}

func (c *keyListCmd) Run(ctx context.Context, t *terminal) error {
	return c.with(ctx, t, func(ctx context.Context, keys *apikey.Keys) error {
		list, err := keys.List(ctx)
		if err != nil {
			return err
		}
		var rows []keyRow
		for _, l := range list {
			rows = append(rows, keyRow{l.Key, l.State()})
		}
		return printRows(t, c.Output, "ID NAME ACCESS TOPICS GROUPS QUEUES CREATED EXPIRES STATE", rows, func(k keyRow) []string {
			return []string{k.ID, k.Name, accessOf(k.Key), patterns(k.AllTopics, k.Topics, k.TopicNames, ","), patterns(k.AllGroups, k.Groups, k.GroupNames, ","),
				patterns(k.AllQueues, k.Queues, k.QueueNames, ","), day(k.Created), day(k.Expires), k.State}
		})
	})
}

// day shows a time in a table, to the minute.
func day(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format("2006-01-02T15:04Z")
}

type keyDeleteCmd struct {
	keyStore
	consent
	IDs []string `arg:"" names:"key" name:"id" help:"The ids of the keys, as weir key list shows them."`
}

func (keyDeleteCmd) Help() string {
	return `Servers refuse the key within seconds. The last key may be revoked, too: then the servers refuse all HTTP clients, until there is another key.

Examples:

  weir key delete 3k7qhd2m --yes
  weir key delete 3k7qhd2m ab5jx7zt --store postgres://weir@db.internal/weir --yes`
}

func (c *keyDeleteCmd) Run(ctx context.Context, t *terminal) error {
	ids := strings.Join(c.IDs, " ")
	if err := c.obtain(t, "revoke the API key "+ids, ids); err != nil {
		return err
	}
	return c.with(ctx, t, func(ctx context.Context, keys *apikey.Keys) error {
		var revoked []apikey.Key
		var errs []error
		for _, id := range c.IDs {
			key, err := keys.Revoke(ctx, id)
			if errs = append(errs, err); err == nil {
				revoked = append(revoked, key)
			}
		}
		return errors.Join(append(errs, printEach(t, c.Output, revoked, func(key apikey.Key) string {
			return fmt.Sprintf("revoked key %s for %s", key.ID, printable(key.Name))
		}))...)
	})
}
