package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify/load"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/keys"
)

// loadFlags are those of weir verify --load.
type loadFlags struct {
	loginFlags
	Load        duration         `help:"Instead of examining a store, write to it and read from it for so long, while you do harm to what is below, and judge what was promised against what came: docs/verify.md." placeholder:"DURATION" env:"-"`
	LoadHistory string           `help:"Judge the history of an earlier --load again." placeholder:"FILE" name:"load-history" env:"-"`
	Server      string           `help:"With --load: write and read over HTTP through the server at this address, instead of the store." placeholder:"URL"`
	Bootstrap   []string         `help:"With --load: write and read with the Kafka protocol through these brokers, of weir or others, instead of the store." placeholder:"HOST:PORT"`
	Protocol    securityProtocol `help:"With --bootstrap: how the brokers secure connections: plaintext, ssl (TLS), sasl_plaintext or sasl_ssl; with the last two, weir logs in as --user, or with --api-key. Default: ${default}." enum:"plaintext,ssl,sasl_plaintext,sasl_ssl" default:"plaintext" placeholder:"PROTOCOL"`
	Timeout     duration         `help:"With --load: give up on a call that is not answered for this long; then its outcome is unknown. Default: ${default}." default:"30s"`
	Ledger      string           `help:"With --load: the file for the history, on another disk than the store's. It must not exist. Default: a temporary file, which is kept if something was found." placeholder:"FILE" env:"-"`
	Harm        string           `help:"With --load: run this command of the shell now and then, such as a restart of the database." placeholder:"COMMAND" env:"-"`
	HarmEvery   duration         `help:"How often, on average. Default: ${default}." default:"30s" name:"harm-every" env:"-"`
	HarmSeed    uint64           `help:"Repeat the times of another run. Default: a random seed, which is printed." name:"harm-seed" env:"-"`
	Patience    duration         `help:"With --load: how long nothing may come in the end before what is missing counts as lost. Default: ${default}." default:"2m" env:"-"`
}

// verifyStore is the default of --store.
const verifyStore = "sqlite:./weir-data/weir.db"

// pace is a flag that bounds what is read in bytes, or what is written in events, each second.
type pace struct {
	bytes  size
	events float64
}

// UnmarshalText parses a pace: a number with a unit counts bytes, one without counts events.
func (p *pace) UnmarshalText(text []byte) error {
	if n, err := strconv.ParseFloat(string(text), 64); err == nil && n > 0 && n <= 1e9 {
		p.events = n
		return nil
	}
	return p.bytes.UnmarshalText(text)
}

// loaded is the result of weir verify --load as JSON.
type loaded struct {
	load.Report
	Clean   bool     `json:"clean"`
	Ledger  string   `json:"ledger,omitempty"` // the history, if it was kept
	Remains []string `json:"remains,omitempty"`
	Error   string   `json:"error,omitempty"`
}

func (c *verifyCmd) judgeHistory(t *terminal) error {
	file, err := os.Open(c.LoadHistory)
	if err != nil {
		return &problem{exitUnfinished, fmt.Errorf("--load-history: %w", err), ""}
	}
	defer file.Close()
	report, err := load.Judge(file)
	if err != nil {
		return &problem{exitUnfinished, fmt.Errorf("judge %s: %w", c.LoadHistory, err), "give it the file that `weir verify --load` named, or its --ledger"}
	}
	return c.verdict(t, loaded{Report: report, Ledger: c.LoadHistory}, nil)
}

// underLoad writes and reads, and judges.
func (c *verifyCmd) underLoad(ctx context.Context, t *terminal) error {
	if c.Rate.bytes != 0 || c.CacheDir != "" || len(c.Storage) > 0 {
		return usage(errors.New("--load takes neither --storage nor --cache-dir, and its --rate is a number of events, without a unit"), "leave them out")
	}
	run := rand.Uint32() | 1
	names := fmt.Sprintf("weir-load-%d", run)
	logged := &load.Logged{}
	protocols, closeAll, err := c.protocols(ctx, names, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		return err
	}
	file, err := c.ledgerFile(names)
	if err != nil {
		return errors.Join(err, closeAll())
	}
	defer file.Close()
	harm := load.Harm{Command: c.Harm, Every: time.Duration(c.HarmEvery), Seed: c.HarmSeed}
	if harm.Seed == 0 {
		harm.Seed = rand.Uint64()
	}
	line := &progress{t: t}
	say := func(text string) {
		line.done()
		fmt.Fprintf(t.err, "%s %s\n", time.Now().Format(time.TimeOnly), printable(text))
	}
	say("the history is in " + file.Name())
	if harm.Command != "" {
		say(fmt.Sprintf("--harm-seed %d repeats the times of --harm", harm.Seed))
	}
	report, remains, err := load.Run(ctx, file, protocols, load.Options{
		Run: run, For: time.Duration(c.Load), Rate: c.Rate.events, Patience: time.Duration(c.Patience), Timeout: time.Duration(c.Timeout), Harm: harm, Logged: logged, Say: say,
		Progress: func(p load.Progress) { line.say("%s", p) },
	})
	line.done()
	if closed := closeAll(); closed != nil {
		say("close: " + closed.Error())
	}
	answer := loaded{Report: report, Ledger: file.Name()}
	for _, r := range remains {
		answer.Remains = append(answer.Remains, r.Error())
	}
	if c.Ledger == "" && err == nil && report.Clean() && report.Unjudged == "" && len(remains) == 0 && os.Remove(file.Name()) == nil {
		answer.Ledger = ""
	}
	return c.verdict(t, answer, err)
}

