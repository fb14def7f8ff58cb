package longlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/longlock"
)

func TestTimeGoesOnForWhoHoldsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l longlock.RWMutex
		var all sync.WaitGroup
		began := time.Now()
		l.RLock()
		all.Go(func() { // a writer waits for the reader
			l.Lock()
			defer l.Unlock()
			time.Sleep(time.Second)
		})
		synctest.Wait()
		if l.TryRLock() {
			t.Error("a reader came before a writer that waits")
		}
		all.Go(func() { // and this reader for the writer
			l.RLock()
			defer l.RUnlock()
			if took := time.Since(began); took != 2*time.Second {
				t.Errorf("the reader came after %v, want 2 s", took)
			}
		})
		time.Sleep(time.Second)
		l.RUnlock()
		all.Wait()
	})
}

func TestOneWritesAtATime(t *testing.T) {
	var l longlock.RWMutex
	var all sync.WaitGroup
	n := 0
	for range 8 {
		all.Go(func() {
			for range 1000 {
				l.Lock()
				n++
				l.Unlock()
				l.RLock()
				_ = n
				l.RUnlock()
			}
		})
	}
	all.Wait()
	if n != 8000 {
		t.Errorf("counted %d, want 8000", n)
	}
}
