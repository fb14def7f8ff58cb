// Package console is weir in a browser: pages about topics, groups, queues, streams, projections
// and access.
//
// It is one more client of the HTTP API. Each page is made of the API's answers to requests with
// the reader's own credentials, and each button is one such request. So the console has no rights,
// no access to the store and no rules of its own: a reader who may not do something does not see
// the button for it.
package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/doctor"
)

// API is the HTTP API inside of this process.
type API interface {
	// ServeHTTP answers a request as it answers one from the network.
	http.Handler
	// Known returns nil if a client has valid credentials, whatever they allow; otherwise an error
	// with what an answer would say.
	Known(r *http.Request) error
	// May reports whether a client may do a request, by its method, path and credentials.
	May(r *http.Request) bool
	// MayOperate reports whether a client may see what is about the whole process.
	MayOperate(r *http.Request) bool
	// Page answers a request with a page, unless its status is 0. It bounds the pages that are made
	// at a time, and their memory, in all and for the client with the credentials of the request
	// as.
	Page(w http.ResponseWriter, as *http.Request, render func() (status int, media string, page []byte)) error
	// Body reads a request's body, and bounds its memory until release, as Page does.
	Body(w http.ResponseWriter, r, as *http.Request, most int64) (body []byte, release func(), err error)
}

// Config configures a Console.
type Config struct {
	API     API
	Version string

	// History is what the plots show. It must run.
	History *History

	Ready    func() error     // nil while the store answers
	Findings []doctor.Finding // what was found when the store was examined

	// Secret returns the key that seals sessions, the same in all processes of a store, so that a
	// session goes on at another process. nil: sessions end with the process.
	Secret func(context.Context) ([]byte, error)

	Logger *slog.Logger
}

// Console serves the pages. Its handler may be called concurrently.
type Console struct {
	cfg Config
	mux *http.ServeMux
	own []byte // seals sessions if there is no secret of all processes
}

// New makes a console.
func New(cfg Config) *Console {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &Console{cfg: cfg, mux: http.NewServeMux(), own: make([]byte, secretBytes)}
	_, _ = rand.Read(c.own) // never fails
	c.mux.HandleFunc("GET /console/assets/{version}/{file}", c.asset)
	for pattern, h := range pages {
		c.mux.HandleFunc(pattern, c.page(h))
	}
	for pattern, h := range passedOn {
		c.mux.HandleFunc(pattern, c.passing(h))
	}
	c.mux.HandleFunc("/", c.page(func(*visit) error { return &problem{Status: http.StatusNotFound, Title: "There is no such page"} }))
	return c
}

// pages are the handlers that make a page, with show, or redirect.
var pages = map[string]func(*visit) error{
	"GET /{$}":             (*visit).overview,
	"GET /console/history": (*visit).plots,

	"GET /console/login":   (*visit).showLogin,
	"POST /console/login":  (*visit).login,
	"POST /console/logout": (*visit).logout,

	"GET /console/topics":                     (*visit).topics,
	"POST /console/topics":                    (*visit).createTopic,
	"GET /console/topics/{topic}":             (*visit).topic,
	"GET /console/topics/{topic}/messages":    (*visit).messages,
	"POST /console/topics/{topic}/publish":    (*visit).publish,
	"POST /console/topics/{topic}/settings":   (*visit).alterTopic,
	"POST /console/topics/{topic}/delete":     (*visit).deleteTopic,
	"GET /console/groups":                     (*visit).groups,
	"GET /console/groups/{group}":             (*visit).group,
	"POST /console/groups/{group}/reset":      (*visit).resetGroup,
	"POST /console/groups/{group}/delete":     (*visit).deleteGroup,
	"GET /console/queues":                     (*visit).queues,
	"POST /console/queues":                    (*visit).createQueue,
	"GET /console/queues/{queue}":             (*visit).queue,
	"POST /console/queues/{queue}/settings":   (*visit).alterQueue,
	"POST /console/queues/{queue}/pause":      (*visit).pauseQueue,
	"POST /console/queues/{queue}/resume":     (*visit).resumeQueue,
	"POST /console/queues/{queue}/purge":      (*visit).purgeQueue,
	"POST /console/queues/{queue}/delete":     (*visit).deleteQueue,
	"POST /console/queues/{queue}/enqueue":    (*visit).enqueue,
	"GET /console/queues/{queue}/messages":    (*visit).queueMessages,
	"GET /console/queues/{queue}/find":        (*visit).findMessage,
	"GET /console/queues/{queue}/dead":        (*visit).dead,
	"GET /console/queues/{queue}/dead/one":    (*visit).deadLetter,
	"POST /console/queues/{queue}/redrive":    (*visit).redrive,
	"POST /console/queues/{queue}/discard":    (*visit).discard,
	"POST /console/queues/{queue}/edit":       (*visit).editAndRedrive,
	"POST /console/queues/{queue}/schedule":   (*visit).setSchedule,
	"POST /console/queues/{queue}/run":        (*visit).runSchedule,
	"POST /console/queues/{queue}/unschedule": (*visit).deleteSchedule,

	"GET /console/streams":                      (*visit).categories,
	"GET /console/streams/{category}":           (*visit).category,
	"GET /console/streams/{category}/{stream}":  (*visit).stream,
	"POST /console/streams/{category}/{stream}": (*visit).changeStream,
	"GET /console/tagged/{category}":            (*visit).tagged,
	"GET /console/projections":                  (*visit).projections,
	"POST /console/projections/{projection}/do": (*visit).changeProjection,

	"GET /console/access":                        (*visit).apiKeys,
	"POST /console/access/keys":                  (*visit).createKey,
	"POST /console/access/keys/{key}/rotate":     (*visit).rotateKey,
	"POST /console/access/keys/{key}/revoke":     (*visit).revokeKey,
	"GET /console/access/users":                  (*visit).users,
	"POST /console/access/users":                 (*visit).createUser,
	"POST /console/access/users/{user}/password": (*visit).setPassword,
	"POST /console/access/users/{user}/delete":   (*visit).deleteUser,
	"GET /console/access/rules":                  (*visit).rules,
	"POST /console/access/rules":                 (*visit).createRule,
	"POST /console/access/rules/delete":          (*visit).deleteRule,
	"GET /console/access/quotas":                 (*visit).quotas,
	"POST /console/access/quotas":                (*visit).setQuota,
	"POST /console/access/quotas/delete":         (*visit).deleteQuota,
	"GET /console/access/audit":                  (*visit).audit,
}

