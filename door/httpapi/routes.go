package httpapi

import (
	"cmp"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// route is one path and method of the API.
type route struct {
	pattern string // of http.ServeMux, and after a ? the allowed query parameters
	access  access
	handle  func(*Server, *call) error
}

// api lists all routes. openapi.yaml has the same ones.
var api = []route{
	{"GET /openapi.yaml", public, (*Server).document},

	{"POST /v1/topics/{topic}/events?key&key_b64&partition&timestamp&tombstone", mayWrite, (*Server).publishOne},
	{"POST /v1/topics/{topic}/batch?partial", mayWrite, (*Server).publishMany},
	{"GET /v1/topics/{topic}/partitions/{partition}/events?offset&max&wait_ms", mayRead, (*Server).read},
	{"GET /v1/topics/{topic}/stream?from&partition", mayRead, (*Server).stream},

	{"GET /v1/topics", mayRead, (*Server).listTopics},
	{"POST /v1/topics", mayAdmin, (*Server).createTopic},
	{"GET /v1/topics/{topic}", mayRead, (*Server).describeTopic},
	{"PATCH /v1/topics/{topic}", mayAdmin, (*Server).alterTopic},
	{"DELETE /v1/topics/{topic}", mayAdmin, (*Server).deleteTopic},

	{"GET /v1/groups", mayRead, (*Server).listGroups},
	{"GET /v1/groups/{group}", mayRead, (*Server).describeGroup},
	{"DELETE /v1/groups/{group}", mayAdmin, (*Server).deleteGroup},
	{"GET /v1/groups/{group}/offsets", mayRead, (*Server).groupOffsets},
	{"PUT /v1/groups/{group}/offsets", mayAdmin, (*Server).resetOffsets},

	{"POST /v1/groups/{group}/members", mayRead, (*Server).join},
	{"DELETE /v1/groups/{group}/members/{member}", mayRead, (*Server).leaveGroup},
	{"GET /v1/groups/{group}/members/{member}/events?max&wait_ms&after", mayRead, (*Server).memberEvents},
	{"POST /v1/groups/{group}/members/{member}/commit", mayRead, (*Server).commitOffsets},

	{"GET /v1/queues", mayRead, (*Server).listQueues},
	{"POST /v1/queues", mayAdmin, (*Server).createQueue},
	{"GET /v1/queues/{queue}", mayRead, (*Server).describeQueue},
	{"PATCH /v1/queues/{queue}", mayAdmin, (*Server).alterQueue},
	{"DELETE /v1/queues/{queue}", mayAdmin, (*Server).deleteQueue},
	{"POST /v1/queues/{queue}/pause", mayAdmin, (*Server).pauseQueue},
	{"POST /v1/queues/{queue}/resume", mayAdmin, (*Server).resumeQueue},
	{"POST /v1/queues/{queue}/purge", mayAdmin, (*Server).purgeQueue},

	{"POST /v1/queues/{queue}/messages?key&key_b64&delay_ms&at&unique&priority", mayWrite, (*Server).enqueueOne},
	{"POST /v1/queues/{queue}/batch", mayWrite, (*Server).enqueueMany},
	{"GET /v1/queues/{queue}/messages?state&from&max", mayRead, (*Server).peekMessages},
	{"GET /v1/queues/{queue}/messages/{message}", mayRead, (*Server).findMessage},

	{"GET /v1/queues/{queue}/schedules", mayRead, (*Server).listSchedules},
	{"GET /v1/queues/{queue}/schedules/{schedule}", mayRead, (*Server).describeSchedule},
	{"PUT /v1/queues/{queue}/schedules/{schedule}", mayAdmin, (*Server).setSchedule},
	{"DELETE /v1/queues/{queue}/schedules/{schedule}", mayAdmin, (*Server).deleteSchedule},

	{"POST /v1/queues/{queue}/claim", mayRead, (*Server).claimMessages},
	{"POST /v1/queues/{queue}/ack", mayRead, (*Server).ackMessages},
	{"POST /v1/queues/{queue}/nack", mayRead, (*Server).nackMessages},
	{"POST /v1/queues/{queue}/extend", mayRead, (*Server).extendLeases},

	{"GET /v1/queues/{queue}/dead?max&after", mayRead, (*Server).listDead},
	{"POST /v1/queues/{queue}/dead/redrive", mayAdmin, (*Server).redriveDead},
	{"POST /v1/queues/{queue}/dead/discard", mayAdmin, (*Server).discardDead},

	{"GET /v1/streams", mayRead, (*Server).listCategories},
	{"POST /v1/streams", mayAdmin, (*Server).createCategory},
	{"GET /v1/streams/{category}?prefix&after&max", mayRead, (*Server).describeCategory},
	{"PATCH /v1/streams/{category}", mayAdmin, (*Server).alterCategory},
	{"GET /v1/streams/{category}/{stream}?from&to&until&type&backward&max", mayRead, (*Server).readStream},
	{"GET /v1/streams/{category}/{stream}/events?from", mayRead, (*Server).followStream},
	{"POST /v1/streams/{category}/{stream}", mayWrite, (*Server).appendEvents},
	// These need admin access: a key for writing must not take away what others read, nor keep others from writing.
	{"DELETE /v1/streams/{category}/{stream}", mayAdmin, (*Server).deleteStream},
	{"POST /v1/streams/{category}/{stream}/archive", mayAdmin, (*Server).archiveStream},
	{"POST /v1/streams/{category}/{stream}/unarchive", mayAdmin, (*Server).unarchiveStream},
	{"GET /v1/streams/{category}/{stream}/snapshot?at", mayRead, (*Server).loadSnapshot},
	{"PUT /v1/streams/{category}/{stream}/snapshot", mayWrite, (*Server).saveSnapshot},
	{"PUT /v1/streams/{category}/{stream}/retention", mayAdmin, (*Server).setStreamRetention},
	{"DELETE /v1/streams/{category}/{stream}/retention", mayAdmin, (*Server).unsetStreamRetention},
	// What is not about one stream cannot be below /v1/streams/{category}: any name there is that of a stream.
	{"POST /v1/append", mayWrite, (*Server).appendAll},
	{"GET /v1/tagged/{category}?tag", mayRead, (*Server).readTagged},
	{"POST /v1/subjects/{category}/forget", mayAdmin, (*Server).forgetSubject},

	{"GET /v1/projections", mayRead, (*Server).listProjections},
	{"GET /v1/projections/{projection}", mayRead, (*Server).describeProjection},
	{"DELETE /v1/projections/{projection}", mayAdmin, (*Server).deleteProjection},
	{"POST /v1/projections/{projection}/rebuild", mayAdmin, (*Server).rebuildProjection},
	{"POST /v1/projections/{projection}/pause", mayAdmin, (*Server).pauseProjection},
	{"POST /v1/projections/{projection}/resume", mayAdmin, (*Server).resumeProjection},
}

// routes returns the handler of all routes.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.operatorRoutes(mux)
	for _, r := range api {
		mux.Handle(s.endpoint(r))
	}
	mux.HandleFunc("/", s.nothingHere)
	return mux
}

