// Package workload has what is measured: files of parameters, read strictly.
package workload

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Kind is the kind of a workload: which interface of a system it uses.
type Kind string

// The kinds.
const (
	Log       Kind = "log"
	Queue     Kind = "queue"
	Streams   Kind = "streams"
	Decisions Kind = "decisions" // appends within a boundary of tags
)

// Workload is one file. Durations and counts are as in the source that it names.
type Workload struct {
	Name   string `yaml:"name"`
	About  string `yaml:"about"`
	Kind   Kind   `yaml:"kind"`
	Source string `yaml:"source"`

	Writers    int     `yaml:"-"`
	Topics     int     `yaml:"topics"`     // of a log, with writers and groups each; default: 1
	Keys       int     `yaml:"keys"`       // of a log: each writer has so many, in turn; default: 1
	Partitions int     `yaml:"partitions"` // of a log, of each topic
	Groups     int     `yaml:"groups"`     // of a log
	Members    int     `yaml:"members"`    // of each group
	Workers    int     `yaml:"workers"`    // of a queue
	Streams    int     `yaml:"streams"`    // that are appended to, in turn
	Courses    int     `yaml:"courses"`    // of decisions: that are open at a time
	Capacity   int     `yaml:"capacity"`   // of decisions: how many events a course takes
	Batch      int     `yaml:"batch"`      // events of a call
	Fill       int     `yaml:"-"`          // events that are in other streams before
	Expect     Expect  `yaml:"expect"`     // of streams
	Door       Door    `yaml:"door"`       // of streams
	Follow     bool    `yaml:"follow"`     // a projection follows the streams, and keeps its state in memory
	Take       int     `yaml:"take"`       // messages that a worker takes at once; default: batch
	Backlog    int64   `yaml:"backlog"`    // events that readers may lag behind at rate max; default: 100,000
	Size       int     `yaml:"size"`       // bytes of an event
	Payload    Payload `yaml:"payload"`
	Rates      []Rate  `yaml:"rates"` // one measurement for each
	Phases     Phases  `yaml:"phases"`
	Fault      Fault   `yaml:"fault"` // the zero value: none

	Each  Counts `yaml:"writers" json:"-"` // a workload for each
	Fills Counts `yaml:"fill" json:"-"`    // the same
}

// Counts are a number, or a list of numbers.
type Counts []int

// UnmarshalYAML reads 8, or [1, 2, 4, 8].
func (c *Counts) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.SequenceNode {
		return node.Decode((*[]int)(c))
	}
	*c = make([]int, 1)
	return node.Decode(&(*c)[0])
}

// Expect is the version that appends to streams expect.
type Expect string

// The zero value is the version that the writer knows of.
const Any Expect = "any"

// Door is the way to a system.
type Door string

// The zero value is the client's library. HTTP is a service in a process of its own, which answers
// commands.
const HTTP Door = "http"

// Payload is what an event has.
type Payload string

// The zero value is random bytes. A price is a row of the paper's data set as JSON.
const Price Payload = "price"

// Fault is what happens to a system while it is measured.
type Fault struct {
	Kind  FaultKind     `yaml:"kind"`
	After time.Duration `yaml:"after"` // the end of the warm-up
	For   time.Duration `yaml:"for"`   // of a snapshot and a pause; a kill has an end when the system is there again
	Every time.Duration `yaml:"every"` // from one to the next
	Times int           `yaml:"times"` // default: 1
}

// FaultKind is a kind of fault.
type FaultKind string

// The kinds of faults.
const (
	Snapshot FaultKind = "snapshot" // a transaction of somebody else holds a snapshot of the database
	Kill     FaultKind = "kill"     // kill -9 of the system, or of its database, and a start
	Pause    FaultKind = "pause"    // SIGSTOP, and SIGCONT
)

// Phases are how long each phase of a measurement takes.
type Phases struct {
	Warm    time.Duration `yaml:"warm"`
	Measure time.Duration `yaml:"measure"`
	Drain   time.Duration `yaml:"drain"` // bound for what is still to come when the writers have stopped
}

