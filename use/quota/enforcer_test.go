package quota_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/quota"
)

// enforce returns an enforcer of one quota.
func enforce(t *testing.T, e quota.Entity, k quota.Kind, limit float64) *quota.Enforcer {
	t.Helper()
	quotas := quotasOf(memory.New())
	set(t, quotas, e, map[quota.Kind]float64{k: limit})
	enforcer := quota.NewEnforcer(quotas)
	enforcer.Refresh(t.Context())
	return enforcer
}

var client = quota.Client{User: "alice", ID: "c"}

// Kafka's order ("Quota Configuration"): the quotas are removed one after the other, the most
// specific one first.
func TestMostSpecificQuotaCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quotas := quotasOf(memory.New())
		levels := []quota.Entity{
			{User: quota.Named("alice"), ClientID: quota.Named("c")},
			{User: quota.Named("alice"), ClientID: quota.Default},
			{User: quota.Named("alice")},
			{User: quota.Default, ClientID: quota.Named("c")},
			{User: quota.Default, ClientID: quota.Default},
			{User: quota.Default},
			{ClientID: quota.Named("c")},
			{ClientID: quota.Default},
		}
		for i, e := range levels {
			set(t, quotas, e, map[quota.Kind]float64{quota.ProducerByteRate: float64(i + 1)})
		}
		enforcer := quota.NewEnforcer(quotas)
		want := map[quota.Client][]float64{
			client:                               {1, 2, 3, 4, 5, 6, 7, 8, math.Inf(1)},
			{User: "alice", ID: "x"}:             {2, 2, 3, 5, 5, 6, 8, 8, math.Inf(1)},
			{User: "bob", ID: "c"}:               {4, 4, 4, 4, 5, 6, 7, 8, math.Inf(1)},
			{User: "bob", ID: "x"}:               {5, 5, 5, 5, 5, 6, 8, 8, math.Inf(1)},
			{User: "alice", ID: ""}:              {3, 3, 3, 6, 6, 6, math.Inf(1), math.Inf(1), math.Inf(1)},
			{User: "<default>", ID: "<default>"}: {5, 5, 5, 5, 5, 6, 8, 8, math.Inf(1)},
		}
		for removed := range len(levels) + 1 {
			enforcer.Refresh(t.Context())
			for c, limits := range want {
				if left := enforcer.Left(quota.ProducerByteRate, c); left != 10*limits[removed] {
					t.Errorf("without the first %d, %+v may use %v in 10 s, want %v", removed, c, left, 10*limits[removed])
				}
				if left := enforcer.Left(quota.ConsumerByteRate, c); !math.IsInf(left, 1) {
					t.Errorf("a quota of another kind bounds %+v to %v", c, left)
				}
			}
			if removed < len(levels) {
				if err := quotas.Change(t.Context(), []quota.Change{{Entity: levels[removed], Clear: true}})[0]; err != nil {
					t.Fatal(err)
				}
			}
		}
		if enforcer.Active() {
			t.Error("without quotas the enforcer is active")
		}
	})
}

// A quota is shared by all whom one name of its entity, or each name that its default stands for,
// is about.
func TestWhoSharesAQuota(t *testing.T) {
	for _, c := range []struct {
		entity quota.Entity
		other  quota.Client
		shares bool
	}{
		{quota.Entity{User: quota.Named("alice")}, quota.Client{User: "alice", ID: "other"}, true},
		{quota.Entity{User: quota.Default}, quota.Client{User: "alice", ID: "other"}, true},
		{quota.Entity{User: quota.Default}, quota.Client{User: "bob", ID: "c"}, false},
		{quota.Entity{User: quota.Named("alice"), ClientID: quota.Default}, quota.Client{User: "alice", ID: "other"}, false},
		{quota.Entity{User: quota.Default, ClientID: quota.Named("c")}, quota.Client{User: "bob", ID: "c"}, false},
		{quota.Entity{ClientID: quota.Named("c")}, quota.Client{User: "bob", ID: "c"}, true},
		{quota.Entity{ClientID: quota.Default}, quota.Client{User: "bob", ID: "c"}, true},
		{quota.Entity{ClientID: quota.Default}, quota.Client{User: "alice", ID: "other"}, false},
	} {
		enforcer := enforce(t, c.entity, quota.ConsumerByteRate, 1000)
		enforcer.Count(quota.ConsumerByteRate, client, 20_000)
		if paused := enforcer.Count(quota.ConsumerByteRate, c.other, 1) > 0; paused != c.shares {
			t.Errorf("%v: %+v must pause because of %+v: %v", c.entity, c.other, client, paused)
		}
	}
}