// endpoint makes a route's handler: it checks access, answers errors with problems, and reports to the observer.
func (s *Server) endpoint(rt route) (pattern string, h http.Handler) {
	pattern, list, _ := strings.Cut(rt.pattern, "?")
	var params []string
	if list != "" {
		params = strings.Split(list, "&")
	}
	return pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{ResponseWriter: w, s: s, r: r, route: pattern, id: w.Header().Get(requestIDHeader), until: began.Add(storeTimeout)}
		defer func() {
			c.releaseBody()
			c.built()
			s.cfg.Observer.Answered(pattern, c.status, time.Since(began))
		}()
		defer s.inProgress.Add(-1)
		if s.inProgress.Add(1) > int64(s.cfg.limits.Requests) {
			s.refuse(c, kindOverloaded.past(int64(s.cfg.limits.Requests), "there are already %d requests in progress, the limit; try again later", s.cfg.limits.Requests))
			return
		}
		if !s.allow(c, rt.access, cmp.Or(r.PathValue("topic"), r.PathValue("category"))) {
			return
		}
		if s.cfg.Log.ReadOnly() && r.Method != http.MethodGet && r.Method != http.MethodHead { // all other methods write, claims, acks and joins too
			s.refuse(c, kindReadOnly.because("%s", sendElsewhere))
			return
		}
		if err := s.requests.begin(c.who); err != nil {
			s.refuse(c, err)
			return
		}
		defer s.requests.end(c.who)
		var err error
		if !utf8.ValidString(r.URL.Path) {
			err = kindInvalidRequest.because("the path is not valid UTF-8; all names are UTF-8")
		} else if c.query, err = query(r.URL, params); err == nil {
			err = rt.handle(s, c)
		}
		if err != nil {
			s.refuse(c, err)
		}
	})
}

// nothingHere answers for unknown paths and methods.
func (s *Server) nothingHere(w http.ResponseWriter, r *http.Request) {
	allowed := s.methods(r)
	if len(allowed) == 0 {
		s.turnDown(w, r, kindNotFound.because("GET /openapi.yaml lists all paths"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.turnDown(w, r, kindMethod.because("this path does not support %s; it supports %s", shorten(r.Method), strings.Join(allowed, ", ")))
}

// turnDown answers a request that matches no route.
func (s *Server) turnDown(w http.ResponseWriter, r *http.Request, p *problem) {
	c := &call{ResponseWriter: w, s: s, r: r, route: "other", id: w.Header().Get(requestIDHeader)}
	s.answerProblem(c, p)
	s.cfg.Observer.Answered(c.route, p.Status, 0)
}

// methods lists the methods that a path allows.
func (s *Server) methods(r *http.Request) (allowed []string) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		probe := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(&probe); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}
