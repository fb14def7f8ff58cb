package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Answers that are made whole before they are sent, and grow with what there is: lists of topics, groups and queues, and what one of them holds.
const (
	buildersMax = 4        // made at once; others wait in line
	answerFree  = 16 << 10 // an answer of so many bytes is not counted
)

// build waits for the call's turn to make such an answer. built ends it, or the end of the call.
func (c *call) build(ctx context.Context) error {
	if c.s.builders.Acquire(ctx, 1) != nil {
		return kindOverloaded.past(buildersMax, "%d lists are being made, the most at once; try again", buildersMax)
	}
	c.building = true
	return nil
}

func (c *call) built() {
	if c.building {
		c.building = false
		c.s.builders.Release(1)
	}
}

// json answers with a value.
func (c *call) json(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("answer %+v: %v", v, err)) // our own views always encode
	}
	body = append(body, '\n')
	if len(body) > answerFree {
		return c.sendWhole(status, body)
	}
	c.built()
	c.Header()["Content-Type"] = jsonType
	c.send(status, body)
	return nil
}

// sendWhole sends a large answer, which is counted until the client has taken it.
func (c *call) sendWhole(status int, body []byte) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), patience)
	defer cancel()
	claim := c.s.answers.Begin()
	defer claim.Release()
	if _, err := claim.Grow(ctx, int64(len(body))); err != nil {
		if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
			return kindUnknown.because("it was done, and there was no memory for the answer: clients are slow to take theirs")
		}
		return c.s.crowded()
	}
	c.built()
	c.Header()["Content-Type"] = jsonType
	c.WriteHeader(status)
	p := pace{c: c}
	p.begin(claim)
	defer p.rest()
	for len(body) > 0 {
		n := min(len(body), pieceBytes)
		if _, err := p.Write(body[:n]); err != nil {
			return nil // the client is gone, or too slow
		}
		body = body[n:]
	}
	return nil
}
