package httpapi

import (
	"bytes"
	"io"
	"testing"
)

// What an encoder takes while it writes, whatever it writes, is what its follower claims; a
// follower that waits keeps next to nothing.
func TestAnEncoderTakesWhatIsClaimedForIt(t *testing.T) {
	for _, value := range [][]byte{bytes.Repeat([]byte{1}, 1<<20), bytes.Repeat([]byte("\xff"), 1<<20), bytes.Repeat([]byte("v"), 1<<20)} {
		e := newEncoder(io.Discard)
		for range 100 {
			e.field("value", value[:len(value)/10])
			e.string("\n")
			e.spill()
			if cap(e.buf) > encoderBytes {
				t.Fatalf("it takes %d bytes, and %d are claimed", cap(e.buf), encoderBytes)
			}
		}
		e.flush()
		e.rest()
		if cap(e.buf) > encoderKept {
			t.Errorf("it keeps %d bytes, want %d at most", cap(e.buf), encoderKept)
		}
	}
}
