package batch

import (
	"cmp"
	"errors"
	"fmt"
)

// Errors that a caller can act on. The numbers are the codes that Kafka gives for them.
var (
	// ErrCorrupt: the bytes are not one whole batch, or not the ones that were sent (2,
	// CORRUPT_MESSAGE). Sending them again may work.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrTooLarge: a batch decompresses to more than a limit allows (10, MESSAGE_TOO_LARGE).
	ErrTooLarge = errors.New("batch too large")
	// ErrDecodedTooLarge: a batch's records and headers take more than DecodedMax once they are
	// decoded. It matches ErrTooLarge. Sending the batch again cannot work; Kafka's own producer
	// splits it, unless it is one record (Sender.completeBatch).
	ErrDecodedTooLarge = fmt.Errorf("%w to decode", ErrTooLarge)
	// ErrUnsupportedCodec: a codec that is not known (76, UNSUPPORTED_COMPRESSION_TYPE).
	ErrUnsupportedCodec = errors.New("unsupported compression codec")
	// ErrInvalidRecord: the batch arrived as it was sent, but its content breaks a rule (87,
	// INVALID_RECORD). Sending it again cannot work. It always comes as a *RecordError.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrTimestamp: a record's timestamp is above MaxTimestamp (32, INVALID_TIMESTAMP: what Kafka's
	// LogValidator answers for a timestamp out of bounds, with each such record). It always comes
	// as a *RecordError.
	ErrTimestamp = errors.New("invalid timestamp")
)

// WholeBatch, as the record of a RecordError, says that no single record is to blame.
const WholeBatch = -1

// RecordError says which record of a batch is wrong, and why. It matches ErrInvalidRecord or
// ErrTimestamp.
type RecordError struct {
	Record int // counts from 0; WholeBatch when none
	Reason string
	Others []OtherRecord // later records of the batch that are wrong as well, at most othersMax
	is     error         // ErrInvalidRecord when nil
}

// OtherRecord is a record that is wrong beside the one that a RecordError is about.
type OtherRecord struct {
	Record int
	Reason string
}

// othersMax bounds the memory that a wrong batch takes. librdkafka puts 10,000 records into a batch
// by default.
const othersMax = 10_000

func (e *RecordError) Error() string {
	if e.Record == WholeBatch {
		return "invalid batch: " + e.Reason
	}
	return fmt.Sprintf("invalid record %d of batch: %s", e.Record, e.Reason)
}

// last returns the last record that is wrong.
func (e *RecordError) last() int {
	if n := len(e.Others); n > 0 {
		return e.Others[n-1].Record
	}
	return e.Record
}

// Is makes errors.Is match a RecordError with ErrInvalidRecord or ErrTimestamp: see the field is.
func (e *RecordError) Is(target error) bool { return target == cmp.Or(e.is, ErrInvalidRecord) }

func invalid(format string, args ...any) error {
	return &RecordError{Record: WholeBatch, Reason: fmt.Sprintf(format, args...)}
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}
