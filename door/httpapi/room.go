package httpapi

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/weir-log/weir/eventlog/batch"
)

// room is what one answer takes of Config.FetchBytes: for the batches it was read from, and for what their records become.
//
//	├── batches ──┼── records ──┤
//	0                        used     has ≤ most
//
// An event that is larger than the most of one answer comes alone, and counts for the most: the slowest client of the largest event
// cannot keep all others out.
type room struct {
	free *semaphore.Weighted
	most int64
	used int64
	has  int64
}

// roomParts is how many answers there is room for at least.
const roomParts = 4

// room finds room for an answer: with need 0 for a usual one, or for a small one where many are being sent: answers get small before
// anybody waits. Those that wait do it in line, and hold nothing meanwhile.
func (s *Server) room(ctx context.Context, need int64) (*room, error) {
	r := &room{free: s.events, most: max(s.cfg.FetchBytes/roomParts, 1)}
	if need == 0 {
		if r.has = min(2*fetchBytes, r.most); r.free.TryAcquire(r.has) {
			return r, nil
		}
		need = 2 * fetchScant
	}
	r.has = min(need, r.most)
	if r.free.Acquire(ctx, r.has) != nil {
		return nil, kindOverloaded.past(s.cfg.FetchBytes, "clients are slow to take answers that have %d bytes together, the most there may be; try again", s.cfg.FetchBytes)
	}
	return r, nil
}

// take reports whether there is room for n bytes more, which with first may be past the most. It does not wait: who holds room must
// not wait for others who do.
func (r *room) take(n int64, first bool) bool {
	if r.used+n > r.most && !first {
		return false
	}
	if more := min(r.used+n, r.most) - r.has; more > 0 {
		if !r.free.TryAcquire(more) {
			return false
		}
		r.has += more
	}
	r.used += n
	return true
}

// settle gives back what is not used.
func (r *room) settle() {
	if rest := r.has - r.used; rest > 0 {
		r.free.Release(rest)
		r.has = r.used
	}
}

// leave gives all back.
func (r *room) leave() {
	r.free.Release(r.has)
	r.has, r.used = 0, 0
}

// What Go takes for a record and for a header, beside their bytes, and a little more: the lists they are in grow in steps.
const (
	recordBytes = 128
	headerBytes = 64
)

// weight is what a record takes.
func weight(rec *batch.Record) int64 {
	n := recordBytes + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += headerBytes + len(h.Key) + len(h.Value)
	}
	return int64(n)
}
