package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-log/weir/internal/cost"
)

type costCmd struct {
	serverFlags
	In        *size    `help:"Bytes published each second, after compression. Default: what the server at --server publishes now." placeholder:"SIZE"`
	Record    size     `help:"With --in: the size of a record. Default: ${default}." default:"1KB"`
	Reads     float64  `help:"With --in: how often each record is read. Default: ${default}." default:"1" placeholder:"N"`
	For       duration `help:"Without --in: how long to watch the server. Default: ${default}." default:"10s"`
	Retention duration `help:"How long records are kept. Default: ${default}." default:"7d"`
	Processes int      `help:"On S3: how many processes use the bucket, each on a machine. Default: ${default}." default:"1" placeholder:"N"`
	Linger    duration `help:"On S3: linger in the store's URL. Default: ${default}." default:"250ms"`
	Alone     bool     `help:"On S3: alone=true in the store's URL."`
	Kafka     string   `help:"On S3: whether the processes serve Kafka: on or off, as weir serve has it. Default: ${default}." enum:"on,off" default:"on" env:"-" placeholder:"on|off"`
	Members   int      `help:"On S3: how many members of groups, over HTTP or of the Go library, stay. Each writes every 3 s. Default: ${default}." default:"0" placeholder:"N"`
	Machine   *float64 `help:"What a machine costs a month, in the currency of the prices. Default: as the prices have it." placeholder:"PRICE"`
	Prices    string   `help:"A file with other prices; docs/cost.md shows its form." type:"existingfile" placeholder:"FILE"`
	Output    format   `help:"What to print: text for people, or json." enum:"text,json" default:"text"`
}

func (costCmd) Help() string {
	return `Computes the month's bill of a load on S3, PostgreSQL with a standby, and SQLite, beside Apache Kafka with three brokers in three zones.
The last line is what a month costs in which nothing is published. Without --in, it watches a running server, and uses the requests that this one makes to its bucket. docs/cost.md has the arithmetic. How many machines a load needs
is not computed: one runs weir unless --processes says otherwise.

Examples:

  weir cost
  weir cost --in 500KB --reads 3 --retention 7d
  weir cost --in 10KB --machine 5                      (a small virtual server)
  weir cost --in 20MB --processes 3 --linger 500ms --prices ours.json`
}

func (c *costCmd) Run(ctx context.Context, t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	prices, err := c.prices()
	if err != nil {
		return err
	}
	load := cost.Load{Reads: c.Reads, Retention: time.Duration(c.Retention)}
	var requests cost.Requests
	if c.In != nil {
		load.Bytes, load.Records = float64(*c.In), float64(*c.In)/float64(c.Record)
	} else if requests, err = c.watch(ctx, t, &load); err != nil {
		return err
	}
	if requests == (cost.Requests{}) { // the load was given, or the server's store is no bucket
		requests = c.bucket().Requests(load)
	}
	bills := c.bills(load, prices, requests)
	idle := c.bills(cost.Load{}, prices, c.bucket().Requests(cost.Load{}))
	all := c.advice(load, prices, bills[0].Total())
	if c.Output.json() {
		return printCost(t, load, requests, prices, bills, idle, all)
	}
	if err := c.print(t, load, prices, bills, idle); err != nil {
		return err
	}
	for _, a := range all {
		fmt.Fprintf(t.out, "S3 with %s: %s instead of %s; %s.\n", a.With, money(a.Total), money(a.Instead), a.Price)
	}
	return nil
}

func (c *costCmd) bucket() cost.Bucket {
	return cost.Bucket{Processes: c.Processes, Linger: time.Duration(c.Linger), Alone: c.Alone, Kafka: c.Kafka == "on", Members: c.Members}
}

func (c *costCmd) bills(l cost.Load, p cost.Prices, r cost.Requests) []cost.Bill {
	return []cost.Bill{p.S3(l, c.Processes, r), p.PostgreSQL(l), p.SQLite(l), p.Kafka(l)}
}

