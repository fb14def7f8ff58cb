package workload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ParseFile reads a file of a workload: one of weir-bench, of the OpenMessaging Benchmark or of the
// Event Store Benchmark Suite, as it is. Notes say what is measured otherwise than there. What a
// file asks for that cannot be measured is refused by its name.
func ParseFile(text []byte) (all []Workload, notes []string, err error) {
	var keys map[string]yaml.Node
	if err := yaml.Unmarshal(text, &keys); err != nil {
		return nil, nil, err
	}
	switch {
	case has(keys, "partitionsPerTopic"):
		return openMessaging(text)
	case has(keys, "workload_type"):
		return eventStoreSuite(text)
	}
	all, err = Parse(text)
	return all, nil, err
}

func has(keys map[string]yaml.Node, key string) bool { _, is := keys[key]; return is }

// strictly decodes a file, and refuses keys that nobody knows.
func strictly(text []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	return decoder.Decode(into)
}

// refusals gathers what a file asks for that cannot be measured.
type refusals struct {
	of  string
	all []error
}

func (r *refusals) unless(ok bool, key string, value any, why string) {
	if !ok {
		r.all = append(r.all, fmt.Errorf("%s: %s: %v is not supported: %s", r.of, key, value, why))
	}
}

// omb is a workload of the OpenMessaging Benchmark: the fields of its class Workload, and their
// defaults (benchmark-framework/src/main/java/io/openmessaging/benchmark/Workload.java).
type omb struct {
	Name                               string  `yaml:"name"`
	Topics                             int     `yaml:"topics"`
	PartitionsPerTopic                 int     `yaml:"partitionsPerTopic"`
	KeyDistributor                     string  `yaml:"keyDistributor"`
	MessageSize                        int     `yaml:"messageSize"`
	UseRandomizedPayloads              bool    `yaml:"useRandomizedPayloads"`
	RandomBytesRatio                   float64 `yaml:"randomBytesRatio"`
	RandomizedPayloadPoolSize          int     `yaml:"randomizedPayloadPoolSize"`
	PayloadFile                        string  `yaml:"payloadFile"`
	SubscriptionsPerTopic              int     `yaml:"subscriptionsPerTopic"`
	ProducersPerTopic                  int     `yaml:"producersPerTopic"`
	ConsumerPerSubscription            int     `yaml:"consumerPerSubscription"`
	MessageRateReceivedForSubscription int     `yaml:"messageRateReceivedForSubscription"`
	ProducerRate                       float64 `yaml:"producerRate"`
	ProducerStartRate                  float64 `yaml:"producerStartRate"`
	AcceptableBacklog                  int64   `yaml:"acceptableBacklog"`
	ProducerIncrementRate              float64 `yaml:"producerIncrementRate"`
	ProducerIncrementSeconds           float64 `yaml:"producerIncrementSeconds"`
	ConsumerBacklogSizeGB              float64 `yaml:"consumerBacklogSizeGB"`
	ProducerPauseBeforeDrain           float64 `yaml:"producerPauseBeforeDrain"`
	ProducerPauseDuringDrain           float64 `yaml:"producerPauseDuringDrain"`
	TestDurationMinutes                float64 `yaml:"testDurationMinutes"`
	WarmupDurationMinutes              float64 `yaml:"warmupDurationMinutes"`
}

// How a producer of the OpenMessaging Benchmark, which sends without waiting for answers and whose
// clients gather what comes within a millisecond, is measured here: by callers that each wait.
const (
	ombCallers = 16               // of each producer: so many of its calls may be unanswered
	ombLinger  = time.Millisecond // events of a producer that are sent in one call
	ombAtMax   = 100              // events of a call at rate max
	ombKeys    = 10_000           // its KEY_ROUND_ROBIN has so many
	ombDrain   = 5 * time.Minute
)

