package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// deaf is a client that takes nothing of its answer until it leaves.
type deaf struct {
	*httptest.ResponseRecorder
	left <-chan struct{}
}

func (d deaf) Write([]byte) (int, error) { <-d.left; return 0, http.ErrAbortHandler }

// However many answers of one key nobody takes, another key's comes at once.
func TestAnswersOfOneKeyLeaveMemoryForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock(t, Config{}.With(Limits{FetchBytes: 4 << 20}))
		_, writer := l.key(t, apikey.Spec{Access: admins})
		_, greedy := l.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		_, other := l.key(t, apikey.Spec{Access: []apikey.Access{apikey.Read}})
		for range 20 {
			if w := l.bearer(writer, "POST", "/v1/topics/users/events", string(bytes.Repeat([]byte("x"), 50<<10))); w.Code != 200 {
				t.Fatal(w.Code, w.Body)
			}
		}
		const page = "/v1/topics/users/partitions/0/events?max=1000"
		ctx, leave := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for range 50 {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080"+page, nil)
			r.RemoteAddr = elsewhere
			r.Header.Set("Authorization", "Bearer "+greedy)
			clients.Go(func() {
				defer func() { _ = recover() }() // of an answer that cannot be sent
				l.ServeHTTP(deaf{httptest.NewRecorder(), ctx.Done()}, r)
			})
		}
		synctest.Wait()
		began := time.Now()
		if w := l.bearer(other, "GET", page, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"offset":0`) || time.Since(began) > 0 {
			t.Errorf("after %v another key's answer has %d bytes: %d %.200s", time.Since(began), w.Body.Len(), w.Code, w.Body)
		}
		leave()
		clients.Wait()
	})
}
