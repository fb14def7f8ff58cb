package quota

import (
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// A rate is measured over the current window and the ten before it, as in Kafka
// (quota.window.num=11, quota.window.size.seconds=1):
//
//	|  1  |  2  |  …  | 10  | now
//	|<----------------------->|     what is used in this time, divided by it
const (
	windows    = 11
	windowSize = time.Second
)

const (
	// PauseMax bounds the pause after too many bytes. Kafka has no bound for it
	// (QuotaUtils.throttleTime).
	PauseMax = time.Hour
	// metersMax bounds the clients that are measured. Beyond it, clients that are not measured yet
	// share one meter for each kind.
	metersMax = 100_000
)

// meter counts what was used in each window.
type meter struct {
	used   [windows]float64
	newest int64  // the number of the newest window that is counted
	bucket bucket // of ControllerMutationRate, which has no windows
}

// bucket holds tokens: the partitions that may be created or deleted. It fills with the rate of the
// quota. Windows would forget a request for many partitions after eleven seconds; a bucket is empty
// until they are paid for (KIP-599, TokenBucket).
type bucket struct {
	tokens float64       // less than 0: so many were used too early
	at     time.Duration // when there were so many tokens, since meters.began
	fullAt time.Duration // when there will be as many as there can be; 0: the bucket is new, and full
}

// fill adds the tokens that have come since b.at.
func (b *bucket) fill(limit float64, now time.Duration) {
	most := limit * (windows * windowSize).Seconds()
	if b.fullAt == 0 {
		b.tokens = most
	}
	b.tokens, b.at = min(most, b.tokens+limit*(now-b.at).Seconds()), now
}

// take takes tokens, even if there are fewer.
func (b *bucket) take(limit, amount float64) {
	b.tokens -= amount
	b.fullAt = b.at + seconds((limit*(windows*windowSize).Seconds()-b.tokens)/limit) + 1 // not 0, which stands for a new bucket
}

// empty returns how long there will be no tokens.
func (b *bucket) empty(limit float64) time.Duration { return min(seconds(-b.tokens/limit), PauseMax) }

// seconds is a duration, at most a day: nothing here lasts longer.
func seconds(n float64) time.Duration {
	const most = 24 * time.Hour
	if !(n < most.Seconds()) {
		return most
	}
	return time.Duration(math.Round(max(n, 0)*1000)) * time.Millisecond
}

// sum moves on to a window, and returns what was used in it and those before it.
func (m *meter) sum(window int64) (sum float64) {
	for n := max(m.newest+1, window-windows+1); n <= window; n++ {
		m.used[n%windows] = 0
	}
	m.newest = max(m.newest, window)
	for _, used := range m.used {
		sum += used
	}
	return sum
}

// pause returns for how long nothing may be used so that the rate gets down to the limit. If O is
// the rate and T the limit over the time W, then it is the X for which O·W / (W+X) = T, as in Kafka
// (QuotaUtils.throttleTime). As O·W is the sum, X = sum/T − W.
func pause(k Kind, sum, limit float64, measured time.Duration) time.Duration {
	most := PauseMax
	if k == RequestPercentage || k == ConnectionCreationRate {
		most = windowSize // as in Kafka (ClientRequestQuotaManager, ConnectionQuotas: boundedThrottleTime)
	}
	over := sum/limit - measured.Seconds()
	switch {
	case !(over > 0):
		return 0
	}
	return min(seconds(over), most)
}

// meters measure clients. They are forgotten once nothing that they count is in a window.
type meters struct {
	began time.Time // windows are counted from here
	seed  maphash.Seed

	mu    sync.Mutex // guards all below
	all   map[uint64]*meter
	swept int64 // window in which idle meters were forgotten last
}

func newMeters() *meters {
	return &meters{began: time.Now(), seed: maphash.MakeSeed(), all: make(map[uint64]*meter)}
}

// metered is what is measured together.
type metered struct {
	kind   Kind
	sharer Client
}

// count counts an amount, and returns for how long the clients that share the meter must pause. If
// unlessOver, an amount that exceeds the limit is not counted, unless nothing else is: otherwise an
// amount that is larger than the limit of all windows could never be used.
func (m *meters) count(k Kind, sharer Client, limit, amount float64, unlessOver bool) (wait time.Duration, counted bool) {
	window, measured := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.of(k, sharer, window)
	before := one.sum(window)
	wait = pause(k, before+amount, limit, measured)
	if wait > 0 && unlessOver && before > 0 {
		return wait, false
	}
	one.used[window%windows] += amount
	return wait, true
}

// left returns how much may be used now without a pause.
func (m *meters) left(k Kind, sharer Client, limit float64) float64 {
	window, measured := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	return limit*measured.Seconds() - m.of(k, sharer, window).sum(window)
}

// now returns the number of the current window, and the time over which rates are measured.
func (m *meters) now() (window int64, measured time.Duration) {
	since := max(time.Since(m.began), 0)
	return int64(since / windowSize), (windows-1)*windowSize + since%windowSize
}

// take takes tokens of a sharer, even if there are fewer. Then it returns how long there will be
// none; with strict, 0. With strict it takes nothing if more tokens than there were have been taken
// already, and returns how long there will be none.
func (m *meters) take(k Kind, sharer Client, limit, amount float64, strict bool) (wait time.Duration, taken bool) {
	now := max(time.Since(m.began), 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &m.of(k, sharer, int64(now/windowSize)).bucket
	b.fill(limit, now)
	if strict && b.tokens < 0 {
		return b.empty(limit), false
	}
	b.take(limit, amount)
	if strict {
		return 0, true
	}
	return b.empty(limit), true
}

// of returns the meter of a sharer.
func (m *meters) of(k Kind, sharer Client, window int64) *meter {
	if window-m.swept >= windows {
		m.sweep(window)
	}
	id := maphash.Comparable(m.seed, metered{k, sharer}) // names come from clients and may be long; two of 100,000 have the same hash with a chance of 3 in 10^10
	one := m.all[id]
	if one == nil && len(m.all) >= metersMax {
		id = maphash.Comparable(m.seed, metered{kind: k})
		one = m.all[id]
	}
	if one == nil {
		one = &meter{newest: window}
		m.all[id] = one
	}
	return one
}

// sweep forgets meters that count nothing any more.
func (m *meters) sweep(window int64) {
	for id, one := range m.all {
		if window-one.newest >= windows && time.Duration(window)*windowSize >= one.bucket.fullAt {
			delete(m.all, id)
		}
	}
	m.swept = window
}
