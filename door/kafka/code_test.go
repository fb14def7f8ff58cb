package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

func TestErrorsBecomeKafkasCodes(t *testing.T) {
	const secret = "SQLSTATE 57P01 host=db.internal"
	gaveUp := fmt.Errorf("append: %w: gave up before the entry was sent (%w)", eventlog.ErrUnavailable, context.DeadlineExceeded)
	onItsWay := fmt.Errorf("append: %w: gave up while it was on its way (%w)", eventlog.ErrUnsure, context.DeadlineExceeded)
	both := fmt.Errorf("commit: %w: %w", eventlog.ErrUnavailable, eventlog.ErrUnsure)
	for _, c := range []struct {
		err  error
		want *kerr.Error
	}{
		{eventlog.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
		{eventlog.ErrNoPartition, kerr.UnknownTopicOrPartition},
		{eventlog.ErrTopicExists, kerr.TopicAlreadyExists},
		{eventlog.ErrTooLarge, kerr.MessageTooLarge},
		{eventlog.ErrOutOfOrder, kerr.OutOfOrderSequenceNumber},
		{eventlog.ErrUnknownProducer, kerr.UnknownProducerID},
		{eventlog.ErrFenced, kerr.InvalidProducerEpoch},
		{eventlog.ErrUnavailable, kerr.KafkaStorageError},
		{gaveUp, kerr.KafkaStorageError},
		{eventlog.ErrUnsure, kerr.RequestTimedOut},
		{onItsWay, kerr.RequestTimedOut},
		{both, kerr.RequestTimedOut}, // what may have happened is never told as what did not
		{context.DeadlineExceeded, kerr.RequestTimedOut},
		{eventlog.ErrClosed, kerr.NotLeaderForPartition},
		{&eventlog.RangeError{Asked: 9, Next: 5}, kerr.OffsetOutOfRange},
		{&eventlog.InvalidError{What: "topic name", Value: "a/b"}, kerr.InvalidTopicException},
		{&eventlog.InvalidError{What: "number of partitions"}, kerr.InvalidPartitions},
		{&eventlog.InvalidError{What: "retention.ms"}, kerr.InvalidConfig},
		{batch.ErrCorrupt, kerr.CorruptMessage},
		{batch.ErrTooLarge, kerr.MessageTooLarge},
		{batch.ErrUnsupportedCodec, kerr.UnsupportedCompressionType},
		{&batch.RecordError{Record: 3, Reason: "r"}, kerr.InvalidRecord},
		{deny(kerr.InvalidRequest, "why"), kerr.InvalidRequest},
		{errors.New("anything else"), kerr.UnknownServerError},
	} {
		wrapped := fmt.Errorf("%s: %w", secret, c.err)
		code, text := codeOf(wrapped)
		if code != c.want.Code {
			t.Errorf("%v: %v, expected %v", c.err, kerr.ErrorForCode(code), c.want)
		}
		if text == nil || *text == "" {
			t.Errorf("%v: no text", c.err)
		}
		if text != nil && strings.Contains(*text, "SQLSTATE") {
			t.Errorf("%v: the client is told %q", c.err, *text)
		}
	}
	if code, text := codeOf(nil); code != 0 || text != nil {
		t.Errorf("no error: %d %v", code, text)
	}
}