func openMessaging(text []byte) (all []Workload, notes []string, err error) {
	file := omb{KeyDistributor: "NO_KEY", MessageRateReceivedForSubscription: 100, AcceptableBacklog: 10_000, WarmupDurationMinutes: 1}
	if err := strictly(text, &file); err != nil {
		return nil, nil, fmt.Errorf("a workload of the OpenMessaging Benchmark: %w", err)
	}
	r := refusals{of: "a workload of the OpenMessaging Benchmark"}
	r.unless(file.Topics > 0, "topics", file.Topics, "it must be at least 1")
	r.unless(file.PartitionsPerTopic > 0, "partitionsPerTopic", file.PartitionsPerTopic, "it must be at least 1")
	r.unless(file.ProducersPerTopic > 0, "producersPerTopic", file.ProducersPerTopic, "it must be at least 1")
	r.unless(file.SubscriptionsPerTopic > 0 && file.ConsumerPerSubscription > 0, "subscriptionsPerTopic, consumerPerSubscription", fmt.Sprint(file.SubscriptionsPerTopic, ", ", file.ConsumerPerSubscription), "what is measured is also read, so both must be at least 1")
	r.unless(file.MessageSize >= 32, "messageSize", file.MessageSize, "at least 32 bytes say what an event is")
	r.unless(file.TestDurationMinutes > 0, "testDurationMinutes", file.TestDurationMinutes, "it must be more than 0")
	r.unless(file.KeyDistributor == "NO_KEY" || file.KeyDistributor == "KEY_ROUND_ROBIN", "keyDistributor", file.KeyDistributor, "it must be NO_KEY or KEY_ROUND_ROBIN")
	r.unless(file.MessageRateReceivedForSubscription == 100, "messageRateReceivedForSubscription", file.MessageRateReceivedForSubscription, "a subscription that filters cannot be checked")
	r.unless(file.ProducerIncrementRate == 0, "producerIncrementRate", file.ProducerIncrementRate, "a rate is fixed while it is measured; use --rates with several")
	r.unless(file.ConsumerBacklogSizeGB == 0, "consumerBacklogSizeGB", file.ConsumerBacklogSizeGB, "readers are there from the beginning")
	if err := errors.Join(r.all...); err != nil {
		return nil, nil, err
	}
	producers := file.Topics * file.ProducersPerTopic
	w := Workload{
		Name: plain(file.Name), About: file.Name, Kind: Log, Source: "a file of the OpenMessaging Benchmark",
		Writers: producers * ombCallers, Topics: file.Topics, Partitions: file.PartitionsPerTopic, Groups: file.SubscriptionsPerTopic, Members: file.ConsumerPerSubscription,
		Batch: ombAtMax, Backlog: file.AcceptableBacklog, Size: file.MessageSize, Rates: []Rate{{Max: true}},
		Phases: Phases{Warm: minutes(file.WarmupDurationMinutes), Measure: minutes(file.TestDurationMinutes), Drain: ombDrain},
	}
	if file.ProducerRate > 0 {
		w.Batch = max(1, int(math.Round(file.ProducerRate/float64(producers)*ombLinger.Seconds())))
		w.Rates = []Rate{{Seconds: file.ProducerRate}}
	}
	w.Keys = max(1, min(ombKeys/ombCallers, keysMost/w.Writers))
	notes = append(notes,
		fmt.Sprintf("each of the %d producers is %d callers that wait for their answers, with %d events a call", producers, ombCallers, w.Batch),
		fmt.Sprintf("each caller has %d keys in turn, whatever keyDistributor says: the order within a key is checked", w.Keys))
	if file.PayloadFile != "" || file.UseRandomizedPayloads {
		notes = append(notes, "payloads are random bytes that say what they are, and nothing of them can be compressed; payloadFile and randomBytesRatio are not read")
	}
	w, err = w.checked()
	return []Workload{w}, notes, err
}

func minutes(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }

var notPlain = regexp.MustCompile(`[^a-z0-9]+`)

// plain makes a name of a title: "1 topic / 1Kb" is 1-topic-1kb.
func plain(title string) string {
	return cmp.Or(strings.Trim(notPlain.ReplaceAllString(strings.ToLower(title), "-"), "-"), "unnamed")
}

