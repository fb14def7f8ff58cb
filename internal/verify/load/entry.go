package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The kinds of entries.
const (
	isBegin     = "begin"     // of the run
	isProtocol  = "protocol"  // what a protocol promises
	isSent      = "sent"      // events are about to be written
	isDone      = "done"      // events were acknowledged
	isRefused   = "refused"   // events were certainly not written
	isUnknown   = "unknown"   // events may have been written
	isGot       = "got"       // a reader got events
	isDamaged   = "damaged"   // a reader got what was never sent
	isAcked     = "acked"     // a reader's acknowledgement of events is durable
	isTrouble   = "trouble"   // calls begin to fail
	isRecovered = "recovered" // calls succeed again
	isHarm      = "harm"      // a command of the operator
	isLog       = "log"       // what a client logged
	isStopped   = "stopped"   // the writers of a protocol have ended
	isSettled   = "settled"   // a reader had the time to get everything
	isWhole     = "whole"     // an audit was read to its end
	isEnd       = "end"       // of the run
)

// Entry is a line of a history: something that happened, in the order in which it was noticed.
type Entry struct {
	At       int64  `json:"at"` // milliseconds since the run began
	Is       string `json:"is"`
	Protocol string `json:"protocol,omitempty"`
	Run      uint32 `json:"run,omitempty"`
	Writer   uint32 `json:"writer,omitempty"`
	First    uint64 `json:"first,omitempty"`   // event of the writer
	N        uint64 `json:"n,omitempty"`       // how many events, in a row from First on; damaged: how many bytes
	Version  *int64 `json:"version,omitempty"` // of the first of them
	Other    uint32 `json:"other,omitempty"`   // got: they are of another run
	Reader   string `json:"reader,omitempty"`
	Text     string `json:"text,omitempty"`
	Code     *int   `json:"code,omitempty"` // harm: the exit code of a command that has ended
	Ordered  bool   `json:"ordered,omitempty"`
	Audited  bool   `json:"audited,omitempty"`
}

// lineMax bounds a line of a history.
const lineMax = 1 << 20

// entries calls visit for each entry of a history. A last line without an end does not count: its
// writer was killed, and had not said that it is there.
func entries(history io.Reader, visit func(Entry) error) error {
	lines := bufio.NewReaderSize(history, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		var long []byte
		for errors.Is(err, bufio.ErrBufferFull) && len(long) < lineMax {
			long = append(long, line...)
			line, err = lines.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("line %d of the history: %w", n, err)
		}
		if long != nil {
			line = append(long, line...)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d of the history is none: %w", n, err)
		}
		if err := visit(e); err != nil {
			return fmt.Errorf("line %d of the history: %w", n, err)
		}
	}
}