// Rate is a load: as much as is taken, a share of that, a number of events a second, one call of
// each writer and no more, or nothing at all.
type Rate struct {
	Max     bool
	Once    bool
	None    bool
	Share   float64 // of what max gave; 0: not a share
	Seconds float64 // events a second; 0: not a number
}

// UnmarshalYAML reads max, once, none, 50%, or 2900.
func (r *Rate) UnmarshalYAML(node *yaml.Node) (err error) {
	if *r, err = parseRate(node.Value); err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	return nil
}

func parseRate(text string) (r Rate, err error) {
	switch {
	case text == "max":
		return Rate{Max: true}, nil
	case text == "once":
		return Rate{Once: true}, nil
	case text == "none":
		return Rate{None: true}, nil
	case strings.HasSuffix(text, "%"):
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || n <= 0 || n > 100 {
			return r, fmt.Errorf("the rate %q is no share from 1%% to 100%%", text)
		}
		return Rate{Share: n / 100}, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		return r, fmt.Errorf("the rate %q is neither max, nor once, nor none, nor a share such as 50%%, nor a number of events a second", text)
	}
	return Rate{Seconds: n}, nil
}

// ParseRates reads rates as a workload has them.
func ParseRates(texts []string) (all []Rate, err error) {
	for _, text := range texts {
		r, err := parseRate(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, checkShares(all)
}

// checkShares fails if a share has no max before it.
func checkShares(rates []Rate) error {
	i := slices.IndexFunc(rates, func(r Rate) bool { return r.Share > 0 })
	if i >= 0 && !slices.ContainsFunc(rates[:i], func(r Rate) bool { return r.Max }) {
		return fmt.Errorf("a share such as %v needs max before it", rates[i])
	}
	return nil
}

func (r Rate) String() string {
	switch {
	case r.Max:
		return "max"
	case r.Once:
		return "once"
	case r.None:
		return "none"
	case r.Share > 0:
		return strconv.FormatFloat(100*r.Share, 'f', -1, 64) + "%"
	}
	return strconv.FormatFloat(r.Seconds, 'f', -1, 64) + "/s"
}

// Scaled returns the workload with its durations multiplied. Kills come fewer times, and not faster
// than a system can start: so many as there is time for.
func (w Workload) Scaled(by float64) Workload {
	if w.Fault.Kind == Kill && by < 1 {
		w.Phases.Warm = time.Duration(float64(w.Phases.Warm) * by)
		times := max(1, int(float64(w.Fault.Times)*by))
		w.Phases.Measure -= w.Fault.Every * time.Duration(w.Fault.Times-times)
		w.Fault.Times = times
		return w
	}
	w.Phases.Warm = time.Duration(float64(w.Phases.Warm) * by)
	w.Phases.Measure = time.Duration(float64(w.Phases.Measure) * by)
	w.Fault.After = time.Duration(float64(w.Fault.After) * by)
	w.Fault.For = time.Duration(float64(w.Fault.For) * by)
	w.Fault.Every = time.Duration(float64(w.Fault.Every) * by)
	return w
}

// backlog is how many events readers may lag behind at rate max: what is measured is what is also
// read.
const backlog = 100_000

// keysMost bounds the keys of all writers.
const keysMost = 1 << 20

// Parse reads a workload, and refuses what it does not know and what cannot be measured. A list of
// writers, or of what is there before, gives a workload for each.
func Parse(text []byte) (all []Workload, err error) {
	var file Workload
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	for _, writers := range orZero(file.Each) {
		for _, fill := range orZero(file.Fills) {
			w := file
			w.Writers, w.Fill, w.Each, w.Fills = writers, fill, nil, nil
			if len(file.Each) > 1 {
				w.Name += fmt.Sprintf("-%d", writers)
			}
			if len(file.Fills) > 1 {
				w.Name += fmt.Sprintf("-%d", fill)
			}
			if w, err = w.checked(); err != nil {
				return nil, err
			}
			all = append(all, w)
		}
	}
	return all, nil
}

func orZero(c Counts) Counts {
	if len(c) == 0 {
		return Counts{0}
	}
	return c
}

// checked returns the workload with its defaults, or what is wrong with it.
func (w Workload) checked() (_ Workload, err error) {
	must := func(ok bool, format string, args ...any) {
		if !ok && err == nil {
			err = fmt.Errorf("workload %q: "+format, append([]any{w.Name}, args...)...)
		}
	}
	must(w.Name != "", "it needs a name")
	must(w.Kind == Log || w.Kind == Queue || w.Kind == Streams || w.Kind == Decisions, "kind is %q; it must be log, queue, streams or decisions", w.Kind)
	must(w.Writers > 0, "writers must be at least 1")
	must(w.Batch > 0, "batch must be at least 1")
	must(w.Payload == "" || w.Payload == Price, "payload is %q; it must be price, or left out", w.Payload)
	must(w.Expect == "" || w.Expect == Any, "expect is %q; it must be any, or left out", w.Expect)
	must(w.Door == "" || w.Door == HTTP && w.Kind == Streams && w.Payload == Price, "door is %q; it must be http, for streams with the payload price, or left out", w.Door)
	must(w.Size >= 32 || w.Payload == Price, "size must be at least 32 bytes, which say what the event is")
	must(len(w.Rates) > 0, "rates must have at least one: max, a share, or a number")
	must(w.Phases.Measure > 0 && w.Phases.Drain > 0, "phases need measure and drain")
	must(w.Kind == Log || w.Topics == 0 && w.Keys == 0, "topics and keys are of a log")
	w.Topics, w.Keys = cmp.Or(w.Topics, 1), cmp.Or(w.Keys, 1)
	must(w.Topics > 0 && w.Keys > 0 && w.Writers*w.Keys <= keysMost, "topics and keys must be at least 1, and all writers may have %d keys", keysMost)
	must(w.Topics <= w.Writers, "there are %d topics and %d writers; each topic needs one", w.Topics, w.Writers)
	switch w.Kind {
	case Log:
		must(w.Partitions > 0 && w.Groups > 0 && w.Members > 0, "a log needs partitions, groups and members")
	case Queue:
		must(w.Workers > 0, "a queue needs workers")
	case Streams:
		must(w.Streams > 0, "it needs streams")
		must(w.Fill == 0 || w.Fill >= 1000, "fill must be at least 1000 events")
	}
	must(w.Kind != Decisions || w.Courses > 0 && w.Capacity > 0 && w.Batch == 1, "decisions need courses, capacity, and batch 1")
	switch f := w.Fault; f.Kind {
	case "":
	case Snapshot, Kill, Pause:
		must(f.Kind == Kill || f.For > 0, "a fault of kind %s needs for", f.Kind)
		must(f.Times < 2 || f.Every > f.For, "a fault that comes %d times needs every, longer than for", f.Times)
		must(f.After+f.Every*time.Duration(max(f.Times-1, 0))+f.For < w.Phases.Measure, "the fault ends after the measurement")
	default:
		must(false, "fault.kind is %q; it must be snapshot, kill or pause", f.Kind)
	}
	w.Take, w.Backlog, w.Fault.Times = cmp.Or(w.Take, w.Batch), cmp.Or(w.Backlog, backlog), max(w.Fault.Times, 1)
	if wrong := checkShares(w.Rates); wrong != nil {
		must(false, "%w", wrong)
	}
	return w, err
}

//go:embed *.yaml
var embedded embed.FS

// All are the workloads that come with the benchmark, by name.
func All() (all []Workload) {
	for _, of := range parsed() {
		all = append(all, of.all...)
	}
	return all
}

type parsedFile struct {
	name string
	all  []Workload
}

func parsed() (files []parsedFile) {
	names, err := fs.Glob(embedded, "*.yaml")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, name := range names {
		text, err := embedded.ReadFile(name)
		if err != nil {
			panic(err)
		}
		all, err := Parse(text)
		if err != nil {
			panic(name + ": " + err.Error())
		}
		files = append(files, parsedFile{strings.TrimSuffix(name, ".yaml"), all})
	}
	return files
}

// Find returns the workload of a name, or all of a file.
func Find(name string) ([]Workload, error) {
	for _, f := range parsed() {
		if f.name == name {
			return f.all, nil
		}
		for _, w := range f.all {
			if w.Name == name {
				return []Workload{w}, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no workload %q; `weir-bench workloads` lists them", name)
}