// The pause is Kafka's (QuotaUtils.throttleTime): how much was used, divided by the quota, minus
// the time over which it is measured.
func TestPauseIsKafkas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enforcer := enforce(t, alice, quota.ProducerByteRate, 1000)
		use := func(amount float64, want time.Duration) {
			t.Helper()
			if got := enforcer.Count(quota.ProducerByteRate, client, amount); got != want {
				t.Errorf("after %v bytes the client must pause for %v, want %v", amount, got, want)
			}
		}
		use(10_000, 0)
		use(1, time.Millisecond)
		use(1_999, 2*time.Second)
		time.Sleep(2500 * time.Millisecond) // measured are 10 whole windows, and half a second
		use(0, 1500*time.Millisecond)
		time.Sleep(7500 * time.Millisecond)
		use(1_000, 3*time.Second) // the first window is the last of the ten
		time.Sleep(time.Second)
		use(0, 0) // now it is forgotten
		use(9_001, time.Millisecond)
		time.Sleep(time.Hour)
		use(10_000, 0)
		use(1e15, quota.PauseMax)
	})
}

func TestPauseForRequestsAndConnectionsIsOneWindowAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := enforce(t, alice, quota.RequestPercentage, 0.001)
		if got := requests.Count(quota.RequestPercentage, client, 1e9); got != time.Second {
			t.Errorf("a request pauses its client for %v", got)
		}
		connections := enforce(t, quota.Entity{IP: quota.Default}, quota.ConnectionCreationRate, 1)
		refused := 0
		for range 30 {
			pause, ok := connections.CountWithin(quota.ConnectionCreationRate, quota.Client{IP: "10.0.0.1"}, 1)
			if !ok {
				refused++
			}
			if pause > time.Second || ok != (pause == 0) {
				t.Errorf("a connection is allowed: %v, and pauses its client for %v", ok, pause)
			}
		}
		if _, ok := connections.CountWithin(quota.ConnectionCreationRate, quota.Client{IP: "10.0.0.2"}, 1); !ok || refused != 20 {
			t.Errorf("%d of 30 connections are refused; one from another address is allowed: %v", refused, ok)
		}
		time.Sleep(11 * time.Second) // refused connections were not counted
		if _, ok := connections.CountWithin(quota.ConnectionCreationRate, quota.Client{IP: "10.0.0.1"}, 1); !ok {
			t.Error("after 11 s no connection is allowed")
		}
	})
}

// Whatever the size of its requests, a client that pauses as it is told gets less than twice its
// quota: a large request may use the quota of ten seconds in which the client used nothing. A
// client that uses no more than is left gets all of it.
func TestClientThatPausesGetsItsQuota(t *testing.T) {
	const limit = 1000
	for _, c := range []struct {
		how   string
		least float64
		use   func(e *quota.Enforcer, size float64) (used float64, pause time.Duration)
	}{
		{"counted after it", 0.9 * limit, func(e *quota.Enforcer, size float64) (float64, time.Duration) {
			return size, e.Count(quota.ConsumerByteRate, client, size)
		}},
		{"counted before it", 0.5 * limit, func(e *quota.Enforcer, size float64) (float64, time.Duration) {
			pause, ok := e.CountWithin(quota.ConsumerByteRate, client, size)
			if !ok {
				size = 0
			}
			return size, pause
		}},
		{"no more than is left", 0.9 * limit, func(e *quota.Enforcer, size float64) (float64, time.Duration) {
			size = min(size, max(e.Left(quota.ConsumerByteRate, client), 1))
			pause, ok := e.CountWithin(quota.ConsumerByteRate, client, size)
			if !ok {
				size = 0
			}
			return size, pause
		}},
	} {
		for _, size := range []float64{20, 999, 5_000, 6_000, 9_999, 15_000, 21_500, 100_000} {
			synctest.Test(t, func(t *testing.T) {
				enforcer := enforce(t, alice, quota.ConsumerByteRate, limit)
				total, began := 0.0, time.Now()
				for time.Since(began) < 20*time.Minute {
					used, pause := c.use(enforcer, size)
					total += used
					time.Sleep(max(pause, 10*time.Millisecond))
				}
				if rate := total / time.Since(began).Seconds(); rate < c.least || rate >= 2*limit {
					t.Errorf("requests of %v bytes, %s: %.0f bytes a second, the quota is %d", size, c.how, rate, limit)
				}
			})
		}
	}
}

