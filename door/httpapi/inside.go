package httpapi

import (
	"context"
	"net/http"
)

// Inside is the API for a client in the same process, which is the console: requests are answered
// as those from the network are, with the rights of their credentials.
type Inside struct{ s *Server }

// ServeHTTP answers one request.
func (i *Inside) ServeHTTP(w http.ResponseWriter, r *http.Request) { i.s.dispatch(w, r) }

// May reports whether a client may do a request, by its method, path and credentials. Nothing is
// done. For what only the request's body names, the answer is yes if the client may do it to something.
func (i *Inside) May(r *http.Request) bool {
	w := &verdict{header: http.Header{}}
	i.s.dispatch(w, r.WithContext(context.WithValue(r.Context(), askingKey{}, true)))
	return w.status == http.StatusNoContent
}

// MayOperate reports whether a client may see what is about the whole process: it is on this
// machine, or has the rights that /metrics needs.
func (i *Inside) MayOperate(r *http.Request) bool {
	if who, err := i.s.identify(r); err == nil && who.mayOperate() {
		return true
	}
	return r.Header.Get("Authorization") == "" && i.s.fromHere(r)
}

// askingKey marks a request that only asks whether it would be allowed.
type askingKey struct{}

func asking(r *http.Request) bool { return r.Context().Value(askingKey{}) != nil }

// verdict keeps the status of an answer, and nothing else.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header { return v.header }

func (v *verdict) WriteHeader(status int) {
	if v.status == 0 {
		v.status = status
	}
}

func (v *verdict) Write(b []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	return len(b), nil
}
