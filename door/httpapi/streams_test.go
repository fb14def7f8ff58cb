package httpapi

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// stream opens a stream that ends with ctx, and hands over its answer when it is over.
func (l *locked) stream(ctx context.Context, secret string) <-chan *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8080/v1/topics/orders.eu/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	r.RemoteAddr = hereToo
	over := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		l.ServeHTTP(w, r)
		over <- w
	}()
	return over
}

func TestKeyLeavesStreamsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Streams: 8}))
		id, greedy := door.key(t, apikey.Spec{Access: reads, Topics: []string{"orders."}})
		_, other := door.key(t, apikey.Spec{Access: reads})
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		firstCtx, leaveFirst := context.WithCancel(ctx)
		first, second := door.stream(firstCtx, greedy), door.stream(ctx, greedy)
		synctest.Wait()
		w := <-door.stream(ctx, greedy)
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 429 || p.Type != problemPrefix+"too_many_streams" || p.Limit != 2 ||
			!strings.Contains(p.Detail, id) || !strings.Contains(p.Detail, "2 of the 8") {
			t.Errorf("a stream too many: %d %s %v", w.Code, w.Body, err)
		}
		others := []<-chan *httptest.ResponseRecorder{door.stream(ctx, other), door.stream(ctx, other)}
		leaveFirst()
		<-first
		others = append(others, second, door.stream(ctx, greedy))
		synctest.Wait()
		leave()
		for _, over := range others {
			if w := <-over; w.Code != 200 {
				t.Errorf("a stream among those that there may be: %d %s", w.Code, w.Body)
			}
		}
	})
}

// Without keys everybody is the same, and all streams are theirs.
func TestStreamsWithoutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Streams: 4}))
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		for range 4 {
			door.stream(ctx, "")
		}
		synctest.Wait()
		if w := <-door.stream(ctx, ""); w.Code != 503 {
			t.Errorf("a stream too many: %d %s, want 503", w.Code, w.Body)
		}
	})
}

// A stream with nothing to say does not outlive its key, however seldom it says that it is alive.
func TestIdleStreamEndsWithItsKey(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, door *locked, id string){
		"revoked": func(t *testing.T, door *locked, id string) {
			if _, err := door.keys.Revoke(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(*testing.T, *locked, string) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				door := lock(t, Config{}.With(Limits{KeepAlive: 24 * time.Hour}))
				id, secret := door.key(t, apikey.Spec{Access: reads, Expires: time.Now().Add(time.Hour)})
				_, stays := door.key(t, apikey.Spec{Access: reads})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ends, goesOn := door.stream(ctx, secret), door.stream(ctx, stays)
				synctest.Wait()
				end(t, door, id)
				began := time.Now()
				select {
				case w := <-ends:
					if w.Code != 200 {
						t.Errorf("the stream was %d %s", w.Code, w.Body)
					}
				case <-goesOn:
					t.Error("a stream ends with the key of another")
				case <-time.After(10 * time.Second):
					t.Errorf("the stream goes on %v after its key", time.Since(began))
				}
			})
		})
	}
}

// Who streams without a key is a stranger once there are keys.
func TestIdleStreamEndsWithTheFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{KeepAlive: 24 * time.Hour}))
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		ends := door.stream(ctx, "")
		synctest.Wait()
		door.key(t, apikey.Spec{Access: reads})
		select {
		case <-ends:
		case <-time.After(10 * time.Second):
			t.Error("the stream goes on 10 s after the first key was made")
		}
	})
}
