package kafka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// broken is a store with a bug.
type broken struct{ eventlog.Store }

func (broken) Seek(context.Context, []eventlog.Goal) ([]eventlog.Found, error) {
	panic("a bug")
}

// A panic in one request ends its connection, is told to the operator, and hurts nobody else.
func TestAPanicInOneRequestEndsItsConnectionAlone(t *testing.T) {
	b := startOn(t, broken{memory.New()}, kafka.Config{})
	b.createTopic("t", 1, nil)
	w := b.dial()
	w.send(frame(listRequest("t", 0, 5), 1))
	w.mustClose()
	if said := b.said.String(); !strings.Contains(said, "a request panicked") || !strings.Contains(said, "ListOffsets") || !strings.Contains(said, "a bug") {
		t.Errorf("the log says %s", said)
	}
	if p := ask[*kmsg.ListOffsetsResponse](b, listRequest("t", 0, -1)).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("another connection gets error %d", p.ErrorCode)
	}
}