func (c *costCmd) check() error {
	switch {
	case c.Machine != nil && !(*c.Machine >= 0 && *c.Machine <= 1e6):
		return usage(fmt.Errorf("--machine %v: it must be from 0 to 1000000", *c.Machine), "give what a machine costs a month, such as 5")
	case c.Record <= 0:
		return usage(errors.New("--record is 0"), "give the size of a record, such as 1KB")
	case math.IsNaN(c.Reads) || c.Reads < 0 || c.Reads > 1e6:
		return usage(fmt.Errorf("--reads %v: it must be from 0 to 1000000", c.Reads), "")
	case c.Processes < 1 || c.Processes > 1000:
		return usage(fmt.Errorf("--processes %d: it must be from 1 to 1000", c.Processes), "")
	case c.Members < 0 || c.Members > 1e6:
		return usage(fmt.Errorf("--members %d: it must be from 0 to 1000000", c.Members), "")
	case c.Alone && c.Processes > 1:
		return usage(fmt.Errorf("--alone and --processes %d contradict each other", c.Processes), "only one process may be alone on its bucket")
	case c.Linger <= 0:
		return usage(errors.New("--linger is 0"), "give the store's linger, such as 250ms")
	case c.In == nil && c.For < duration(time.Second):
		return usage(fmt.Errorf("--for %v: it must be at least 1s", time.Duration(c.For)), "")
	}
	return nil
}

// prices are those of the file, or of the program, with the machine's price of the flag.
func (c *costCmd) prices() (cost.Prices, error) {
	prices, err := c.listed()
	if err == nil && c.Machine != nil {
		prices.SetMachine("priced by --machine", *c.Machine)
	}
	return prices, err
}

func (c *costCmd) listed() (cost.Prices, error) {
	if c.Prices == "" {
		return cost.Default(), nil
	}
	text, err := os.ReadFile(c.Prices)
	if err != nil {
		return cost.Prices{}, config(err, "")
	}
	prices, err := cost.ParsePrices(text)
	if err != nil {
		return prices, config(fmt.Errorf("the prices in %s: %w", c.Prices, err), "docs/cost.md shows the form of the file")
	}
	return prices, nil
}

// watch reads the server's counters twice, and fills in the load. The requests are those to its
// bucket; none if it has none.
func (c *costCmd) watch(ctx context.Context, t *terminal, load *cost.Load) (cost.Requests, error) {
	first, err := c.scrape(ctx)
	if err != nil {
		return cost.Requests{}, err
	}
	began := time.Now()
	fmt.Fprintf(t.err, "watching %s for %v\n", c.Server, time.Duration(c.For))
	select {
	case <-time.After(time.Duration(c.For)):
	case <-ctx.Done():
		return cost.Requests{}, context.Cause(ctx)
	}
	second, err := c.scrape(ctx)
	if err != nil {
		return cost.Requests{}, err
	}
	seconds := time.Since(began).Seconds()
	rate := func(name, label, value string) float64 {
		return (second.sum(name, label, value) - first.sum(name, label, value)) / seconds
	}
	load.Bytes, load.Records = rate("weir_appended_bytes_total", "", ""), rate("weir_appended_records_total", "", "")
	if load.Bytes < 0 || load.Records < 0 {
		return cost.Requests{}, failed(fmt.Errorf("the server at %s was started anew while it was watched", c.Server), "try again")
	}
	load.Reads = 0
	if load.Bytes > 0 {
		load.Reads = rate("weir_fetched_bytes_total", "", "") / load.Bytes
	}
	const requests = "weir_s3_requests_total"
	return cost.Requests{Puts: rate(requests, "kind", "put"), Gets: rate(requests, "kind", "get"), Lists: rate(requests, "kind", "list")}, nil
}

// samples are the answer to one scrape.
type samples map[string]*dto.MetricFamily

