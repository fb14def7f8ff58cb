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

// denyFor is a denial with the text of an error in the client's own bytes. It reveals nothing of the server.
func denyFor(cause error) error {
	return &denial{kafka: kafkaError(cause), text: cause.Error(), cause: cause}
}

// codeOf maps our errors to Kafka's codes, here and nowhere else. The text is for people and never contains the store's error.
//
// Codes matter more than texts: a client decides by the code whether to retry, to refresh its metadata or to give up, and whether it may
// assume that nothing happened.
func codeOf(err error) (code int16, text *string) {
	if err == nil {
		return 0, nil
	}
	k, text := kafkaError(err), new(string)
	var (
		d       *denial
		invalid *eventlog.InvalidError
		outside *eventlog.RangeError
	)
	switch {
	case errors.As(err, &d):
		*text = d.text
	case errors.As(err, &invalid):
		*text = invalid.Error()
	case errors.As(err, &outside):
		*text = fmt.Sprintf("offset %d is outside [%d, %d)", outside.Asked, outside.First, outside.Next)
	case errors.Is(err, eventlog.ErrNoSpace):
		*text = "the disk of the store is full: nothing happened, and trying again works once there is space"
	default:
		*text = k.Description
	}
	if len(*text) > textMax { // it may contain a client's names, and older versions have two bytes for its length
		*text = strings.ToValidUTF8((*text)[:textMax], "") + "…"
	}
	return k.Code, text
}

// textMax is the longest text of an answer, in bytes.
const textMax = 1000

// errorCode is codeOf for answers without room for a text.
func errorCode(err error) int16 {
	code, _ := codeOf(err)
	return code
}

func kafkaError(err error) *kerr.Error {
	var (
		d       *denial
		invalid *eventlog.InvalidError
		outside *eventlog.RangeError
		damaged *eventlog.DamagedError
	)
	if k := groupError(err); k != nil {
		return k
	}
	switch {
	case errors.As(err, &d):
		return d.kafka
	case errors.As(err, &outside):
		return kerr.OffsetOutOfRange
	case errors.As(err, &damaged):
		return kerr.CorruptMessage // clients tell their caller, who may seek past it
	case errors.As(err, &invalid):
		return kafkaInvalid(invalid)

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

// trouble logs an error that is the server's and not the client's. The event log itself logs the store's errors.
func (s *Server) trouble(what string, err error) {
	if kafkaError(err) == kerr.UnknownServerError {
		s.cfg.Logger.Error("kafka: request failed", "request", what, "error", err)
	}
}
