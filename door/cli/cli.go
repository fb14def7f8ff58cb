// Package cli is the command line: one file per command. `weir serve` wires the program together.
// The commands of topics and groups, and audit, speak the Kafka protocol, so they work against any
// broker. Those of queues, streams and projections, and cost, speak HTTP to a server. The others
// that need a store open it themselves.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the whole command line. Field tags are its reference; Help methods hold the examples.
type commands struct {
	Serve       serveCmd         `cmd:"" group:"Servers:" help:"Start a broker."`
	Topic       topicCmd         `cmd:"" group:"Topics and consumer groups:" help:"Create, list, describe, alter and delete topics."`
	Produce     produceCmd       `cmd:"" group:"Topics and consumer groups:" help:"Send lines from standard input to a topic."`
	Consume     consumeCmd       `cmd:"" group:"Topics and consumer groups:" help:"Print the records of a topic."`
	Group       groupCmd         `cmd:"" group:"Topics and consumer groups:" help:"List, describe, reset and delete consumer groups."`
	Queue       queueCmd         `cmd:"" group:"Work queues:" help:"Create and manage work queues, send messages, and handle them."`
	Stream      streamCmd        `cmd:"" group:"Event-sourced streams:" help:"Append to, read and manage event-sourced streams."`
	Projection  projectionCmd    `cmd:"" group:"Event-sourced streams:" help:"Manage projections of event-sourced streams."`
	Key         keyCmd           `cmd:"" group:"Who may do what:" help:"Create, list, rotate and delete the API keys of HTTP clients."`
	User        userCmd          `cmd:"" group:"Who may do what:" help:"Create, list, alter and delete users, who log in over Kafka with SCRAM, and over HTTP with their password."`
	ACL         aclCmd           `cmd:"" group:"Who may do what:" name:"acl" help:"Create, list and delete the rules that say what users may do, over Kafka and HTTP."`
	Quota       quotaCmd         `cmd:"" group:"Who may do what:" help:"Alter, list and delete quotas: how much users, client ids and IP addresses may use over Kafka."`
	Audit       auditCmd         `cmd:"" group:"Who may do what:" help:"List who changed what: topics, users, keys, rules, and all that is configured."`
	Doctor      doctorCmd        `cmd:"" group:"Servers:" help:"Examine a store: check whether its settings can lose acknowledged records."`
	Verify      verifyCmd        `cmd:"" group:"Servers:" help:"Read everything in a store, and find where its content contradicts itself."`
	Copy        copyCmd          `cmd:"" group:"Servers:" help:"Copy a store to another one, of any kind, and switch to it."`
	Shard       shardCmd         `cmd:"" group:"Servers:" help:"On a store made of shards: show where partitions are, and move them."`
	Cost        costCmd          `cmd:"" group:"Servers:" help:"Compute what a month costs on each store, beside Kafka."`
	Version     versionCmd       `cmd:"" group:"This program:" help:"Print the version."`
	Completion  completionCmd    `cmd:"" group:"This program:" help:"Print a completion script for a shell."`
	Help        helpCmd          `cmd:"" group:"This program:" help:"Show the help of a command: weir help queue send."`
	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Print only the version."`
	Complete    completeCmd      `cmd:"" hidden:"" group:"This program:"`
	Manual      manualCmd        `cmd:"" hidden:"" group:"This program:"`
}

// Main runs weir with the process's own terminal, signals and variables, and returns the exit code.
//
// The first SIGINT or SIGTERM asks the command to stop, the second kills the process. A SIGHUP of a
// terminal that closes counts as one of these. Without a terminal a SIGHUP does nothing, because
// there is nothing to reload: files that may change, such as certificates, are read again without
// it. If the reader of our output closes the pipe, that is an error like any other, so that a
// consumer leaves its group before the end.
func Main(version string, args []string) int {
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !isTTY(os.Stdin) {
		signal.Ignore(syscall.SIGHUP)
	} else if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		cancel(stopped{(<-signals).(syscall.Signal)})
		signal.Stop(signals)
	}()
	environ := os.Environ()
	return run(ctx, version, args, &terminal{
		program: os.Args[0],
		in:      os.Stdin,
		out:     inColour(os.Stdout, isTTY(os.Stdout), environ), err: inColour(os.Stderr, isTTY(os.Stderr), environ),
		inTTY: isTTY(os.Stdin), outTTY: isTTY(os.Stdout), errTTY: isTTY(os.Stderr),
	}, environ)
}

// terminal is where a command reads and writes.
type terminal struct {
	program               string // how the person called us
	in                    io.Reader
	out, err              io.Writer
	inTTY, outTTY, errTTY bool
}