// esbs is a workload of the Event Store Benchmark Suite (rust/bench-core/src/workloads/
// performance.rs).
type esbs struct {
	Name        string `yaml:"name"`
	Type        string `yaml:"workload_type"`
	Mode        string `yaml:"mode"`
	Seconds     int    `yaml:"duration_seconds"`
	Warmup      int    `yaml:"warmup_seconds"`
	Concurrency struct {
		Writers Counts `yaml:"writers"`
		Readers Counts `yaml:"readers"`
	} `yaml:"concurrency"`
	Operations struct {
		Write struct {
			Size  int `yaml:"event_size_bytes"`
			Batch int `yaml:"batch_size"`
		} `yaml:"write"`
		Read yaml.Node `yaml:"read"`
	} `yaml:"operations"`
	Streams struct {
		Distribution string `yaml:"distribution"`
		Count        int    `yaml:"count"`
	} `yaml:"streams"`
	Setup struct {
		Events  int `yaml:"prepopulate_events"`
		Streams int `yaml:"prepopulate_streams"`
	} `yaml:"setup"`
	Stores Names `yaml:"stores"`
}

// Names are a name, or a list of names.
type Names []string

// UnmarshalYAML reads umadb, or [umadb, dummy].
func (n *Names) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.SequenceNode {
		return node.Decode((*[]string)(n))
	}
	*n = make([]string, 1)
	return node.Decode(&(*n)[0])
}

func eventStoreSuite(text []byte) (all []Workload, notes []string, err error) {
	var file esbs
	file.Operations.Write.Batch = 1
	if err := strictly(text, &file); err != nil {
		return nil, nil, fmt.Errorf("a workload of the Event Store Benchmark Suite: %w", err)
	}
	r := refusals{of: "a workload of the Event Store Benchmark Suite"}
	r.unless(file.Type == "performance", "workload_type", file.Type, "it must be performance; bad-kill is the workload for durability")
	r.unless(file.Mode == "write", "mode", file.Mode, "it must be write; what was written is read back afterwards")
	r.unless(len(file.Concurrency.Writers) > 0, "concurrency.writers", file.Concurrency.Writers, "it must be a number, or a list")
	r.unless(len(file.Concurrency.Readers) == 0 || file.Concurrency.Readers[0] == 0, "concurrency.readers", file.Concurrency.Readers, "streams are read back when the writers have ended")
	r.unless(file.Operations.Write.Size >= 32, "operations.write.event_size_bytes", file.Operations.Write.Size, "at least 32 bytes say what an event is")
	r.unless(file.Streams.Distribution == "" || file.Streams.Distribution == "uniform", "streams.distribution", file.Streams.Distribution, "it must be uniform")
	r.unless(file.Streams.Count > 0, "streams.count", file.Streams.Count, "it must be at least 1")
	r.unless(file.Setup.Events == 0, "setup.prepopulate_events", file.Setup.Events, "it must be 0; paper-c measures with events that are there")
	r.unless(file.Seconds > 0, "duration_seconds", file.Seconds, "it must be at least 1")
	if err := errors.Join(r.all...); err != nil {
		return nil, nil, err
	}
	for _, writers := range file.Concurrency.Writers {
		w := Workload{
			Name: fmt.Sprintf("%s-w%d", plain(file.Name), writers), About: file.Name, Kind: Streams, Source: "a file of the Event Store Benchmark Suite",
			Writers: writers, Streams: file.Streams.Count, Batch: file.Operations.Write.Batch, Size: file.Operations.Write.Size, Expect: Any, Rates: []Rate{{Max: true}},
			Phases: Phases{Warm: time.Duration(file.Warmup) * time.Second, Measure: time.Duration(file.Seconds) * time.Second, Drain: time.Minute},
		}
		if w, err = w.checked(); err != nil {
			return nil, nil, err
		}
		all = append(all, w)
	}
	notes = append(notes, "appends expect no version, as there; payloads are random bytes that say what they are, and zeros there; --systems says what is measured, and not stores")
	return all, notes, nil
}
