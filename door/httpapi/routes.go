package httpapi

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weir-log/weir/use/audit"
)

// route is one path and method of the API.
type route struct {
	pattern string // of http.ServeMux, and after a ? the allowed query parameters
	needs   need
	handle  func(*Server, *call) error
}

// api lists all routes. openapi.yaml has the same ones.
var api = []route{
	{"GET /openapi.yaml", toAll, (*Server).document},

	{"POST /v1/topics/{topic}/events?key&key_b64&partition&timestamp&tombstone", toWrite, (*Server).publishOne},
	{"POST /v1/topics/{topic}/batch?partial", toWrite, (*Server).publishMany},
	{"GET /v1/topics/{topic}/partitions/{partition}/events?offset&max&wait_ms", toRead, (*Server).read},
	{"GET /v1/topics/{topic}/events?from&partition&max&wait_ms", toRead, (*Server).readTopic},

	{"GET /v1/topics", toDescribe, (*Server).listTopics},
	{"POST /v1/topics", toCreate, (*Server).createTopic},
	{"GET /v1/topics/{topic}", toDescribe, (*Server).describeTopic},
	{"PATCH /v1/topics/{topic}", toChange, (*Server).alterTopic},
	{"DELETE /v1/topics/{topic}", toDelete, (*Server).deleteTopic},

	{"GET /v1/groups", toDescribe, (*Server).listGroups},
	{"GET /v1/groups/{group}", toDescribe, (*Server).describeGroup},
	{"DELETE /v1/groups/{group}", toDeleteGroup, (*Server).deleteGroup},
	{"GET /v1/groups/{group}/offsets", toDescribe, (*Server).groupOffsets},
	{"PUT /v1/groups/{group}/offsets", toReset, (*Server).resetOffsets},

	{"POST /v1/groups/{group}/members", toRead, (*Server).join},
	{"DELETE /v1/groups/{group}/members/{member}", toRead, (*Server).leaveGroup},
	{"GET /v1/groups/{group}/members/{member}/events?max&wait_ms&after", toRead, (*Server).memberEvents},
	{"POST /v1/groups/{group}/members/{member}/commit", toRead, (*Server).commitOffsets},

	{"GET /v1/queues", toDescribe, (*Server).listQueues},
	{"POST /v1/queues", toMakeQueue, (*Server).createQueue},
	{"GET /v1/queues/{queue}", toDescribe, (*Server).describeQueue},
	{"PATCH /v1/queues/{queue}", toAlterConfigs, (*Server).alterQueue},
	{"DELETE /v1/queues/{queue}", toDelete, (*Server).deleteQueue},
	{"POST /v1/queues/{queue}/pause", toAlterConfigs, (*Server).pauseQueue},
	{"POST /v1/queues/{queue}/resume", toAlterConfigs, (*Server).resumeQueue},
	{"POST /v1/queues/{queue}/purge", toDelete, (*Server).purgeQueue},

	{"POST /v1/queues/{queue}/messages?key&key_b64&delay_ms&at&unique&priority", toWrite, (*Server).enqueueOne},
	{"POST /v1/queues/{queue}/batch", toWrite, (*Server).enqueueMany},
	{"GET /v1/queues/{queue}/messages?state&from&max", toRead, (*Server).peekMessages},
	{"GET /v1/queues/{queue}/messages/{message}", toRead, (*Server).findMessage},

	{"GET /v1/queues/{queue}/schedules", toRead, (*Server).listSchedules},
	{"GET /v1/queues/{queue}/schedules/{schedule}", toRead, (*Server).describeSchedule},
	{"PUT /v1/queues/{queue}/schedules/{schedule}", toSchedule, (*Server).setSchedule},
	{"DELETE /v1/queues/{queue}/schedules/{schedule}", toSchedule, (*Server).deleteSchedule},

	{"POST /v1/queues/{queue}/claim", toRead, (*Server).claimMessages},
	{"POST /v1/queues/{queue}/ack", toRead, (*Server).ackMessages},
	{"POST /v1/queues/{queue}/nack", toRead, (*Server).nackMessages},
	{"POST /v1/queues/{queue}/extend", toRead, (*Server).extendLeases},

	{"GET /v1/queues/{queue}/dead?max&after", toRead, (*Server).listDead},
	{"POST /v1/queues/{queue}/dead/redrive", toRedrive, (*Server).redriveDead},
	{"POST /v1/queues/{queue}/dead/discard", toDelete, (*Server).discardDead},

	{"GET /v1/categories", toDescribe, (*Server).listCategories},
	{"POST /v1/categories", toCreate, (*Server).createCategory},
	{"POST /v1/categories/append", toWrite, (*Server).appendAll}, // to streams of several categories
	{"GET /v1/categories/{category}", toRead, (*Server).describeCategory},
	{"PATCH /v1/categories/{category}", toAlterConfigs, (*Server).alterCategory},
	{"GET /v1/categories/{category}/events?tag", toRead, (*Server).readTagged},
	{"POST /v1/categories/{category}/subjects/forget", toDelete, (*Server).forgetSubject},
	{"GET /v1/categories/{category}/streams?prefix&after&max", toRead, (*Server).listStreams},
	{"GET /v1/categories/{category}/streams/{stream}/events?from&to&until&type&backward&max", toRead, (*Server).readStream},
	{"POST /v1/categories/{category}/streams/{stream}/events", toWrite, (*Server).appendEvents},
	// These need more than a right to write: whoever writes must not take away what others read,
	// nor keep others from writing.
	{"DELETE /v1/categories/{category}/streams/{stream}", toDelete, (*Server).deleteStream},
	{"POST /v1/categories/{category}/streams/{stream}/archive", toAlterConfigs, (*Server).archiveStream},
	{"POST /v1/categories/{category}/streams/{stream}/unarchive", toAlterConfigs, (*Server).unarchiveStream},
	{"GET /v1/categories/{category}/streams/{stream}/snapshot?at", toRead, (*Server).loadSnapshot},
	{"PUT /v1/categories/{category}/streams/{stream}/snapshot", toWrite, (*Server).saveSnapshot},
	{"PUT /v1/categories/{category}/streams/{stream}/retention", toAlterConfigs, (*Server).setStreamRetention},
	{"DELETE /v1/categories/{category}/streams/{stream}/retention", toAlterConfigs, (*Server).unsetStreamRetention},

	{"GET /v1/projections", toDescribe, (*Server).listProjections},
	{"GET /v1/projections/{projection}", toDescribe, (*Server).describeProjection},
	{"DELETE /v1/projections/{projection}", toDeleteGroup, (*Server).deleteProjection},
	{"POST /v1/projections/{projection}/rebuild", toAlterGroup, (*Server).rebuildProjection},
	{"POST /v1/projections/{projection}/pause", toAlterGroup, (*Server).pauseProjection},
	{"POST /v1/projections/{projection}/resume", toAlterGroup, (*Server).resumeProjection},

	{"GET /v1/keys", toAdminister, (*Server).listKeys},
	{"POST /v1/keys", toAdminister, (*Server).createKey},
	{"GET /v1/keys/{key}", toAdminister, (*Server).describeKey},
	{"POST /v1/keys/{key}/rotate", toAdminister, (*Server).rotateKey},
	{"DELETE /v1/keys/{key}", toAdminister, (*Server).revokeKey},

	{"GET /v1/users", toAdminister, (*Server).listUsers},
	{"POST /v1/users", toAdminister, (*Server).createUser},
	{"GET /v1/users/{user}", toAdminister, (*Server).describeUser},
	{"PUT /v1/users/{user}/password", toAdminister, (*Server).setPassword},
	{"DELETE /v1/users/{user}", toAdminister, (*Server).deleteUser},

	{"GET /v1/acls?principal&host&effect&operation&resource_type&name&pattern", toAdminister, (*Server).listACLs},
	{"POST /v1/acls", toAdminister, (*Server).createACL},
	{"DELETE /v1/acls?principal&host&effect&operation&resource_type&name&pattern&damaged", toAdminister, (*Server).deleteACLs},

	{"GET /v1/quotas?user&default_user&client_id&default_client_id&ip&default_ip", toAdminister, (*Server).listQuotas},
	{"PATCH /v1/quotas", toAdminister, (*Server).changeQuota},
	{"DELETE /v1/quotas?user&default_user&client_id&default_client_id&ip&default_ip&damaged", toAdminister, (*Server).deleteQuota},
}

