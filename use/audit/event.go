package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Verb is what was done, and to what kind of object: kind.done.
type Verb string

// The verbs.
const (
	TopicCreate   Verb = "topic.create"
	TopicAlter    Verb = "topic.alter" // its partitions or its settings
	TopicDelete   Verb = "topic.delete"
	RecordsDelete Verb = "records.delete" // of a topic: recorded before it is done

	UserCreate  Verb = "user.create"
	UserAlter   Verb = "user.alter" // its password, or the mechanisms with which it logs in
	UserDelete  Verb = "user.delete"
	KeyCreate   Verb = "key.create"
	KeyRotate   Verb = "key.rotate" // a new key was made in the place of another one
	KeyRevoke   Verb = "key.revoke"
	ACLCreate   Verb = "acl.create"
	ACLDelete   Verb = "acl.delete"
	QuotaAlter  Verb = "quota.alter"
	QuotaDelete Verb = "quota.delete"

	QueueCreate       Verb = "queue.create"
	QueueAlter        Verb = "queue.alter"
	QueuePause        Verb = "queue.pause"
	QueueResume       Verb = "queue.resume"
	QueuePurge        Verb = "queue.purge"
	QueueDelete       Verb = "queue.delete"
	DeadLetterRedrive Verb = "dead_letter.redrive" // dead letters of a queue: recorded before it is done
	DeadLetterDiscard Verb = "dead_letter.discard" // the same
	ScheduleSet       Verb = "schedule.set"        // of a queue
	ScheduleDelete    Verb = "schedule.delete"

	CategoryCreate Verb = "category.create"
	CategoryAlter  Verb = "category.alter" // its retention
	StreamAlter    Verb = "stream.alter"   // its own retention, and whether it is archived
	StreamForget   Verb = "stream.forget"  // its events before a version
	StreamDelete   Verb = "stream.delete"
	SubjectForget  Verb = "subject.forget"

	ProjectionRebuild Verb = "projection.rebuild"
	ProjectionPause   Verb = "projection.pause"
	ProjectionResume  Verb = "projection.resume"
	ProjectionDelete  Verb = "projection.delete"

	GroupReset  Verb = "group.reset" // its offsets, of which the event has the first hundred
	GroupDelete Verb = "group.delete"
)

// Event is a change. Before and After are as JSON; nil: there was, or is, no such object. They
// never have a secret, nor what a secret could be found out from.
type Event struct {
	Verb          Verb
	Object        string
	Before, After any
}

// Recorded is an event as a record has it.
type Recorded struct {
	Time   time.Time       `json:"time"`
	Who    Who             `json:"who"`
	Verb   Verb            `json:"verb"`
	Object string          `json:"object"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// Parse reads a record's value.
func Parse(value []byte) (r Recorded, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("an event of %s: %w", Topic, err)
	}
	return r, nil
}

// record returns the event as a record. Its key is the object, after its kind.
func (e Event) record(who Who, now time.Time) batch.Record {
	kind, _, _ := strings.Cut(string(e.Verb), ".")
	value := encode(struct {
		Time   time.Time `json:"time"`
		Who    Who       `json:"who"`
		Verb   Verb      `json:"verb"`
		Object string    `json:"object"`
		Before any       `json:"before"`
		After  any       `json:"after"`
	}{now.UTC().Truncate(time.Millisecond), who, e.Verb, e.Object, e.Before, e.After})
	if most := eventMax; len(value) > most {
		value = encode(Recorded{now.UTC().Truncate(time.Millisecond), who, e.Verb, e.Object, cut(e.Before), cut(e.After)})
	}
	return batch.Record{Timestamp: now.UnixMilli(), Key: []byte(kind + "/" + e.Object), Value: value}
}

// eventMax is the most bytes of an event: before and after are left out of a larger one.
const eventMax = 256 << 10

// cut stands for what is too large.
func cut(state any) json.RawMessage {
	if state == nil {
		return nil
	}
	return json.RawMessage(fmt.Sprintf(`{"left_out_bytes":%d}`, len(encode(state))))
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("an audit event %+v: %v", v, err)) // what events show always encodes
	}
	return raw
}

var _ eventlog.TopicAudit = topics{}
