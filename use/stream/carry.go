package stream

import (
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Call has the events that one call appended with SQL, in a committed transaction. The transaction
// has held the stream and checked the expected version.
type Call struct {
	First  int64            // the version of the first event
	Head   eventlog.Version // the version of the head's key after the call
	Events []NewEvent
}

// Carry returns the entry that appends the first calls to a stream, as Category.Append would, and
// how many these are: what fits into one batch, at least one. topic is the category's. head is the
// stream's head as the store has it now. next is the stream's version after the entry.
func (s *Streams) Carry(topic eventlog.Topic, stream string, head eventlog.KeyValue, calls []Call) (e eventlog.Entry, carried int, next int64, err error) {
	c := &Category{owner: s, topic: topic}
	h, err := carriedHead(head)
	if err != nil {
		return e, 0, 0, err
	}
	var ops []*call
	for _, made := range calls {
		o, err := c.newOp(stream, Expected(made.First), made.Events)
		if err != nil {
			return e, 0, 0, err
		}
		ops = append(ops, &call{Do: o})
	}
	accepted, refused, _ := divide(ops, h, topic.MaxMessageBytes())
	if len(refused) > 0 || len(accepted) == 0 {
		return e, 0, 0, fmt.Errorf("the stream is at version %d, but events that were appended with SQL begin at version %d", h.Next, calls[0].First)
	}
	after, _, err := c.change(&e, topic, stream, h, nil, opsOf(accepted))
	if err != nil {
		return e, 0, 0, err
	}
	after.version = calls[len(accepted)-1].Head
	c.changeHead(&e, stream, h, after)
	for i := range e.Checks {
		e.Checks[i].Holdable = false // this entry carries the change that the key is held for
	}
	return e, len(accepted), after.Next, nil
}

// carriedHead is the head in a key; a key that does not exist has the head of a stream that never
// was.
func carriedHead(kv eventlog.KeyValue) (head, error) {
	if kv.Version == 0 {
		return head{}, nil
	}
	return headIn(kv)
}
