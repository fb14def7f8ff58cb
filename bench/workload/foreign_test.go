package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/workload"
)

const openMessaging = `
name: 2 topics / 3 partitions / 1Kb
topics: 2
partitionsPerTopic: 3
keyDistributor: "NO_KEY"
messageSize: 1024
payloadFile: "payload/some.data"
subscriptionsPerTopic: 4
consumerPerSubscription: 5
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
`

const eventStoreSuite = `
name: scaling-writers
workload_type: performance
mode: write
duration_seconds: 120
concurrency:
  writers: [1, 2, 4]
operations:
  write:
    event_size_bytes: 256
streams:
  distribution: uniform
  count: 10000
stores: [some, others]
`

func TestFilesOfTheOpenMessagingBenchmarkAreReadAsTheyAre(t *testing.T) {
	all, notes, err := workload.ParseFile([]byte(openMessaging))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	w := all[0]
	if w.Name != "2-topics-3-partitions-1kb" || w.Kind != workload.Log || w.Topics != 2 || w.Partitions != 3 || w.Groups != 4 || w.Members != 5 || w.Size != 1024 {
		t.Errorf("%+v", w)
	}
	// 25,000 a second of each producer are 25 in a millisecond; sixteen calls may be open.
	if w.Writers != 32 || w.Batch != 25 || w.Rates[0].Seconds != 50_000 || w.Keys < 100 {
		t.Errorf("%+v", w)
	}
	if w.Phases.Measure != 15*time.Minute || w.Phases.Warm != time.Minute {
		t.Errorf("%+v", w.Phases)
	}
	if said := strings.Join(notes, "; "); !strings.Contains(said, "payloadFile") || !strings.Contains(said, "keyDistributor") {
		t.Errorf("the notes are %s", said)
	}
	all, _, err = workload.ParseFile([]byte(strings.Replace(openMessaging, "producerRate: 50000", "producerRate: 0\nacceptableBacklog: 7", 1)))
	if err != nil || !all[0].Rates[0].Max || all[0].Backlog != 7 || all[0].Batch != 100 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestFilesOfTheEventStoreSuiteAreReadAsTheyAre(t *testing.T) {
	all, notes, err := workload.ParseFile([]byte(eventStoreSuite))
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for i, writers := range []int{1, 2, 4} {
		w := all[i]
		if w.Name != "scaling-writers-w"+string(rune('0'+writers)) || w.Writers != writers || w.Streams != 10_000 || w.Size != 256 || w.Batch != 1 || w.Expect != workload.Any || w.Phases.Measure != 2*time.Minute || !w.Rates[0].Max {
			t.Errorf("%+v", w)
		}
	}
	if len(notes) == 0 || !strings.Contains(notes[0], "stores") {
		t.Errorf("the notes are %v", notes)
	}
}

func TestWhatAFileOfOthersAsksForInVainIsRefusedByItsName(t *testing.T) {
	for _, c := range []struct{ file, was, is, says string }{
		{openMessaging, "consumerBacklogSizeGB: 0", "consumerBacklogSizeGB: 64", "consumerBacklogSizeGB: 64 is not supported"},
		{openMessaging, "messageSize: 1024", "messageSize: 20", "messageSize: 20 is not supported: at least 32"},
		{openMessaging, "producersPerTopic: 1", "producersPerTopic: 1\nproducerIncrementRate: 5", "producerIncrementRate: 5 is not supported"},
		{openMessaging, `"NO_KEY"`, `"RANDOM_NANO"`, "keyDistributor: RANDOM_NANO is not supported"},
		{openMessaging, "subscriptionsPerTopic: 4", "subscriptionsPerTopic: 0", "subscriptionsPerTopic, consumerPerSubscription: 0, 5 is not supported"},
		{openMessaging, "topics: 2", "topics: 2\nmessageRateReceivedForSubscription: 50", "messageRateReceivedForSubscription: 50"},
		{openMessaging, "topics: 2", "topics: 2\nmoonPhase: full", "moonPhase"},
		{eventStoreSuite, "workload_type: performance", "workload_type: durability", "workload_type: durability is not supported"},
		{eventStoreSuite, "mode: write", "mode: mixed", "mode: mixed is not supported"},
		{eventStoreSuite, "distribution: uniform", "distribution: zipf", "streams.distribution: zipf is not supported"},
		{eventStoreSuite, "writers: [1, 2, 4]", "writers: 4\n  readers: 3", "concurrency.readers: [3] is not supported"},
		{eventStoreSuite, "stores: [some, others]", "setup:\n  prepopulate_events: 10", "setup.prepopulate_events: 10"},
		{eventStoreSuite, "mode: write", "mode: write\nmoon: full", "moon"},
	} {
		if !strings.Contains(c.file, c.was) {
			t.Fatalf("the file does not have %q", c.was)
		}
		if _, _, err := workload.ParseFile([]byte(strings.Replace(c.file, c.was, c.is, 1))); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("with %q: %v", c.is, err)
		}
	}
	// All of it is told at once.
	bad := strings.NewReplacer("messageSize: 1024", "messageSize: 1", "consumerBacklogSizeGB: 0", "consumerBacklogSizeGB: 3").Replace(openMessaging)
	if _, _, err := workload.ParseFile([]byte(bad)); err == nil || strings.Count(err.Error(), "is not supported") != 2 {
		t.Error(err)
	}
}

func TestAFileOfOnesOwnIsReadAsBefore(t *testing.T) {
	all, notes, err := workload.ParseFile([]byte("name: x\nkind: queue\nwriters: [1, 2]\nworkers: 1\nbatch: 1\nsize: 100\nrates: [max]\nphases: {measure: 1s, drain: 1s}\n"))
	if err != nil || len(all) != 2 || len(notes) > 0 {
		t.Error(all, notes, err)
	}
}
