package s3test_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/s3test"
)

// proxied returns a client through a proxy, and one without it.
func proxied(t *testing.T) (p *s3test.Proxy, through, direct *client) {
	t.Helper()
	address := s3test.URL(t)
	p = s3test.NewProxy(t, address)
	return p, dial(t, p.URL()), dial(t, address)
}

// faulty gives each request of a method this fault.
func faulty(p *s3test.Proxy, method string, f s3test.Fault) {
	p.Faults(func(r s3test.Request) s3test.Fault {
		if r.Method != method {
			return s3test.Fault{}
		}
		return f
	})
}

// happened expects these answers of the server to the requests of a method.
func happened(t *testing.T, p *s3test.Proxy, method string, want ...[]int) {
	t.Helper()
	var got [][]int
	for _, r := range p.Requests() {
		if r.Method == method {
			got = append(got, r.Statuses)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the server answered %v, want %v", got, want)
	}
}

func TestWithoutFaultsAProxyPassesAllOn(t *testing.T) {
	p, through, direct := proxied(t)
	if err := through.create(t.Context(), "a b/ü+", "0123"); err != nil { // signed for the proxy's Host
		t.Fatal(err)
	}
	direct.expect("a b/ü+", "0123")
	through.expect("a b/ü+", "0123")
	if err := through.create(t.Context(), "a b/ü+", "4"); status(err) != http.StatusPreconditionFailed {
		t.Errorf("%v", err)
	}
	want := s3test.Request{Method: "PUT", Key: "a b/ü+", IfNoneMatch: "*", Statuses: []int{200}}
	if got := p.Requests()[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("recorded: %+v, want %+v", got, want)
	}
	happened(t, p, "PUT", []int{200}, []int{412})
	if twice := s3test.CreatedTwice(p); twice != nil {
		t.Errorf("created twice: %v", twice)
	}
}

// The server does check the Host header: a proxy that rewrites it is refused.
func TestTheSignatureCoversTheHost(t *testing.T) {
	address := s3test.URL(t)
	u, _ := url.Parse(address)
	target, _ := url.Parse(u.Query().Get("endpoint"))
	rewriting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", "http", target.Host, target.Host
		got, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Body.Close()
		w.WriteHeader(got.StatusCode)
	}))
	defer rewriting.Close()
	options := u.Query()
	options.Set("endpoint", rewriting.URL)
	u.RawQuery = options.Encode()
	if err := dial(t, u.String()).create(t.Context(), "x", "1"); status(err) != http.StatusForbidden {
		t.Errorf("%v, want 403", err)
	}
}

func TestADroppedRequestDoesNotReachTheServer(t *testing.T) {
	p, through, direct := proxied(t)
	faulty(p, "PUT", s3test.Fault{Drop: true})
	if err := through.create(t.Context(), "x", "1"); err == nil || status(err) != 0 {
		t.Errorf("%v, want no answer", err)
	}
	if _, err := direct.read("x", ""); status(err) != http.StatusNotFound {
		t.Errorf("the server has it: %v", err)
	}
	happened(t, p, "PUT", nil)
}

func TestALostAnswerIsOfAnExecutedRequest(t *testing.T) {
	p, through, direct := proxied(t)
	faulty(p, "PUT", s3test.Fault{Lose: true})
	if err := through.create(t.Context(), "x", "1"); err == nil || status(err) != 0 {
		t.Errorf("%v, want no answer", err)
	}
	direct.expect("x", "1")
	happened(t, p, "PUT", []int{200})
}

func TestALateRequestIsExecutedWhenItsClientIsGone(t *testing.T) {
	p, through, direct := proxied(t)
	hold := make(chan struct{})
	faulty(p, "PUT", s3test.Fault{Late: true, Hold: hold})
	if err := through.create(t.Context(), "x", "1"); err == nil || status(err) != 0 {
		t.Errorf("%v, want no answer", err)
	}
	for range 100 { // long enough for a request that is not held
		if _, err := direct.read("x", ""); status(err) != http.StatusNotFound {
			t.Fatalf("the server has it already: %v", err)
		}
	}
	close(hold)
	p.Wait()
	direct.expect("x", "1")
}

// The client's own deadline ends first.
func TestAHeldRequestIsExecutedAfterItsClientTimedOut(t *testing.T) {
	p, through, direct := proxied(t)
	hold := make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	p.Faults(func(r s3test.Request) s3test.Fault {
		if r.Method != "PUT" {
			return s3test.Fault{}
		}
		giveUp()
		return s3test.Fault{Hold: hold}
	})
	if err := through.create(ctx, "x", "1"); err == nil {
		t.Error("it was answered")
	}
	close(hold)
	p.Wait()
	direct.expect("x", "1")
}

func TestAPutArrivesTwice(t *testing.T) {
	p, through, direct := proxied(t)
	faulty(p, "PUT", s3test.Fault{Twice: true, Again: time.Millisecond})
	if err := through.create(t.Context(), "x", "1"); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	direct.expect("x", "1")
	happened(t, p, "PUT", []int{200, 412})
	if twice := s3test.CreatedTwice(p); twice != nil {
		t.Errorf("created twice: %v", twice)
	}
}

func TestABusyServerDoesNothing(t *testing.T) {
	p, through, direct := proxied(t)
	faulty(p, "PUT", s3test.Fault{Busy: true})
	if err := through.create(t.Context(), "x", "1"); status(err) != http.StatusServiceUnavailable {
		t.Errorf("%v, want 503", err)
	}
	if _, err := direct.read("x", ""); status(err) != http.StatusNotFound {
		t.Errorf("the server has it: %v", err)
	}
	p.Faults(nil)
	if err := through.create(t.Context(), "x", "1"); err != nil {
		t.Error(err)
	}
}

func TestDelays(t *testing.T) {
	const delay = 30 * time.Millisecond
	p, through, _ := proxied(t)
	for _, choose := range []func(s3test.Request) s3test.Fault{
		s3test.SlowPuts(delay),
		func(s3test.Request) s3test.Fault { return s3test.Fault{After: delay} },
	} {
		p.Faults(choose)
		begun := time.Now()
		_ = through.create(t.Context(), "x", "1")
		if took := time.Since(begun); took < delay {
			t.Errorf("a put took %v, want at least %v", took, delay)
		}
	}
}

func TestADamagedBody(t *testing.T) {
	p, through, direct := proxied(t)
	if err := through.create(t.Context(), "x", "0123456789"); err != nil {
		t.Fatal(err)
	}
	faulty(p, "GET", s3test.Fault{Cut: true, At: 4})
	if got, err := through.read("x", ""); err == nil || got != "0123" && got != "" {
		t.Errorf("cut: %q, %v", got, err)
	}
	faulty(p, "GET", s3test.Fault{Flip: true, At: 13})
	through.expect("x", "0122456789")
	direct.expect("x", "0123456789")
}

func TestAKeyThatIsCreatedTwiceIsFound(t *testing.T) {
	p, through, direct := proxied(t)
	for range 2 {
		if err := through.create(t.Context(), "x", "1"); err != nil {
			t.Fatal(err)
		}
		direct.remove("x") // as if the server had ignored If-None-Match
	}
	if twice := s3test.CreatedTwice(p); len(twice) != 1 || twice[0] != "x" {
		t.Errorf("created twice: %v", twice)
	}
}