// passedOn are the handlers that pass an answer of the API on without keeping it; download keeps
// only an error, to show it as a page.
var passedOn = map[string]func(*visit) error{
	"GET /console/topics/{topic}/download": (*visit).download,
	"GET /console/topics/{topic}/live":     (*visit).live,
}

// policy is the Content-Security-Policy of every page: nothing from elsewhere, and no inline
// script.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP serves the pages below /, and /console/.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	c.mux.ServeHTTP(w, r)
}

// formMax bounds the body of a form: an edited message, and some fields.
const formMax = 2 << 20

// page makes the handler of a page.
func (c *Console) page(h func(*visit) error) http.HandlerFunc {
	return c.visited(func(v *visit) error {
		as, err := v.request(v.r.Context(), http.MethodGet, "/", nil)
		if err != nil {
			return err
		}
		return v.c.cfg.API.Page(v.w, as, func() (int, string, []byte) {
			if err := h(v); err != nil {
				v.fail(err)
			}
			return v.made.status, v.made.media, v.made.page
		})
	})
}

// passing makes a handler that passes an answer of the API on.
func (c *Console) passing(h func(*visit) error) http.HandlerFunc { return c.visited(h) }

// visited makes a handler: it opens the session, checks that a form comes from one of our pages,
// and shows errors.
func (c *Console) visited(h func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{c: c, w: w, r: r}
		v.session, v.begun = c.openSession(r)
		if !v.begun && fromElsewhere(r) {
			again(w)
			return
		}
		if !v.begun {
			v.session = c.beginSession(w, r, "")
		}
		release, err := v.readForm()
		if err == nil {
			defer release()
			err = h(v)
		}
		if err != nil {
			v.fail(err)
			v.send()
		}
	}
}

// fromElsewhere reports whether a page of another site made a browser ask for a page of ours. Such
// a request has no cookie (SameSite=Strict), also if its reader is logged in.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Method == http.MethodGet && (site == "cross-site" || site == "same-site")
}

// again has the browser ask again, from this page of ours: then the request has the cookie.
func again(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	_, _ = io.WriteString(w, `<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>weir</title><p><a href="">Go on</a></p></html>`)
}

