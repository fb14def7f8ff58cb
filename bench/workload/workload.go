// Package workload has what is measured: files of parameters, read strictly.
package workload

import (
	"bytes"
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
	Log     Kind = "log"
	Queue   Kind = "queue"
	Streams Kind = "streams"
)

// Workload is one file. Durations and counts are as in the source that it names.
type Workload struct {
	Name   string `yaml:"name"`
	About  string `yaml:"about"`
	Kind   Kind   `yaml:"kind"`
	Source string `yaml:"source"`

	Writers    int    `yaml:"writers"`
	Partitions int    `yaml:"partitions"` // of a log
	Groups     int    `yaml:"groups"`     // of a log
	Members    int    `yaml:"members"`    // of each group
	Workers    int    `yaml:"workers"`    // of a queue
	Streams    int    `yaml:"streams"`    // that are appended to, in turn
	Batch      int    `yaml:"batch"`      // events of a call
	Size       int    `yaml:"size"`       // bytes of an event
	Rates      []Rate `yaml:"rates"`      // one measurement for each
	Phases     Phases `yaml:"phases"`
}

// Phases are how long each phase of a measurement takes.
type Phases struct {
	Warm    time.Duration `yaml:"warm"`
	Measure time.Duration `yaml:"measure"`
	Drain   time.Duration `yaml:"drain"` // bound for what is still to come when the writers have stopped
}

// Rate is a load: as much as is taken, a share of that, or a number of events a second.
type Rate struct {
	Max     bool
	Share   float64 // of what max gave; 0: not a share
	Seconds float64 // events a second; 0: not a number
}

// UnmarshalYAML reads max, 50%, or 2900.
func (r *Rate) UnmarshalYAML(node *yaml.Node) error {
	switch text := node.Value; {
	case text == "max":
		r.Max = true
	case strings.HasSuffix(text, "%"):
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err != nil || n <= 0 || n > 100 {
			return fmt.Errorf("line %d: the rate %q is no share from 1%% to 100%%", node.Line, text)
		}
		r.Share = n / 100
	default:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("line %d: the rate %q is neither max, nor a share such as 50%%, nor a number of events a second", node.Line, text)
		}
		r.Seconds = n
	}
	return nil
}

func (r Rate) String() string {
	switch {
	case r.Max:
		return "max"
	case r.Share > 0:
		return strconv.FormatFloat(100*r.Share, 'f', -1, 64) + "%"
	}
	return strconv.FormatFloat(r.Seconds, 'f', -1, 64) + "/s"
}

// Scaled returns the workload with its durations multiplied.
func (w Workload) Scaled(by float64) Workload {
	w.Phases.Warm = time.Duration(float64(w.Phases.Warm) * by)
	w.Phases.Measure = time.Duration(float64(w.Phases.Measure) * by)
	return w
}

// Parse reads a workload, and refuses what it does not know and what cannot be measured.
func Parse(text []byte) (w Workload, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&w); err != nil {
		return w, err
	}
	must := func(ok bool, format string, args ...any) {
		if !ok && err == nil {
			err = fmt.Errorf("workload %q: "+format, append([]any{w.Name}, args...)...)
		}
	}
	must(w.Name != "", "it needs a name")
	must(w.Kind == Log || w.Kind == Queue || w.Kind == Streams, "kind is %q; it must be log, queue or streams", w.Kind)
	must(w.Writers > 0, "writers must be at least 1")
	must(w.Batch > 0, "batch must be at least 1")
	must(w.Size >= 32, "size must be at least 32 bytes, which say what the event is")
	must(len(w.Rates) > 0, "rates must have at least one: max, a share, or a number")
	must(w.Phases.Measure > 0 && w.Phases.Drain > 0, "phases need measure and drain")
	switch w.Kind {
	case Log:
		must(w.Partitions > 0 && w.Groups > 0 && w.Members > 0, "a log needs partitions, groups and members")
	case Queue:
		must(w.Workers > 0, "a queue needs workers")
	case Streams:
		must(w.Streams >= w.Writers, "it needs at least one stream for each writer")
	}
	if i := slices.IndexFunc(w.Rates, func(r Rate) bool { return r.Share > 0 }); i >= 0 {
		must(slices.ContainsFunc(w.Rates[:i], func(r Rate) bool { return r.Max }), "a share such as %v needs max before it", w.Rates[i])
	}
	return w, err
}

//go:embed *.yaml
var files embed.FS

// All are the workloads that come with the benchmark, by name.
func All() (all []Workload) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		w, err := Parse(text)
		if err != nil {
			panic(name + ": " + err.Error())
		}
		all = append(all, w)
	}
	return all
}

// Find returns the workload of a name.
func Find(name string) (Workload, error) {
	for _, w := range All() {
		if w.Name == name {
			return w, nil
		}
	}
	return Workload{}, fmt.Errorf("there is no workload %q; `weir-bench workloads` lists them", name)
}
