package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// TopicsOf returns the topics that a queue of this name may create or use: for its messages unless
// Spec.Topic names another topic, for its priorities, for its dead letters and for its handled
// messages.
func TopicsOf(name string) []string {
	topics := []string{name, name + deadSuffix, name + doneSuffix}
	for n := 1; n < prioritiesMax; n++ {
		topics = append(topics, name+levelSuffix+strconv.Itoa(n))
	}
	return topics
}

// TopicsOfSettings returns the topics that a queue with these settings uses besides the topic of
// its messages of priority 0 and the topic of its dead letters.
func TopicsOfSettings(name string, s Settings) (topics []string) {
	if s.KeepDone {
		topics = append(topics, name+doneSuffix)
	}
	for n := 1; n < min(s.Priorities, prioritiesMax); n++ {
		topics = append(topics, name+levelSuffix+strconv.Itoa(n))
	}
	return topics
}

func checkName(name string) error {
	if err := eventlog.CheckTopicName(name); err != nil { // its topics are named after it
		return &eventlog.InvalidError{What: "queue name", Value: shorten(name, 64), Why: "1 to 244 of a-z, A-Z, 0-9, '.', '_' and '-' are allowed"}
	}
	if len(name)+len(doneSuffix) > nameMax {
		return &eventlog.InvalidError{What: "queue name", Value: shorten(name, 64), Why: fmt.Sprintf("it has %d bytes; at most %d are allowed, because its topics %s and %s are named after it", len(name), nameMax-len(doneSuffix), deadSuffix, doneSuffix)}
	}
	return nil
}

// checkNew refuses to create a topic for messages if its name ends with a suffix of TopicsOf. A
// queue that is created later, with the rest of the name, would take the topic for its own: its
// dead letters, say, would become messages of this queue.
func checkNew(topic string) error {
	for _, suffix := range TopicsOf("")[1:] {
		if strings.HasSuffix(topic, suffix) {
			return &eventlog.InvalidError{What: "queue's topic", Value: topic,
				Why: fmt.Sprintf("it does not exist, and the name is that of a topic of the queue %q; choose another name", strings.TrimSuffix(topic, suffix))}
		}
	}
	return nil
}
