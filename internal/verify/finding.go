package verify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// Finding is one contradiction in a store.
type Finding struct {
	Check string // which check found it: "log", for example
	Place
	What string // what contradicts what
	Do   string // what to do
}

// Place is what a finding is about: offsets of a partition, or a key.
type Place struct {
	Topic  string // "": none is known
	Number int    // of the partition in the topic
	// Partition is the partition's number in the store. 0 is the topics' own.
	Partition eventlog.Partition
	Offset    eventlog.Offset // -1: the partition as a whole
	Key       string          // not "": the finding is about a key, and not about a partition
}

// AtKey is the place of a key.
func AtKey(key string) Place { return Place{Key: key} }

func (p Place) String() string {
	if p.Key != "" {
		return fmt.Sprintf("key %q", p.Key)
	}
	text := fmt.Sprintf("partition %d of the store", p.Partition)
	if p.Topic != "" {
		text = fmt.Sprintf("topic %s, partition %d (%d of the store)", p.Topic, p.Number, p.Partition)
	}
	if p.Offset >= 0 {
		text += fmt.Sprintf(", offset %d", p.Offset)
	}
	return text
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Check, f.Place, f.What) }

// MarshalJSON leaves out what the place does not have.
func (f Finding) MarshalJSON() ([]byte, error) {
	row := struct {
		Check     string              `json:"check"`
		Topic     string              `json:"topic,omitempty"`
		Partition *int                `json:"partition,omitempty"`
		Stored    *eventlog.Partition `json:"partition_in_store,omitempty"`
		Offset    *eventlog.Offset    `json:"offset,omitempty"`
		Key       string              `json:"key,omitempty"`
		What      string              `json:"what"`
		Do        string              `json:"do"`
	}{Check: f.Check, Topic: f.Topic, Key: strings.ToValidUTF8(f.Key, "\uFFFD"), What: f.What, Do: f.Do}
	if f.Key == "" {
		row.Stored = &f.Partition
		if f.Topic != "" {
			row.Partition = &f.Number
		}
		if f.Offset >= 0 {
			row.Offset = &f.Offset
		}
	}
	return json.Marshal(row)
}

// Result is what an exam found.
type Result struct {
	Found      int64 // findings; Options.Found got each
	Undecided  int64 // places that changed with each look; Options.Undecided got each
	Partitions int64 // that were read
	Batches    int64
	Records    int64
	Bytes      int64 // of batches and of keys' values
	Keys       int64
}
