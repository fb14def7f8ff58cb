package batch

import "fmt"

// Validate walks the records of a checked batch and checks each against the layout: lengths that
// add up, offset deltas from 0 without gaps, timestamps in range, header keys that are not null, no
// byte too few or too many. A compressed batch is decompressed as a stream, in the memory of one
// window; one that grows past maxDecompressed fails with ErrTooLarge, and one whose records would
// take more than DecodedMax with ErrDecodedTooLarge. It returns how many bytes it decompressed,
// also when it fails. Records that can be read and break a rule (no key, a timestamp that is too
// high) are all in one RecordError.
func Validate(raw []byte, h Header, maxDecompressed int) (decompressed int, err error) {
	return validate(raw, h, maxDecompressed, false)
}

// ValidateKeyed is Validate for a compacted topic: every record must have a key.
func ValidateKeyed(raw []byte, h Header, maxDecompressed int) (decompressed int, err error) {
	return validate(raw, h, maxDecompressed, true)
}

func validate(raw []byte, h Header, maxDecompressed int, keyed bool) (decompressed int, err error) {
	var c cursor
	c.start(raw, h.Attributes.Codec(), maxDecompressed, false)
	defer c.close()
	c.memory, c.keyed = DecodedMax, keyed
	err = c.validate(h)
	return c.decompressed(), err
}

func (c *cursor) validate(h Header) error {
	var rec Record
	for i := range int(h.Records) {
		if !c.next(i, &rec) {
			return c.err
		}
		// The sum may overflow. Above the maximum it becomes negative. Below the minimum it becomes
		// positive: only the delta shows that.
		t := h.BaseTimestamp + rec.Timestamp
		if t < NoTimestamp || rec.Timestamp < NoTimestamp-h.BaseTimestamp {
			c.fail("its timestamp is %d %+d; the lowest allowed is %d, which means unknown", h.BaseTimestamp, rec.Timestamp, NoTimestamp)
			return c.err
		}
		if t > MaxTimestamp {
			c.blame(i, lateTimestamp(t), ErrTimestamp)
		}
	}
	if err := c.finish(int(h.Records)); err != nil {
		return err
	}
	if c.wrong != nil {
		return c.wrong
	}
	if h.MaxTimestamp > MaxTimestamp { // even if no record has it
		return &RecordError{Record: WholeBatch, Reason: lateTimestamp(h.MaxTimestamp), is: ErrTimestamp}
	}
	return nil
}

func lateTimestamp(t int64) string {
	return fmt.Sprintf("its timestamp is %d ms; the highest allowed is %d, the end of the year 9999", t, MaxTimestamp)
}
