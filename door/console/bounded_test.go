package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// slowAPI answers once it is released, or the client is gone.
type slowAPI struct{ asked, released chan struct{} }

func (a slowAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked <- struct{}{}
	select {
	case <-a.released:
	case <-r.Context().Done():
	}
	_, _ = w.Write([]byte("{}"))
}
func (a slowAPI) May(*http.Request) bool        { return false }
func (a slowAPI) MayOperate(*http.Request) bool { return false }

func TestThePagesBeingMadeAreBounded(t *testing.T) {
	api := slowAPI{make(chan struct{}, 2*pagesMax), make(chan struct{})}
	c := New(Config{API: api})
	get := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/topics", nil))
		return w.Code
	}
	var pages sync.WaitGroup
	for range pagesMax {
		pages.Go(func() {
			if status := get(t.Context()); status != http.StatusOK {
				t.Errorf("a page: %d", status)
			}
		})
		<-api.asked
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if status := get(gone); status != http.StatusServiceUnavailable || len(api.asked) > 0 {
		t.Errorf("one more page: %d, and it asked the API %d times", status, len(api.asked))
	}
	close(api.released)
	pages.Wait()
	if status := get(t.Context()); status != http.StatusOK {
		t.Errorf("a page afterwards: %d", status)
	}
}