// KIP-599: partitions are paid for one by one, however many a request has. Eleven seconds' quota
// may be used at once, and the last request may exceed it.
func TestPartitionsArePaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enforcer := enforce(t, alice, quota.ControllerMutationRate, 0.5)
		mutate := func(partitions int, strict bool, want time.Duration, ok bool) {
			t.Helper()
			if pause, counted := enforcer.Mutate(client, partitions, strict); pause != want || counted != ok {
				t.Errorf("%d partitions, strict %v: a pause of %v, counted %v; want %v, %v", partitions, strict, pause, counted, want, ok)
			}
		}
		mutate(5, true, 0, true)
		mutate(100, true, 0, true) // there was half a token left
		mutate(1, true, 199*time.Second, false)
		time.Sleep(99 * time.Second)
		enforcer.Count(quota.ControllerMutationRate, quota.Client{User: "bob"}, 1) // others may be forgotten
		mutate(1, true, 100*time.Second, false)
		mutate(1, false, 102*time.Second, true) // old clients are not refused
		time.Sleep(102 * time.Second)
		mutate(1, true, 0, true)
		time.Sleep(time.Hour)
		mutate(5, true, 0, true)
		if enforcer.Meters() != 1 {
			t.Errorf("there are %d meters", enforcer.Meters())
		}
		mutate(1_000_000, false, quota.PauseMax, true)
	})
}

// What is not counted is not used: otherwise a client that asks again and again would never get
// anything.
func TestWhatExceedsTheQuotaIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enforcer := enforce(t, alice, quota.ConsumerByteRate, 100)
		ask := func(amount float64) bool {
			_, ok := enforcer.CountWithin(quota.ConsumerByteRate, client, amount)
			return ok
		}
		if !ask(900) || ask(200) || ask(200) || !ask(100) || ask(1) {
			t.Error("900, 200, 200, 100, 1 of 1,000 bytes: other than the second, the third and the last are refused")
		}
		time.Sleep(11 * time.Second)
		if !ask(5_000) { // more than ten seconds' quota, and nothing else was used
			t.Error("an answer that is larger than the quota of all windows is never allowed")
		}
		if ask(1) {
			t.Error("after it the client need not pause")
		}
	})
}

func TestChangeReachesOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Store: memory.New()}
		here, elsewhere := quota.NewEnforcer(quotasOf(store)), quotasOf(store)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var busy atomic.Bool
		busy.Store(true)
		go func() { _ = here.Run(ctx, busy.Load) }()
		most := func(want float64) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := here.Left(quota.ProducerByteRate, client); got != want {
				t.Errorf("the client may use %v, want %v", got, want)
			}
		}
		most(math.Inf(1))
		set(t, elsewhere, alice, map[quota.Kind]float64{quota.ProducerByteRate: 5})
		most(50)
		store.away.Store(true)
		most(50) // the last known quota is used
		time.Sleep(time.Hour)
		most(50)
		store.away.Store(false)
		busy.Store(false)
		before := store.lists.Load()
		time.Sleep(time.Hour)
		if n := store.lists.Load() - before; n > 0 {
			t.Errorf("without clients, quotas are read %d times", n)
		}
		busy.Store(true)
		if err := elsewhere.Change(t.Context(), []quota.Change{{Entity: alice, Clear: true}})[0]; err != nil {
			t.Fatal(err)
		}
		most(math.Inf(1))
		if here.Active() {
			t.Error("without quotas the enforcer is active")
		}
	})
}

func TestIdleClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enforcer := enforce(t, quota.Entity{ClientID: quota.Default}, quota.ProducerByteRate, 1)
		for range 2 {
			for i := range quota.MetersMax + 100 { // those that are too many share one meter
				enforcer.Count(quota.ProducerByteRate, quota.Client{ID: fmt.Sprint(i)}, 1)
			}
			if n := enforcer.Meters(); n > quota.MetersMax+1 {
				t.Errorf("there are %d meters", n)
			}
			if enforcer.Count(quota.ProducerByteRate, quota.Client{ID: "one more"}, 1) == 0 {
				t.Error("clients beyond the limit are not measured")
			}
			time.Sleep(11 * time.Second)
			if enforcer.Count(quota.ProducerByteRate, client, 1); enforcer.Meters() != 1 {
				t.Errorf("after 11 s %d clients are remembered", enforcer.Meters())
			}
			time.Sleep(11 * time.Second)
		}
	})
}

func TestWithoutQuotasNothingIsMeasured(t *testing.T) {
	for _, enforcer := range []*quota.Enforcer{nil, quota.NewEnforcer(quotasOf(memory.New()))} {
		allocated := testing.AllocsPerRun(100, func() {
			if pause := enforcer.Count(quota.ProducerByteRate, client, 1e9); pause > 0 || enforcer.Active() {
				t.Error("a client without a quota must pause")
			}
		})
		if allocated > 0 {
			t.Errorf("%v allocations", allocated)
		}
		if enforcer != nil && enforcer.Meters() > 0 {
			t.Error("a client without a quota is measured")
		}
	}
}