// ledgerFile opens the file of the history, which must be new.
func (c *verifyCmd) ledgerFile(names string) (*os.File, error) {
	if c.Ledger == "" {
		file, err := os.CreateTemp("", names+"-*.history")
		if err != nil {
			return nil, config(fmt.Errorf("a file for the history: %w", err), "give it a place with --ledger FILE")
		}
		return file, nil
	}
	file, err := os.OpenFile(c.Ledger, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, config(fmt.Errorf("--ledger: %w", err), "give it the name of a file that does not exist, in a directory that does")
	}
	return file, nil
}

// protocols are those that the command can reach: of a server, of brokers, or of the store.
// closeAll closes what was opened.
func (c *verifyCmd) protocols(ctx context.Context, names string, logger *slog.Logger) (all []load.Protocol, closeAll func() error, err error) {
	var opened []io.Closer
	closeAll = func() error {
		var errs []error
		for _, one := range opened {
			errs = append(errs, one.Close())
		}
		return errors.Join(errs...)
	}
	if c.Server != "" {
		api := loadAPI{serverFlags{loginFlags: c.loginFlags, Server: c.Server, Timeout: c.Timeout}}
		all = append(all, load.HTTP(api, names+"-http")...)
	}
	if len(c.Bootstrap) > 0 {
		brokers := brokerFlags{loginFlags: c.loginFlags, Bootstrap: c.Bootstrap, Protocol: c.Protocol, Timeout: c.Timeout}
		kafka, err := load.OpenKafka(ctx, brokers.connect, names+"-kafka", time.Duration(c.Timeout))
		if err != nil {
			return nil, nil, err
		}
		all, opened = append(all, kafka), append(opened, kafka)
	}
	if len(all) > 0 && c.Store == verifyStore {
		return all, closeAll, nil
	}
	library, err := c.library(ctx, names, logger)
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	opened = append(opened, library)
	return append(all, library.Protocols()...), closeAll, nil
}

// library opens the Go library on the store.
func (c *verifyCmd) library(ctx context.Context, names string, logger *slog.Logger) (*load.Library, error) {
	if store.Missing(c.Store) {
		return nil, &problem{exitUnfinished, fmt.Errorf("the store %s does not exist", c.Store), "give the store of the server with --store, or reach the server with --server or --bootstrap"}
	}
	library, err := load.OpenLibrary(ctx, func(ctx context.Context) (eventlog.Store, error) {
		return store.OpenWith(ctx, c.Store, store.Options{Logger: logger, Rules: keys.Rules(), NoUpgrade: true})
	}, names, logger)
	if err != nil {
		return nil, &problem{exitUnfinished, err, c.hint(err)}
	}
	return library, nil
}

// loadAPI is the HTTP client of all commands, for weir verify --load.
type loadAPI struct{ serverFlags }

func (a loadAPI) Ask(ctx context.Context, method string, path []string, query url.Values, body, out any, wait time.Duration, headers ...string) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return load.Refused(err)
		}
	}
	at := apiPath(path...)
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	err := a.send(ctx, method, at, "application/json", content, out, wait, headers...)
	var answered *apiProblem
	var unsent *problem
	switch {
	case errors.As(err, &answered) && answered.Status == http.StatusNotFound:
		return load.Refused(fmt.Errorf("%w: %w", load.ErrGone, err))
	case errors.As(err, &answered) && !answered.is("outcome_unknown"): // send returns a lostAnswer for other answers that leave the outcome open
		return load.Refused(err)
	case errors.As(err, &unsent):
		return load.Refused(err)
	}
	return err
}

// verdict prints what a history proves. failed is what kept the run from its end.
func (c *verifyCmd) verdict(t *terminal, a loaded, failed error) error {
	a.Clean = a.Report.Clean()
	if failed != nil {
		a.Error = failed.Error()
	}
	if c.Output.json() {
		if err := printJSON(t, a); err != nil {
			return err
		}
	} else if err := printLoaded(t.out, a); err != nil {
		return err
	}
	for _, r := range a.Remains {
		fmt.Fprintf(t.err, "weir: %s\n", printable(r))
	}
	switch {
	case !a.Clean:
		return &problem{exitFailed, fmt.Errorf("promises were broken: %s", a.Violations()), "keep the history: `weir verify --load-history FILE` judges it again; docs/verify.md says what each word means"}
	case failed != nil:
		return &problem{exitUnfinished, failed, ""}
	case a.Unjudged != "":
		return &problem{exitUnfinished, errors.New(a.Unjudged), ""}
	}
	return nil
}

// printLoaded prints a table of the protocols, and when calls failed.
func printLoaded(out io.Writer, a loaded) error {
	if len(a.Protocols) == 0 {
		return nil // it did not begin
	}
	var rows [][]string
	n := func(n int64) string { return strconv.FormatInt(n, 10) }
	s := func(seconds float64) string { return fmt.Sprintf("%.1fs", seconds) }
	for _, p := range a.Protocols {
		verdict := p.String()
		if verdict == "" {
			verdict = "clean"
		}
		rows = append(rows, []string{p.Protocol, n(p.Acked), n(p.Unknown), n(p.Failed), s(p.WriteStall), s(p.ReadStall), verdict})
	}
	if err := table(out, "PROTOCOL ACKNOWLEDGED UNKNOWN REFUSED WRITES-STALLED READS-STALLED VERDICT", rows); err != nil {
		return err
	}
	for _, p := range a.Protocols {
		for _, trouble := range p.Troubles {
			end := "to the end"
			if trouble.To > 0 {
				end = fmt.Sprintf("for %.1f s", trouble.To-trouble.From)
			}
			fmt.Fprintf(out, "%s: %s failed %.1f s after the beginning, %s: %s\n", p.Protocol, trouble.What, trouble.From, end, printable(trouble.Reason))
		}
	}
	if a.Ledger != "" {
		fmt.Fprintf(out, "the history: %s\n", printable(a.Ledger))
	}
	return nil
}