// routes returns the handler of all routes.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.operatorRoutes(mux)
	for _, r := range api {
		mux.Handle(s.endpoint(r))
	}
	if s.cfg.Console != nil {
		pages := s.cfg.Console(&Inside{s})
		mux.Handle("GET /{$}", s.counted(pages))
		mux.Handle("/console/", s.counted(pages))
	}
	for from, to := range renamed {
		mux.HandleFunc(from, s.elsewhere(from, to))
	}
	mux.HandleFunc("/", s.nothingHere)
	return mux
}

// counted bounds the requests in progress to a handler that is not of the API, together with those
// of the API, and by network: it may wait for a form, or for a client that does not read.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.inProgress.Add(-1)
		if s.inProgress.Add(1) > int64(s.cfg.limits.Requests) {
			s.turnDown(w, r, kindOverloaded.past(int64(s.cfg.limits.Requests), "there are already %d requests in progress, the limit; try again later", s.cfg.limits.Requests))
			return
		}
		from := networkOf(r)
		if err := s.strangers.begin(from); err != nil {
			s.turnDown(w, r, problemOf(err))
			return
		}
		defer s.strangers.end(from)
		h.ServeHTTP(w, r)
	})
}

// endpoint makes a route's handler: it checks access, answers errors with problems, and reports to
// the observer.
func (s *Server) endpoint(rt route) (pattern string, h http.Handler) {
	pattern, list, _ := strings.Cut(rt.pattern, "?")
	var params []string
	if list != "" {
		params = strings.Split(list, "&")
	}
	var names []string
	for _, segment := range strings.Split(pattern, "/") {
		if name, is := strings.CutPrefix(segment, "{"); is {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		restoreSlashes(r, names)
		began := time.Now()
		c := &call{ResponseWriter: w, s: s, r: r, route: pattern, id: w.Header().Get(requestIDHeader), who: stranger, until: began.Add(storeTimeout)}
		defer func() {
			c.releaseBody()
			c.built()
			if !asking(r) {
				s.cfg.Observer.Answered(pattern, c.status, time.Since(began))
			}
		}()
		defer s.inProgress.Add(-1)
		if s.inProgress.Add(1) > int64(s.cfg.limits.Requests) {
			s.refuse(c, kindOverloaded.past(int64(s.cfg.limits.Requests), "there are already %d requests in progress, the limit; try again later", s.cfg.limits.Requests))
			return
		}
		if !s.allow(c, rt.needs) {
			return
		}
		if s.cfg.Log.ReadOnly() && r.Method != http.MethodGet && r.Method != http.MethodHead { // all other methods write, claims, acks and joins too
			s.refuse(c, kindReadOnly.because("%s", sendElsewhere))
			return
		}
		if asking(r) {
			c.WriteHeader(http.StatusNoContent)
			return
		}
		if rt.needs.access == mayAdmin {
			c.r = r.WithContext(audit.By(r.Context(), c.audited()))
		}
		bound, who := s.requests, holder(c.who)
		if rt.needs.access == public {
			bound, who = s.strangers, networkOf(r)
		}
		if err := bound.begin(who); err != nil {
			s.refuse(c, err)
			return
		}
		defer bound.end(who)
		var err error
		if c.query, err = query(r.URL, params); err == nil {
			err = rt.handle(s, c)
		}
		s.tellOfRights(c, rt, err)
		if err != nil {
			s.refuse(c, err)
		}
	})
}

// tellOfRights logs who changed, or perhaps changed, what others may do. No body is logged: it may
// have a password.
func (s *Server) tellOfRights(c *call, rt route, err error) {
	changes := len(rt.needs.cluster) > 0 && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead
	if !changes || err != nil && problemOf(err).Status != kindUnknown.status {
		return
	}
	client, _, _ := net.SplitHostPort(c.r.RemoteAddr)
	s.cfg.Logger.Info("rights were changed over HTTP", "request", c.id, "who", c.who.ID(), "client", client, "method", c.r.Method,
		"path", c.r.URL.RequestURI(), "what", c.changed, "unknown", err != nil)
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

// turnDown answers a request for which no handler is called: its path is unknown or renamed, or it
// was refused before.
func (s *Server) turnDown(w http.ResponseWriter, r *http.Request, p *problem) {
	c := &call{ResponseWriter: w, s: s, r: r, route: "other", id: w.Header().Get(requestIDHeader), who: stranger}
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