func (c *costCmd) scrape(ctx context.Context) (samples, error) {
	var text []byte
	if err := c.send(ctx, http.MethodGet, "/metrics", "", nil, &text, 0); err != nil {
		return nil, c.answer("read the metrics", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err == nil && families["weir_appended_bytes_total"] == nil {
		err = errors.New("weir_appended_bytes_total is missing")
	}
	if err != nil {
		return nil, unreachable(fmt.Errorf("%s answered, but not with the metrics of weir: %w", c.Server, err), "is --server the HTTP address of weir serve?")
	}
	return families, nil
}

// sum adds up a counter's series; with a label, those where it has the value.
func (s samples) sum(name, label, value string) (sum float64) {
	family := s[name]
	if family == nil {
		return 0
	}
	for _, m := range family.Metric {
		matches := label == ""
		for _, l := range m.Label {
			matches = matches || l.GetName() == label && l.GetValue() == value
		}
		if matches {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func (c *costCmd) print(t *terminal, l cost.Load, p cost.Prices, bills, idle []cost.Bill) error {
	fmt.Fprintf(t.out, "Load: %s/s in %s records/s, each read %s times and kept for %s: %s.\n", bytesText(l.Bytes), number(l.Records), number(l.Reads), daysText(l.Retention), bytesText(l.Bytes*l.Retention.Seconds()))
	fmt.Fprintf(t.out, "Prices: %s, %s, in %s for a month of 730 hours; machines are %s.\n\n", p.What, p.AsOf, p.Currency, p.Machine)
	var rows [][]string
	for i, item := range bills[0].Items {
		row := []string{item.What}
		for _, b := range bills {
			row = append(row, money(b.Items[i].Cost))
		}
		rows = append(rows, row)
	}
	totals := func(what string, bills []cost.Bill) []string {
		row := []string{what}
		for _, b := range bills {
			row = append(row, money(b.Total()))
		}
		return row
	}
	rows = append(rows, totals("total", bills), totals("total, idle", idle))
	if err := table(t.out, "PART S3 POSTGRESQL SQLITE KAFKA", rows); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\nS3: weir on %s. PostgreSQL: with a standby in another zone. SQLite: one copy. Kafka: three brokers in three zones. Clients are spread over three zones.\n", plural(int64(c.Processes), "machine"))
	return nil
}

// worthwhile is the part of S3's bill that advice must save.
const worthwhile = 0.05

// advice is a setting that would make the bucket's bill smaller.
type advice struct {
	With    string  `json:"with"` // the flag
	Total   float64 `json:"total"`
	Instead float64 `json:"instead_of"`
	Price   string  `json:"price"` // the disadvantage of the setting
}

// advice returns what the bucket's bill would be with other settings, if they save enough. There is
// none if requests were counted (c.In is nil): how many a server would make with another setting
// cannot be counted, and both bills must have computed requests.
func (c *costCmd) advice(l cost.Load, p cost.Prices, total float64) (all []advice) {
	if c.In == nil {
		return nil
	}
	try := func(flag, price string, b cost.Bucket) {
		if less := p.S3(l, c.Processes, b.Requests(l)).Total(); less < total*(1-worthwhile) {
			all = append(all, advice{flag, less, total, price})
		}
	}
	const longer = 2 * time.Second
	if b := c.bucket(); b.Linger < longer {
		b.Linger = longer
		try("--linger 2s", "a busy log then acknowledges up to 2 s later", b)
	}
	if b := c.bucket(); !b.Alone && b.Processes == 1 {
		b.Alone = true
		try("--alone", "no other process may then use the bucket", b)
	}
	return all
}

// costAnswer is the answer in JSON.
type costAnswer struct {
	Load struct {
		Bytes     float64 `json:"bytes_per_second"`
		Records   float64 `json:"records_per_second"`
		Reads     float64 `json:"reads"`
		Retention float64 `json:"retention_seconds"`
	} `json:"load"`
	Requests struct {
		Puts  float64 `json:"put"`
		Gets  float64 `json:"get"`
		Lists float64 `json:"list"`
	} `json:"s3_requests_per_second"`
	Prices cost.Prices `json:"prices"`
	Bills  []costBill  `json:"bills"`
	Advice []advice    `json:"advice"`
}

type costBill struct {
	cost.Bill
	Total float64 `json:"total"`
	Idle  float64 `json:"total_idle"` // of a month in which nothing is published
}

func printCost(t *terminal, l cost.Load, r cost.Requests, p cost.Prices, bills, idle []cost.Bill, all []advice) error {
	a := costAnswer{Prices: p, Advice: append([]advice{}, all...)}
	a.Load.Bytes, a.Load.Records, a.Load.Reads, a.Load.Retention = l.Bytes, l.Records, l.Reads, l.Retention.Seconds()
	a.Requests.Puts, a.Requests.Gets, a.Requests.Lists = r.Puts, r.Gets, r.Lists
	for i, b := range bills {
		a.Bills = append(a.Bills, costBill{b, b.Total(), idle[i].Total()})
	}
	return printJSON(t, a)
}

func money(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// number prints a number below 1000 with up to three significant digits, and a larger one rounded
// to a whole number.
func number(v float64) string {
	if v >= 999.5 { // three digits would be 1e+03
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func bytesText(v float64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if v < 1000 {
			return number(v) + " " + unit
		}
		v /= 1000
	}
	return number(v) + " TB"
}

func daysText(d time.Duration) string {
	if d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return d.String()
}