func isTTY(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run is Main without the process around it.
func run(ctx context.Context, version string, args []string, t *terminal, environ []string) int {
	if len(args) == 0 || args[0] == "help" {
		args = append(slices.Clone(args[min(1, len(args)):]), "--help")
	}
	helped := false
	parser, err := newParser(t, version, func(int) { helped = true })
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	if err := strangeVariables(parser.Model, environ); err != nil {
		return report(ctx, t.err, err)
	}
	if err := renamedVerb(args); err != nil {
		return report(ctx, t.err, err)
	}
	if err := emptyFlag(args); err != nil {
		return report(ctx, t.err, err)
	}
	parsed, err := parser.Parse(joinNegative(parser.Model, args))
	switch {
	case helped:
		return exitOK
	case err != nil:
		hint := "`" + commandOf(err) + " --help` shows the arguments and flags"
		if commandOf(err) == "weir queue send" && strings.HasPrefix(err.Error(), "unexpected argument") {
			hint = "messages are read from standard input: echo MESSAGE | weir queue send QUEUE"
		}
		return report(ctx, t.err, usage(err, hint))
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(t, parser.Model, buildVersion(version))
	return report(ctx, t.err, parsed.Run())
}

func newParser(t *terminal, version string, exit func(int)) (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("weir"),
		kong.Description("A durable event log in SQLite, PostgreSQL, MariaDB, MySQL or S3, for Kafka clients, HTTP, SQL and Go."),
		kong.Writers(t.out, t.err),
		kong.Exit(exit),
		kong.Vars{"position": positionForms, "version": version},
		kong.DefaultEnvars("WEIR"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Help(printHelp),
	)
}

// renamedVerbs are commands of earlier versions, and their names now. A later version knows them no
// more.
var renamedVerbs = map[string]string{
	"acl add": "acl create", "acl remove": "acl delete", "key revoke": "key delete",
	"quota set": "quota alter", "quota remove": "quota delete",
	"user add": "user create", "user password": "user alter", "queue schedule set": "queue schedule create",
}

// renamedVerb refuses a command of an earlier version with its new name.
func renamedVerb(args []string) error {
	for n := 2; n <= min(3, len(args)); n++ {
		old := strings.Join(args[:n], " ")
		if now, renamed := renamedVerbs[old]; renamed {
			return usage(fmt.Errorf("weir %s is now weir %s", old, now), "it takes the same arguments and flags")
		}
	}
	return nil
}

// emptyFlag refuses a flag with an empty value, which is what a shell makes of "$UNSET": --topic ""
// would stand for every topic. A record's key may be empty.
func emptyFlag(args []string) error {
	for i, arg := range args {
		if arg == "--" {
			return nil
		}
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !strings.HasPrefix(name, "--"), name == "--key", name == "--key-separator":
		case joined && value == "", !joined && i+1 < len(args) && args[i+1] == "":
			return usage(fmt.Errorf("%s is empty", name), "give it a value, or leave it out; perhaps a shell variable is not set")
		}
	}
	return nil
}

// joinNegative lets `--since -1h` be written with a space: kong takes a word that begins with a
// hyphen for a flag. It joins a flag that takes a value, of whatever command, and a negative
// number. No flag begins with a digit. What follows -- belongs to another program.
func joinNegative(model *kong.Application, args []string) []string {
	valued := map[string]bool{} // by what is typed: --since, -n
	_ = kong.Visit(model.Node, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && !flag.IsBool() {
			valued["--"+flag.Name] = true
			if flag.Short != 0 {
				valued["-"+string(flag.Short)] = true
			}
		}
		return next(nil)
	})
	var joined []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--":
			return append(joined, args[i:]...)
		case i+1 < len(args) && valued[args[i]] && negative(args[i+1]):
			equals := "="
			if !strings.HasPrefix(args[i], "--") {
				equals = ""
			}
			joined = append(joined, args[i]+equals+args[i+1])
			i++
		default:
			joined = append(joined, args[i])
		}
	}
	return joined
}

// negative reports whether a word is a number, or begins with one, that is less than 0.
func negative(word string) bool {
	return len(word) > 1 && word[0] == '-' && word[1] >= '0' && word[1] <= '9'
}

// commandOf names the command that was being parsed: "weir topic create".
func commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return parse.Context.Selected().FullPath()
	}
	return "weir"
}

// strangeVariables refuses a WEIR_ variable that is almost the name of a setting: a typing error
// there would go unseen. Other names pass; Kubernetes alone sets a handful for a service called
// weir.
func strangeVariables(model *kong.Application, environ []string) error {
	known := map[string]bool{}
	_ = kong.Visit(model.Node, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
		return next(nil)
	})
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "WEIR_") || known[name] {
			continue
		}
		for setting := range known {
			if nearly(name, setting) {
				return usage(fmt.Errorf("the environment variable %s is not a setting of weir; did you mean %s?", name, setting),
					"rename it, or unset it")
			}
		}
	}
	return nil
}

// nearly reports whether one edit, or one swap of neighbours, turns a into b.
func nearly(a, b string) bool {
	short, long := a, b
	if len(short) > len(long) {
		short, long = long, short
	}
	i := 0
	for i < len(short) && short[i] == long[i] {
		i++
	}
	restShort, restLong := short[i:], long[i:]
	switch {
	case len(long)-len(short) > 1 || len(restLong) == 0:
		return false
	case len(short) < len(long):
		return restShort == restLong[1:]
	}
	return restShort[1:] == restLong[1:] ||
		len(restShort) > 1 && restShort[0] == restLong[1] && restShort[1] == restLong[0] && restShort[2:] == restLong[2:]
}
