package queue

import (
	"encoding/json"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// A state in the store:
//
//	{"writer":"9f3c-17","parts":[{"partition":4,"floor":10,"next":14,"runs":[
//	   {"n":2,"fate":"claimed","attempt":1,"until":1790000000000,"nonce":305419896,"worker":"w1"},
//	   {"n":1,"fate":"done"},
//	   {"n":1,"fate":"waiting","attempt":1,"until":1790000005000,"reason":"refused"}]}]}
type storedState struct {
	Writer   string       `json:"writer"`
	After    string       `json:"after,omitempty"`
	Tokens   float64      `json:"tokens,omitempty"`
	TokensAt Time         `json:"tokens_at,omitempty"`
	Parts    []storedPart `json:"parts"`
}

type storedPart struct {
	Partition eventlog.Partition `json:"partition"`
	Floor     eventlog.Offset    `json:"floor"`
	Next      eventlog.Offset    `json:"next"`
	Runs      []storedRun        `json:"runs,omitempty"`
}

type storedRun struct {
	N       int64  `json:"n"`
	Fate    string `json:"fate"`
	Attempt int32  `json:"attempt,omitempty"`
	Until   Time   `json:"until,omitempty"`
	Nonce   uint32 `json:"nonce,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

var fateNames = map[fate]string{done: "done", claimed: "claimed", waiting: "waiting"}

func (s *state) encode() []byte {
	stored := storedState{Writer: s.writer, After: s.after, Tokens: s.tokens, TokensAt: s.tokensAt, Parts: make([]storedPart, len(s.parts))}
	for i, p := range s.parts {
		sp := storedPart{Partition: p.partition, Floor: p.floor, Next: p.next}
		for _, r := range p.runs {
			sp.Runs = append(sp.Runs, storedRun{N: r.n, Fate: fateNames[r.fate], Attempt: r.attempt, Until: r.until, Nonce: r.nonce, Worker: r.worker, Reason: r.reason})
		}
		stored.Parts[i] = sp
	}
	value, err := json.Marshal(stored)
	if err != nil {
		panic(fmt.Sprintf("queue: encode state: %v", err)) // JSON can encode all its fields
	}
	return value
}

// decode reads a state, and refuses one that contradicts itself.
func decode(value []byte) (*state, error) {
	var stored storedState
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, err
	}
	s := &state{writer: stored.Writer, after: stored.After, tokens: stored.Tokens, tokensAt: stored.TokensAt}
	for _, sp := range stored.Parts {
		p := s.part(sp.Partition)
		p.floor, p.next = sp.Floor, sp.Next
		covered := sp.Floor
		for i, r := range sp.Runs {
			f, err := fateOf(r.Fate)
			if err != nil || r.N <= 0 {
				return nil, fmt.Errorf("partition %d, run %d: %d messages with the fate %q", sp.Partition, i, r.N, r.Fate)
			}
			p.runs = append(p.runs, run{from: covered, n: r.N, fate: f, attempt: r.Attempt, until: r.Until, nonce: r.Nonce, worker: r.Worker, reason: r.Reason})
			covered += eventlog.Offset(r.N)
		}
		if covered != sp.Next {
			return nil, fmt.Errorf("partition %d: its runs cover [%d, %d), not up to next %d", sp.Partition, sp.Floor, covered, sp.Next)
		}
	}
	return s, nil
}

func fateOf(name string) (fate, error) {
	for f, n := range fateNames {
		if n == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown fate %q", name)
}
