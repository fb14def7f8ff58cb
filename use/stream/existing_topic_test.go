package stream_test

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// A topic that becomes a category gets what the category's spec says, or is refused.
func TestATopicThatBecomesACategoryKeepsItsEventsForEver(t *testing.T) {
	t.Skip("not mended: see the review")
	p := begin(t, memory.New())
	_, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1})
	check(t, err)
	if _, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 8}); err != nil {
		return
	}
	topic, err := p.log.TopicNow(t.Context(), "orders")
	check(t, err)
	if got := topic.Setting("retention.ms"); got != "-1" || len(topic.Partitions) != 8 {
		t.Errorf("created with retention.ms %s and %d partitions; asked for were -1 and 8", got, len(topic.Partitions))
	}
}