// readForm reads the form of a POST, if it comes from one of our pages. It is held until release.
func (v *visit) readForm() (release func(), err error) {
	if v.r.Method != http.MethodPost {
		return func() {}, nil
	}
	as, err := v.request(v.r.Context(), http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	body, release, err := v.c.cfg.API.Body(v.w, v.r, as, formMax)
	if err != nil {
		return nil, err
	}
	if v.r.PostForm, err = url.ParseQuery(string(body)); err != nil {
		release()
		return nil, &problem{Status: http.StatusBadRequest, Title: "The form cannot be read", Detail: err.Error()}
	}
	if !v.begun || !v.c.validToken(v.r, v.session, v.r.PostForm.Get("token")) {
		release()
		return nil, &problem{Status: http.StatusForbidden, Title: "The page is too old", Detail: "Its session has ended. Load it again, and repeat what you did; nothing was changed."}
	}
	return release, nil
}

// visit is one request of a browser.
type visit struct {
	c       *Console
	w       http.ResponseWriter
	r       *http.Request
	session session
	begun   bool // the browser had a session
	made    made
}

// made is an answer that is not sent yet. Status 0: there is none, or it was sent.
type made struct {
	status int
	media  string
	page   []byte
}

// send sends an answer that is small.
func (v *visit) send() {
	if v.made.status == 0 {
		return
	}
	v.w.Header().Set("Content-Type", v.made.media)
	v.w.WriteHeader(v.made.status)
	_, _ = v.w.Write(v.made.page) // fails only if the browser has disconnected
}

// fail shows an error as a page. A reader who must authenticate to see a page is sent to the login.
func (v *visit) fail(err error) {
	p := problemIn(err)
	if p == nil {
		p = &problem{Status: http.StatusInternalServerError, Title: "This page cannot be shown", Detail: err.Error()}
		v.c.cfg.Logger.Error("console: page failed", "path", v.r.URL.Path, "err", err)
	}
	if p.Status == http.StatusUnauthorized && v.r.Method == http.MethodGet {
		v.redirect("/console/login?next=" + urlQueryEscape(v.r.URL.RequestURI()))
		return
	}
	v.show(p.Status, "problem", "Problem", p)
}

// problemIn returns what is shown of an error of the API or of a page; nil if the error is of
// another kind.
func problemIn(err error) *problem {
	var p *problem
	var refused interface {
		HTTP() (status int, title, detail string)
	}
	switch {
	case errors.As(err, &p):
	case errors.As(err, &refused):
		p = &problem{}
		p.Status, p.Title, p.Detail = refused.HTTP()
	}
	return p
}

// redirect sends the browser to another page of the console.
func (v *visit) redirect(to string) { http.Redirect(v.w, v.r, to, http.StatusSeeOther) }

// done goes back to a page after something was changed, and says there what was.
func (v *visit) done(to, said string) error {
	setFlash(v.w, v.r, said)
	v.redirect(to)
	return nil
}

// shell is what all pages have.
type shell struct {
	Title, Section, Version, Assets, Token, Who, Flash string
	Access                                             bool // the reader may see who may do what
	Body                                               any
}

// show makes the page that is the answer.
func (v *visit) show(status int, name, title string, body any) {
	s := shell{Title: title, Section: section(v.r.URL.Path), Version: v.c.cfg.Version, Assets: "/console/assets/" + assetVersion,
		Token: v.c.token(v.r, v.session), Who: v.session.who(), Flash: takeFlash(v.w, v.r), Access: v.may(http.MethodGet, "/v1/keys"), Body: body}
	var page bytes.Buffer
	if err := templates[name].ExecuteTemplate(&page, "layout", s); err != nil {
		v.c.cfg.Logger.Error("console: template failed", "template", name, "err", err)
		v.made = made{http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("this page cannot be shown; the log says why\n")}
		return
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		v.w.Header().Set("Retry-After", "1") // as the API says with these
	}
	v.made = made{status, "text/html; charset=utf-8", page.Bytes()}
}

// section is the part of the console that a path belongs to: topics, groups and so on.
func section(path string) string {
	rest, ok := strings.CutPrefix(path, "/console/")
	if !ok {
		return "overview"
	}
	name, _, _ := strings.Cut(rest, "/")
	if name == "tagged" {
		return "streams"
	}
	return name
}

//go:embed templates
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// templates are the pages by name, each with the layout.
var templates = func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(f, "templates/"), ".html")
		if name != "layout" && name != "parts" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, f))
		}
	}
	return all
}()

// assetVersion changes with the assets, so that browsers may keep them for ever.
var assetVersion = func() string {
	sum := sha256.New()
	_ = fs.WalkDir(assetFiles, "assets", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			content, _ := assetFiles.ReadFile(path)
			sum.Write([]byte(path))
			sum.Write(content)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
}()

// asset serves a script, a style or a licence.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	content, err := assetFiles.ReadFile("assets/" + r.PathValue("file"))
	if err != nil || r.PathValue("version") != assetVersion {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, r.PathValue("file"), time.Time{}, bytes.NewReader(content))
}
