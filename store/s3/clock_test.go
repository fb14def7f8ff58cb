package s3

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
)

// dated is a server whose clock differs from ours, and runs faster or slower.
type dated struct {
	began time.Time // by our clock
	ahead time.Duration
	rate  float64 // how much faster its clock runs
	late  bool    // Date is read once a second
	phase time.Duration
}

func (d dated) clock(at time.Time) time.Time {
	passed := at.Sub(d.began)
	return at.Add(d.ahead + time.Duration(float64(passed)*d.rate))
}

// date is the header Date of an answer.
func (d dated) date(at time.Time) time.Time {
	now := d.clock(at)
	if d.late {
		now = now.Add(-(time.Duration(now.UnixNano()) + d.phase) % time.Second) // when it was read last
	}
	return now.Truncate(time.Second)
}

func (d dated) lag() time.Duration {
	if d.late {
		return dateLag
	}
	return exactLag
}

// ask makes a request that takes a while in both directions.
func (d dated) ask(c *clock, rng *rand.Rand) {
	asked := time.Now()
	time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
	date := d.date(time.Now())
	time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
	c.observe(date, asked, time.Now(), d.lag())
}

func anyServer(rng *rand.Rand) dated {
	return dated{
		began: time.Now(), ahead: time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour, rate: (rng.Float64() - 0.5) / 1100, // 455 ppm
		late: rng.IntN(2) == 0, phase: time.Duration(rng.Int64N(int64(time.Second))),
	}
}

// Whatever the server's clock shows, however fast it runs, and however long answers take: its time
// is within the bounds, also long after an answer.
func TestTheServersTimeIsWithinTheBounds(t *testing.T) {
	rng := seed.Random(t)
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			server, c := anyServer(rng), &clock{}
			for range 300 {
				server.ask(c, rng)
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
				if rng.IntN(50) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(time.Hour))))
				}
				earliest, latest := c.now()
				if now := server.clock(time.Now()).UnixMilli(); now < int64(earliest) || now > int64(latest) {
					t.Fatalf("%+v: the server's clock is at %d, and the bounds are [%d, %d]", server, now, earliest, latest)
				}
			}
		})
	}
}

// A few requests find out when the server's second begins.
func TestTheServersTickIsFound(t *testing.T) {
	rng := seed.Random(t)
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			server, c := anyServer(rng), &clock{}
			server.ask(c, rng)
			requests := 0
			began := time.Now()
			for ; requests < ticksMost; requests++ {
				wait, more := c.untilTick()
				if !more {
					break
				}
				time.Sleep(wait)
				server.ask(c, rng)
			}
			if took := time.Since(began); took > 12*time.Second {
				t.Errorf("%+v: %d requests took %v", server, requests, took)
			}
			if earliest, latest := c.now(); latest-earliest > eventlog.Timestamp((server.lag() + tickKnown + 45*time.Millisecond).Milliseconds()) {
				t.Errorf("%+v: after %d requests the bounds are %d ms apart", server, requests, latest-earliest)
			}
		})
	}
}

// The server's clock is set. The bounds follow with the next answer.
func TestAServerWhoseClockIsSetIsFollowed(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			rng := seed.Random(t)
			server, c := anyServer(rng), &clock{}
			for range 10 {
				server.ask(c, rng)
			}
			server.ahead += by
			server.ask(c, rng)
			earliest, latest := c.now()
			if now := server.clock(time.Now()).UnixMilli(); now < int64(earliest) || now > int64(latest) {
				t.Errorf("the server's clock was set to %d, and the bounds are [%d, %d]", now, earliest, latest)
			}
		})
	}
}

func TestOnlyKnownServersHaveAnExactDate(t *testing.T) {
	for server, want := range map[string]time.Duration{"AmazonS3": exactLag, "MinIO": exactLag, "VERSITYGW": dateLag, "": dateLag} {
		if got := lagOf(http.Header{"Server": {server}}); got != want {
			t.Errorf("the server %q: %v, want %v", server, got, want)
		}
	}
}

// Processes that know the server's time more or less exactly put and read keys. None is told a time
// that the server's clock has not reached, or an age that a key has not reached.
func TestNoProcessIsAheadOfTheServersClock(t *testing.T) {
	rng := seed.Random(t)
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.Ahead = time.Duration(rng.Int64N(int64(time.Hour)))
			stores := make([]*Store, 4)
			for i := range stores {
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second)))) // one begins late in a second, another one early
				s, err := f.open(t.Context(), quick)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				stores[i] = s
			}
			for n := range 40 {
				key := fmt.Sprint("k", n)
				out, err := stores[rng.IntN(4)].Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("v")}}}})
				if err != nil || out[0].Err != nil {
					t.Fatal(out, err)
				}
				put := time.Now()
				time.Sleep(time.Duration(rng.Int64N(int64(700 * time.Millisecond))))
				for i, s := range stores {
					found, err := s.List(t.Context(), key, "", 1)
					if err != nil || len(found) == 0 {
						t.Fatal(found, err)
					}
					now, age := time.Now().Add(f.Ahead).UnixMilli(), time.Since(put)
					if kv := found[0]; int64(kv.Now) > now || int64(kv.NowMax) < now || kv.Age > age || kv.Age < age-2*time.Second-2*exactLag {
						t.Fatalf("process %d: the server's clock is at %d, and the bounds are [%d, %d]; the key is %v old, and its age is %v", i, now, kv.Now, kv.NowMax, age, kv.Age)
					}
				}
			}
			for i, s := range stores {
				if earliest, latest := s.clock.now(); latest-earliest > eventlog.Timestamp((exactLag + 2*tickKnown).Milliseconds()) {
					t.Errorf("process %d: after some seconds the bounds are %d ms apart", i, latest-earliest)
				}
			}
		})
	}
}

// A process that is alone makes no requests for its reads. It asks for the time when the last
// answer is old.
func TestAProcessThatIsAloneAsksForTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, alone := newFake(), quick
		alone.alone = true
		s, err := f.open(t.Context(), alone)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		if out, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}}}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		time.Sleep(24 * time.Hour)
		found, err := s.List(t.Context(), "k", "", 1)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if apart := found[0].NowMax - found[0].Now; apart > 1100 {
			t.Errorf("after a day without requests, the bounds of the store's time are %d ms apart", apart)
		}
	})
}

// The machine is suspended: the server's clock goes on, and its own stands still. The first commit
// afterwards does not go by what was known before.
func TestTheFirstCommitAfterASuspensionHasTheServersTime(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, at := newFake(), quick
			at.alone, at.verify = alone, time.Hour // so that nothing else asks the server before a put
			var silent atomic.Pointer[string]      // the object of which the server says nothing
			s, err := f.openDeafTo(t.Context(), at, &silent)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			commitOne(t, s, 1)
			time.Sleep(2 * clockOld)
			f.pass(10 * time.Minute)
			format := "format"
			silent.Store(&format)
			if _, err := publish(t, s, "without a time"); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("alone %v: a commit while nobody knows the time was told %v", alone, err)
			}
			silent.Store(nil)
			commitOne(t, s, 2)
			s.mu.Lock()
			put, _ := s.st.keys.Get("k")
			s.mu.Unlock()
			if late := time.Now().Add(f.Ahead).UnixMilli() - int64(put.putAt); late > 0 {
				t.Errorf("alone %v: the commit has a time that is %d ms before the server's", alone, late)
			}
		})
	}
}
