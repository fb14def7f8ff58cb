package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	sessionCookie = "weir_session"
	flashCookie   = "weir_said"
	sessionLasts  = 12 * time.Hour
	secretBytes   = 32
)

// session is who a browser is. It is kept in a cookie, sealed, and nowhere else: no process has a
// table of sessions. The API checks the credentials with each request, so a revoked key ends it.
type session struct {
	Authorization string    `json:"a,omitempty"` // header for the API; "": none
	Name          string    `json:"n,omitempty"` // the user's name; "": an API key, or nobody
	ID            string    `json:"i"`
	Ends          time.Time `json:"e"`
}

// who returns what a page calls the user: the name, or "API key"; "" without a login.
func (s session) who() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Authorization != "":
		return "API key"
	}
	return ""
}

// secret returns the key that seals sessions.
func (c *Console) secret(ctx context.Context) []byte {
	if c.cfg.Secret != nil {
		key, err := c.cfg.Secret(ctx)
		if err == nil && len(key) == secretBytes {
			return key
		}
		c.cfg.Logger.Debug("console: no secret from the store; sessions end with this process", "err", err)
	}
	return c.own
}

func (c *Console) sealer(ctx context.Context) cipher.AEAD {
	block, err := aes.NewCipher(c.secret(ctx))
	if err != nil {
		panic(err) // the key has secretBytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// openSession returns the session of a browser's cookie, if there is a valid one.
func (c *Console) openSession(r *http.Request) (session, bool) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return session{}, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return session{}, false
	}
	plain, err := c.sealer(r.Context()).Open(nil, nil, sealed, []byte(sessionCookie))
	if err != nil {
		return session{}, false
	}
	var s session
	if json.Unmarshal(plain, &s) != nil || time.Now().After(s.Ends) {
		return session{}, false
	}
	return s, true
}

// beginSession gives a browser a new session with these credentials.
func (c *Console) beginSession(w http.ResponseWriter, r *http.Request, authorization string) session {
	var id [16]byte
	_, _ = rand.Read(id[:])
	s := session{Authorization: authorization, ID: base64.RawURLEncoding.EncodeToString(id[:]), Ends: time.Now().Add(sessionLasts)}
	if probe, err := http.NewRequest(http.MethodGet, "/", nil); err == nil && strings.HasPrefix(authorization, "Basic ") {
		probe.Header.Set("Authorization", authorization)
		s.Name, _, _ = probe.BasicAuth()
	}
	plain, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has texts and a time
	}
	setCookie(w, r, sessionCookie, base64.RawURLEncoding.EncodeToString(c.sealer(r.Context()).Seal(nil, nil, plain, []byte(sessionCookie))), 0)
	return s
}

func setCookie(w http.ResponseWriter, r *http.Request, name, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")})
}

// token proves that a form comes from a page of the same session (CSRF).
func (c *Console) token(r *http.Request, s session) string {
	mac := hmac.New(sha256.New, c.secret(r.Context()))
	mac.Write([]byte("form " + s.ID))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (c *Console) validToken(r *http.Request, s session, token string) bool {
	return hmac.Equal([]byte(token), []byte(c.token(r, s)))
}

// loginPage is what the login shows.
type loginPage struct{ Next, Error string }

func (v *visit) showLogin() error {
	v.show(http.StatusOK, "login", "Log in", loginPage{Next: localPath(v.r.URL.Query().Get("next"))})
	return nil
}

// login takes an API key, or a user's name and password. The API says whether they are valid.
func (v *visit) login() error {
	form := v.r.PostForm
	authorization := "Bearer " + strings.TrimSpace(form.Get("key"))
	if name := form.Get("name"); name != "" {
		authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+form.Get("password")))
	}
	tried := &visit{c: v.c, w: v.w, r: v.r, session: session{Authorization: authorization}}
	as, err := tried.request(v.r.Context(), http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	next := localPath(form.Get("next"))
	if err := v.c.cfg.API.Known(as); err != nil {
		p := problemIn(err)
		if p == nil {
			return err
		}
		v.show(p.Status, "login", "Log in", loginPage{Next: next, Error: p.Detail})
		return nil
	}
	v.c.beginSession(v.w, v.r, authorization)
	v.redirect(next)
	return nil
}

func (v *visit) logout() error {
	setCookie(v.w, v.r, sessionCookie, "", -1)
	v.redirect("/console/login")
	return nil
}

// escapedDots are what a browser takes for dots, also for those of a step to another path.
var escapedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// localPath returns next, with the steps . and .. in its path taken, if that is below /console/;
// otherwise it returns /, the overview.
func localPath(next string) string {
	u, err := url.Parse(escapedDots.Replace(next))
	if err != nil || u.Scheme != "" || u.Host != "" {
		return "/"
	}
	if cleaned := u.JoinPath().String(); strings.HasPrefix(cleaned, "/console/") {
		return cleaned
	}
	return "/"
}

// setFlash keeps a text for the next page.
func setFlash(w http.ResponseWriter, r *http.Request, text string) {
	setCookie(w, r, flashCookie, base64.RawURLEncoding.EncodeToString([]byte(text)), 30)
}

// takeFlash returns the text that was kept for this page.
func takeFlash(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(flashCookie)
	if err != nil {
		return ""
	}
	setCookie(w, r, flashCookie, "", -1)
	text, _ := base64.RawURLEncoding.DecodeString(cookie.Value)
	return string(text)
}
