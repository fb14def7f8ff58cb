package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// denial is the error for a request, or a part of one, that this package refuses itself.
type denial struct {
	kafka *kerr.Error
	text  string
	cause error  // or nil
	lacks string // what weir does not have that Kafka has, or ""
}

func (d *denial) Error() string { return d.kafka.Message + ": " + d.text }
func (d *denial) Unwrap() error { return d.cause }

func deny(kafka *kerr.Error, format string, args ...any) error {
	return &denial{kafka: kafka, text: fmt.Sprintf(format, args...)}
}

// denyFor is a denial with the text of cause, which must be about what the client sent, or about
// its group: such a text reveals nothing about the server.
func denyFor(cause error) error {
	return &denial{kafka: kafkaError(cause), text: cause.Error(), cause: cause}
}

// codeOf maps our errors to Kafka's codes. Only Produce and InitProducerId replace one of these
// codes, by a code after which producers retry. The text is for people and never contains the
// store's error.
//
// Codes matter more than texts: a client decides by the code whether to retry, to refresh its
// metadata or to give up, and whether it may assume that nothing happened.
func codeOf(err error) (code int16, text *string) {
	if err == nil {
		return 0, nil
	}
	k := kafkaError(err)
	text = new(textOf(err, k))
	if len(*text) > textMax { // it may contain a client's names, and older versions have two bytes for its length
		*text = strings.ToValidUTF8((*text)[:textMax], "") + "…"
	}
	return k.Code, text
}

func textOf(err error, k *kerr.Error) string {
	if d, ok := errors.AsType[*denial](err); ok {
		return d.text
	}
	if invalid, ok := errors.AsType[*eventlog.InvalidError](err); ok {
		return invalid.Error()
	}
	if outside, ok := errors.AsType[*eventlog.RangeError](err); ok {
		return fmt.Sprintf("offset %d is out of range: the first offset of the partition is %d, and the next record gets %d", outside.Asked, outside.First, outside.Next)
	}
	if errors.Is(err, eventlog.ErrReadOnly) {
		return eventlog.ErrReadOnly.Error()
	}
	if errors.Is(err, eventlog.ErrUpgraded) {
		return "a newer weir has upgraded the store, and this process reads and writes nothing more. Nothing was changed; the same request succeeds at a process of the newer version"
	}
	if errors.Is(err, eventlog.ErrNoSpace) {
		return "the disk of the store is full. Nothing was changed; the same request will succeed when there is space again"
	}
	if errors.Is(err, eventlog.ErrBusy) {
		return "topics are changed faster than that is possible. Nothing was changed; try again"
	}
	if errors.Is(err, eventlog.ErrOverloaded) {
		return "weir is overloaded: the time for the request was over before its turn came, while the store answered others. Nothing was changed; try again later, or ask for less in one request"
	}
	return k.Description
}

// textMax is the longest text of an answer, in bytes.
const textMax = 1000

// textsMax bounds the bytes of all error texts in an answer that may have one for each partition.
// Later errors have only the code: otherwise a request could cause a far larger answer, as a
// partition takes four bytes of a request, and a text may contain its topic's name.
const textsMax = 64 << 10

// codeOf is the function codeOf, but keeps the texts of the request's answer within textsMax.
func (r *request) codeOf(err error) (code int16, text *string) {
	code, text = codeOf(err)
	if text == nil || r.texts+len(*text) > textsMax {
		return code, nil
	}
	r.texts += len(*text)
	return code, text
}

// errorCode is codeOf for answers that have no field for a text.
func errorCode(err error) int16 {
	code, _ := codeOf(err)
	return code
}

func kafkaError(err error) *kerr.Error {
	if k := groupError(err); k != nil {
		return k
	}
	if d, ok := errors.AsType[*denial](err); ok {
		return d.kafka
	}
	if _, ok := errors.AsType[*eventlog.RangeError](err); ok {
		return kerr.OffsetOutOfRange
	}
	if _, ok := errors.AsType[*eventlog.DamagedError](err); ok {
		return kerr.CorruptMessage // clients report it to their caller, who may seek past the batch
	}
	if invalid, ok := errors.AsType[*eventlog.InvalidError](err); ok {
		return kafkaInvalid(invalid)
	}
	switch {
	case errors.Is(err, batch.ErrCorrupt):
		return kerr.CorruptMessage
	case errors.Is(err, batch.ErrTimestamp):
		return kerr.InvalidTimestamp
	case errors.Is(err, batch.ErrInvalidRecord):
		return kerr.InvalidRecord
	case errors.Is(err, batch.ErrUnsupportedCodec):
		return kerr.UnsupportedCompressionType
	case errors.Is(err, batch.ErrTooLarge), errors.Is(err, eventlog.ErrTooLarge):
		return kerr.MessageTooLarge

	case errors.Is(err, eventlog.ErrUnknownTopic), errors.Is(err, eventlog.ErrNoPartition):
		return kerr.UnknownTopicOrPartition
	case errors.Is(err, eventlog.ErrTopicExists):
		return kerr.TopicAlreadyExists
	case errors.Is(err, eventlog.ErrOutOfOrder):
		return kerr.OutOfOrderSequenceNumber
	case errors.Is(err, eventlog.ErrUnknownProducer):
		return kerr.UnknownProducerID
	case errors.Is(err, eventlog.ErrFenced):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, eventlog.ErrSpansShards):
		return kerr.InvalidRequest

	// Not retriable, so clients pass it to their callers. Java shows our text with it
	// (Sender.failBatch), and texts of its own with authorization errors.
	case errors.Is(err, eventlog.ErrReadOnly):
		return kerr.PolicyViolation

	// The outcome is unknown. Check this before ErrUnavailable: an error's chain may contain both.
	case errors.Is(err, eventlog.ErrUnsure),
		errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrCrowded):
		return kerr.RequestTimedOut
	// Certainly nothing happened; a retry may succeed.
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrCrowded):
		return kerr.KafkaStorageError
	case errors.Is(err, eventlog.ErrClosed), errors.Is(err, context.Canceled):
		return kerr.NotLeaderForPartition
	default:
		return kerr.UnknownServerError
	}
}

// kafkaInvalid returns the code for each kind of InvalidError.
func kafkaInvalid(e *eventlog.InvalidError) *kerr.Error {
	switch e.What {
	case "topic name":
		return kerr.InvalidTopicException
	case "number of partitions":
		return kerr.InvalidPartitions
	default:
		return kerr.InvalidConfig
	}
}

// trouble logs an error that is the server's and not the client's. The event log itself logs the
// store's errors.
func (s *Server) trouble(what string, err error) {
	if kafkaError(err) == kerr.UnknownServerError {
		s.cfg.Logger.Error("kafka: request failed", "request", what, "err", err)
	}
}
