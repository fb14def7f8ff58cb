package httpapi

import (
	"net/http"
	"strings"

	"github.com/weir-log/weir/internal/pathname"
)

// renamed says where paths of earlier versions are now. A request of the old path is redirected
// (308, with the same method and body), for one version.
var renamed = map[string]string{
	"GET /v1/topics/{topic}/stream": "/v1/topics/{topic}/events",

	"POST /v1/append":                      "/v1/categories/append",
	"GET /v1/tagged/{category}":            "/v1/categories/{category}/events",
	"POST /v1/subjects/{category}/forget":  "/v1/categories/{category}/subjects/forget",
	"GET /v1/streams":                      "/v1/categories",
	"POST /v1/streams":                     "/v1/categories",
	"GET /v1/streams/{category}":           "/v1/categories/{category}/streams",
	"PATCH /v1/streams/{category}":         "/v1/categories/{category}",
	"GET /v1/streams/{category}/{stream}":  "/v1/categories/{category}/streams/{stream}/events",
	"POST /v1/streams/{category}/{stream}": "/v1/categories/{category}/streams/{stream}/events",

	"DELETE /v1/streams/{category}/{stream}":           "/v1/categories/{category}/streams/{stream}",
	"GET /v1/streams/{category}/{stream}/events":       "/v1/categories/{category}/streams/{stream}/events",
	"POST /v1/streams/{category}/{stream}/archive":     "/v1/categories/{category}/streams/{stream}/archive",
	"POST /v1/streams/{category}/{stream}/unarchive":   "/v1/categories/{category}/streams/{stream}/unarchive",
	"GET /v1/streams/{category}/{stream}/snapshot":     "/v1/categories/{category}/streams/{stream}/snapshot",
	"PUT /v1/streams/{category}/{stream}/snapshot":     "/v1/categories/{category}/streams/{stream}/snapshot",
	"PUT /v1/streams/{category}/{stream}/retention":    "/v1/categories/{category}/streams/{stream}/retention",
	"DELETE /v1/streams/{category}/{stream}/retention": "/v1/categories/{category}/streams/{stream}/retention",
}

// elsewhere answers a request of a path that was renamed.
func (s *Server) elsewhere(from, to string) http.HandlerFunc {
	_, old, _ := strings.Cut(from, " ")
	return func(w http.ResponseWriter, r *http.Request) {
		now := to
		for _, name := range []string{"topic", "category", "stream"} {
			value := r.PathValue(name)
			if value == loneSlash {
				value = "/"
			}
			now = strings.ReplaceAll(now, "{"+name+"}", pathname.Escape(value))
		}
		if r.URL.RawQuery != "" {
			now += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", now)
		s.turnDown(w, r, kindRenamed.because("%s is now %s; use the new path: the old one goes with the next version", old, to))
	}
}
