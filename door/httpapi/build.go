package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Answers that are built as a whole before they are sent, of unbounded size: lists of topics,
// groups and queues, and descriptions of one.
const (
	buildersMax = 4        // most that are built at the same time; other calls wait
	answerFree  = 16 << 10 // an answer up to this size needs no claim
)

// build waits until the call may build such an answer. built, or the end of the call, lets the next
// call build.
func (c *call) build(ctx context.Context) error {
	if c.building != nil {
		return nil
	}
	if c.buildAs(ctx, c.s.builders, c.who.ID()) != nil {
		return kindOverloaded.past(buildersMax, "weir is already building %d lists, the limit, or a quarter of them for this client, the limit for one client; try again", buildersMax)
	}
	return nil
}

// buildAs waits for one of the slots in of, and counts it for the client or network with this id.
func (c *call) buildAs(ctx context.Context, of *slots, id string) error {
	err := of.acquire(ctx, id)
	if err == nil {
		c.building = func() { of.release(id) }
	}
	return err
}

func (c *call) built() {
	if c.building != nil {
		c.building()
		c.building = nil
	}
}

// answerList answers with the elements of a list that the caller may read, under a name.
func answerList[T, V any](c *call, name string, read func(context.Context) ([]T, error), may func(T) bool, view func(T) V) error {
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := c.build(ctx); err != nil {
		return err
	}
	all, err := read(ctx)
	if err != nil {
		return err
	}
	list := []V{}
	for _, one := range all {
		if may(one) {
			list = append(list, view(one))
		}
	}
	return c.json(http.StatusOK, map[string][]V{name: list})
}

// asItIs is the view of a name.
func asItIs(name string) string { return name }

// json answers with a value.
func (c *call) json(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("answer %+v: %v", v, err)) // our own types always encode
	}
	body = append(body, '\n')
	return c.sendWhole(status, jsonType, body)
}

// sendWhole sends an answer that is built; if it is large, its memory is claimed until the client
// has read it.
func (c *call) sendWhole(status int, media []string, body []byte) error {
	if len(body) <= answerFree {
		c.built()
		c.Header()["Content-Type"] = media
		c.send(status, body)
		return nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), storeTimeout)
	defer cancel()
	claim := c.s.answers.BeginFor(c.who.ID())
	defer claim.Release()
	if _, err := claim.Grow(ctx, int64(len(body))); err != nil {
		if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
			return kindUnknown.because("the request was carried out, but there was no memory for the answer, because clients read their answers too slowly")
		}
		return c.s.overloaded()
	}
	c.built()
	c.Header()["Content-Type"] = media
	c.WriteHeader(status)
	p := pageWriter{c: c}
	p.begin(claim)
	defer p.finish()
	for len(body) > 0 {
		n := min(len(body), pieceBytes)
		if _, err := p.Write(body[:n]); err != nil {
			return nil // the client has disconnected, or is too slow
		}
		body = body[n:]
	}
	return nil
}
