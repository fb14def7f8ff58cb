package claims

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/longlock"
)

// clockKey is read to get the store's time, except by a process whose log is read-only. Its value
// does not matter. SQL asks the same clock with weir.queue_time.
const clockKey = "queue/clock"

const (
	// clockFresh is how long a reading of the store's clock is used.
	clockFresh = 10 * time.Second
	// clockSlip is how far the machine's wall clock and monotonic clock may drift apart before the
	// store's clock is read again: while a machine sleeps, its monotonic clock stands still.
	clockSlip = 500 * time.Millisecond
)

// Clock gives the store's time. A reading is one store call; between readings the machine's own
// clock counts.
//
// The store read its clock at some time during the call, and may know only bounds of it. So its
// time lies between two bounds: a lease has ended when the earlier bound is past the lease's end,
// and a new lease is counted from the later bound.
type Clock struct {
	log *eventlog.Log

	mu      longlock.Mutex // guards what follows; held during the trip, too
	read    Time           // the lower bound of the store's time at the reading
	most    Time           // the upper bound
	asked   time.Time      // when the trip began
	told    time.Time      // when the trip had ended
	reading bool           // the fields above are set
}

// NewClock returns the clock of a log's store.
func NewClock(log *eventlog.Log) *Clock { return &Clock{log: log} }

// Now returns the earlier and the later bound of the store's time. It costs one store call every
// clockFresh.
func (c *Clock) Now(ctx context.Context) (earliest, latest Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fresh(time.Now()) {
		if err := c.ask(ctx); err != nil {
			return 0, 0, fmt.Errorf("read the store's clock: %w", err)
		}
	}
	now := time.Now()
	return c.read + Time(now.Sub(c.told).Milliseconds()), c.most + Time(now.Sub(c.asked).Milliseconds()) + 1, nil
}

// Forget makes the next call of Now read the store's clock again.
func (c *Clock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
}

func (c *Clock) fresh(now time.Time) bool {
	if !c.reading {
		return false
	}
	monotonic := now.Sub(c.told)
	wall := now.Round(0).Sub(c.told.Round(0)) // Round strips the monotonic reading
	return monotonic < clockFresh && (wall-monotonic).Abs() < clockSlip
}

func (c *Clock) ask(ctx context.Context) error {
	for {
		asked := time.Now()
		key := clockKey
		if c.log.ReadOnly() { // clockKey may not exist yet, and cannot be created here; EpochKey exists as soon as any process has written
			key = eventlog.EpochKey
		}
		kv, err := c.log.Get(ctx, key)
		if err != nil {
			return err
		}
		if kv.Version == 0 {
			if err := c.set(ctx); err != nil {
				return err
			}
			continue
		}
		c.read, c.most, c.asked, c.told, c.reading = Time(kv.Now), Time(max(kv.Now, kv.NowMax)), asked, time.Now(), true
		return nil
	}
}

// set creates the key. If another process was first, its value stays.
func (c *Clock) set(ctx context.Context) error {
	_, err := c.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: clockKey}},
		Puts:   []eventlog.Put{{Key: clockKey, Version: 1, Value: strconv.AppendInt(nil, time.Now().UnixMilli(), 10)}},
	})
	if errors.Is(err, eventlog.ErrStale) {
		return nil
	}
	return err
}
