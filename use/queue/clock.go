package queue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// clockKey is a key to ask the store's clock with: the same for every process, and for SQL (weir.queue_time). What it holds does not matter.
const clockKey = "queue/clock"

const (
	// clockFresh is how long a reading of the clock is good without another.
	clockFresh = 10 * time.Second
	// clockSlip is how far the machine's two clocks may drift apart before the store's is read again: a machine that slept counts
	// no monotonic time.
	clockSlip = 500 * time.Millisecond
)

// clock tells the store's time. A reading is one store call; between readings the machine's own clock counts.
//
// The store read its clock at some time during the call. So its time lies between two bounds: a lease ends when the earlier bound
// has passed its end, and a new lease is counted from the later bound.
type clock struct {
	log *eventlog.Log

	mu      sync.Mutex // guards what follows, and the trip
	read    Time       // the store's time at the reading
	asked   time.Time  // before the trip
	told    time.Time  // after it
	reading bool       // there was one
}

// now returns the earlier and the later bound of the store's time. It costs one store call every clockFresh.
func (c *clock) now(ctx context.Context) (earliest, latest Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fresh(time.Now()) {
		if err := c.ask(ctx); err != nil {
			return 0, 0, fmt.Errorf("read the store's clock: %w", err)
		}
	}
	now := time.Now()
	return c.read + Time(now.Sub(c.told).Milliseconds()), c.read + Time(now.Sub(c.asked).Milliseconds()) + 1, nil
}

// forget makes the next call of now read the store's clock again.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
}

func (c *clock) fresh(now time.Time) bool {
	if !c.reading {
		return false
	}
	monotonic := now.Sub(c.told)
	wall := now.Round(0).Sub(c.told.Round(0)) // Round strips the monotonic reading
	return monotonic < clockFresh && (wall-monotonic).Abs() < clockSlip
}

func (c *clock) ask(ctx context.Context) error {
	for {
		asked := time.Now()
		kv, err := c.log.Get(ctx, clockKey)
		if err != nil {
			return err
		}
		if kv.Version == 0 {
			if err := c.set(ctx); err != nil {
				return err
			}
			continue
		}
		c.read, c.asked, c.told, c.reading = Time(kv.Now), asked, time.Now(), true
		return nil
	}
}

// set makes the key. When another process was faster, its value counts.
func (c *clock) set(ctx context.Context) error {
	_, err := c.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: clockKey}},
		Puts:   []eventlog.Put{{Key: clockKey, Version: 1, Value: strconv.AppendInt(nil, time.Now().UnixMilli(), 10)}},
	})
	if isStale(err) {
		return nil
	}
	return err
}
