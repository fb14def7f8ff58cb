package console

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// keyInfo is an API key. Its secret is there only when it was made just now.
type keyInfo struct {
	ID, Name, State, Secret         string
	Access, Topics, Groups, Queues  []string
	TopicNames                      []string `json:"topic_names"`
	GroupNames                      []string `json:"group_names"`
	QueueNames                      []string `json:"queue_names"`
	AllTopics                       bool     `json:"all_topics"`
	AllGroups                       bool     `json:"all_groups"`
	AllQueues                       bool     `json:"all_queues"`
	Created, From, Expires, Revoked int64
}

// Scope says what the key is for: names, and prefixes of names as patterns.
func (k keyInfo) Scope() (parts []string) {
	for _, p := range []struct {
		what            string
		all             bool
		prefixes, names []string
	}{{"topics", k.AllTopics, k.Topics, k.TopicNames}, {"groups", k.AllGroups, k.Groups, k.GroupNames}, {"queues", k.AllQueues, k.Queues, k.QueueNames}} {
		shown := apikey.Patterns(p.prefixes, p.names)
		switch {
		case p.all:
			parts = append(parts, "all "+p.what)
		case len(shown) > 0:
			parts = append(parts, p.what+" "+strings.Join(shown, " "))
		}
	}
	return parts
}

// Ended reports whether there is nothing left to rotate or revoke.
func (k keyInfo) Ended() bool { return k.State == "revoked" }

type userInfo struct {
	Name       string
	Mechanisms map[string]int
	Damaged    bool
}

// Logins are the mechanisms, by name.
func (u userInfo) Logins() []string { return slices.Sorted(maps.Keys(u.Mechanisms)) }

type ruleInfo struct {
	Principal, Effect, Operation, Name, Host string
	Kind                                     string `json:"resource_type"`
	Prefixed                                 bool
	Key                                      string `json:"api_key"` // that has the rule; "": it is an ACL
}

type quotaInfo struct {
	User            string             `json:"user,omitempty"`
	DefaultUser     bool               `json:"default_user,omitempty"`
	ClientID        string             `json:"client_id,omitempty"`
	DefaultClientID bool               `json:"default_client_id,omitempty"`
	IP              string             `json:"ip,omitempty"`
	DefaultIP       bool               `json:"default_ip,omitempty"`
	Limits          map[string]float64 `json:"limits"`
}

// limitNames are the limits of a quota, in the order in which a page shows them.
var limitNames = []string{
	"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate",
}

// accessPage is a list of those who have rights, or of rights.
type accessPage struct {
	Tab, Prefix string
	More        int
	May         bool // change it
	Keys        []keyInfo
	Users       []userInfo
	Rules       []ruleInfo
	Quotas      []quotaInfo
	Limits      []string
}

// beginning keeps the elements whose name begins with the page's prefix, up to listMost.
func beginning[T any](p *accessPage, all []T, name func(T) string) (shown []T) {
	for _, one := range all {
		switch {
		case !strings.HasPrefix(name(one), p.Prefix):
		case len(shown) < listMost:
			shown = append(shown, one)
		default:
			p.More++
		}
	}
	return shown
}

func (v *visit) accessPage(tab, create string) *accessPage {
	prefix := v.r.URL.Query().Get("prefix")
	return &accessPage{Tab: tab, Prefix: prefix, May: v.may(http.MethodPost, create), Limits: limitNames}
}

// apiKeys lists the keys, the newest first.
func (v *visit) apiKeys() error {
	var all struct{ Keys []keyInfo }
	if err := v.get("/v1/keys", &all); err != nil {
		return err
	}
	p := v.accessPage("keys", "/v1/keys")
	slices.Reverse(all.Keys)
	p.Keys = beginning(p, all.Keys, func(k keyInfo) string { return k.Name })
	v.show(http.StatusOK, "access_keys", "API keys", p)
	return nil
}

// createKey makes a key, and shows its secret: on this page and never again. So the page is the
// answer to the form, and no redirect carries the secret.
func (v *visit) createKey() error {
	form := v.r.PostForm
	body := map[string]any{"name": form.Get("name"), "access": form["access"]}
	for _, what := range []string{"topic", "group", "queue"} {
		if all := "all_" + what + "s"; form.Get(all) != "" {
			body[all] = true
		}
		for _, field := range []string{what + "s", what + "_names"} { // prefixes, and names
			if given := lines(form.Get(field)); len(given) > 0 {
				body[field] = given
			}
		}
	}
	if days := form.Get("days"); days != "" {
		n, ok := number(days)
		if !ok || n <= 0 || n > daysMost {
			return badForm("This is no number of days", fmt.Sprintf("Give a number from 0 to %d, or nothing: then the key is valid until it is revoked.", daysMost))
		}
		body["expires"] = time.Now().Add(time.Duration(n * 24 * float64(time.Hour))).UnixMilli()
	}
	return v.newKey("/v1/keys", body)
}

const daysMost = 36_500 // of a key's validity

// rotateKey makes a key with the rights of another one, and shows its secret.
func (v *visit) rotateKey() error { return v.newKey(path("/v1/keys/%s/rotate", v.named("key")), nil) }

func (v *visit) newKey(at string, body any) error {
	var made keyInfo
	if err := v.do(http.MethodPost, at, body, &made); err != nil {
		return err
	}
	v.show(http.StatusCreated, "access_secret", "A new API key", made)
	return nil
}

func (v *visit) revokeKey() error {
	id := v.named("key")
	if err := v.do(http.MethodDelete, path("/v1/keys/%s", id), nil, nil); err != nil {
		return err
	}
	return v.done("/console/access", "Key "+id+" was revoked: nobody can use it any more.")
}

func badForm(title, detail string) error {
	return &problem{Status: http.StatusBadRequest, Title: title, Detail: detail}
}

// number reads a number of a form. NaN and infinite ones are none: JSON has no word for them.
func number(text string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// lines are the lines of a field, without those that are empty.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func (v *visit) users() error {
	var all struct{ Users []userInfo }
	if err := v.get("/v1/users", &all); err != nil {
		return err
	}
	p := v.accessPage("users", "/v1/users")
	p.Users = beginning(p, all.Users, func(u userInfo) string { return u.Name })
	v.show(http.StatusOK, "access_users", "Users", p)
	return nil
}

func (v *visit) createUser() error {
	form := v.r.PostForm
	body := map[string]string{"name": form.Get("name"), "password": form.Get("password")}
	if err := v.do(http.MethodPost, "/v1/users", body, nil); err != nil {
		return err
	}
	return v.done("/console/access/users", "User "+form.Get("name")+" was added. What it may do, rules say.")
}

func (v *visit) setPassword() error {
	name := v.named("user")
	body := map[string]string{"password": v.r.PostForm.Get("password")}
	if err := v.do(http.MethodPut, path("/v1/users/%s/password", name), body, nil); err != nil {
		return err
	}
	return v.done("/console/access/users", "The password of user "+name+" was changed.")
}

func (v *visit) deleteUser() error {
	name := v.named("user")
	if err := v.do(http.MethodDelete, path("/v1/users/%s", name), nil, nil); err != nil {
		return err
	}
	return v.done("/console/access/users", "User "+name+" was deleted. Rules about it stay.")
}

func (v *visit) rules() error {
	var all struct{ ACLs []ruleInfo }
	if err := v.get("/v1/acls", &all); err != nil {
		return err
	}
	p := v.accessPage("rules", "/v1/acls")
	p.Rules = beginning(p, all.ACLs, func(r ruleInfo) string { return strings.TrimPrefix(r.Principal, userPrefix) })
	v.show(http.StatusOK, "access_rules", "Rules", p)
	return nil
}

const userPrefix = "User:"

func (v *visit) createRule() error {
	form := v.r.PostForm
	body := map[string]any{
		"principal": userPrefix + form.Get("user"), "effect": form.Get("effect"), "operation": form.Get("operation"),
		"resource_type": form.Get("kind"), "prefixed": form.Get("prefixed") != "",
	}
	for _, field := range []string{"name", "host"} {
		if text := form.Get(field); text != "" {
			body[field] = text
		}
	}
	if err := v.do(http.MethodPost, "/v1/acls", body, nil); err != nil {
		return err
	}
	return v.done("/console/access/rules", "The rule holds within two seconds.")
}

// deleteRule deletes the one rule that has all that the form says.
func (v *visit) deleteRule() error {
	form := v.r.PostForm
	pattern := "literal"
	if form.Get("prefixed") == "true" {
		pattern = "prefixed"
	}
	for _, field := range []string{"principal", "host", "effect", "operation", "kind", "name"} {
		if form.Get(field) == "" { // it would be left out, and more rules found
			return badForm("The form is damaged", "It does not say the rule's "+field+".")
		}
	}
	at := "/v1/acls" + query("principal", form.Get("principal"), "host", form.Get("host"), "effect", form.Get("effect"),
		"operation", form.Get("operation"), "resource_type", form.Get("kind"), "name", form.Get("name"), "pattern", pattern)
	var deleted struct{ ACLs []ruleInfo }
	if err := v.do(http.MethodDelete, at, nil, &deleted); err != nil {
		return err
	}
	if len(deleted.ACLs) == 0 {
		return &problem{Status: http.StatusNotFound, Title: "There is no such rule", Detail: "Somebody else has deleted it."}
	}
	return v.done("/console/access/rules", "The rule was deleted.")
}

func (v *visit) quotas() error {
	var all struct{ Quotas []quotaInfo }
	if err := v.get("/v1/quotas", &all); err != nil {
		return err
	}
	p := v.accessPage("quotas", "/v1/quotas")
	p.May = v.may(http.MethodPatch, "/v1/quotas")
	p.Quotas = beginning(p, all.Quotas, func(q quotaInfo) string { return q.User + q.ClientID + q.IP })
	v.show(http.StatusOK, "access_quotas", "Quotas", p)
	return nil
}

// setQuota sets the limits of the form that are not empty.
func (v *visit) setQuota() error {
	form := v.r.PostForm
	limits := map[string]float64{}
	for _, name := range limitNames {
		text := strings.TrimSpace(form.Get(name))
		if text == "" {
			continue
		}
		n, ok := number(text)
		if !ok {
			return badForm("A limit must be a number", name+" is "+strconv.Quote(text)+".")
		}
		limits[name] = n
	}
	if len(limits) == 0 {
		return badForm("No limit is given", "Give at least one. Nothing was changed.")
	}
	body := map[string]any{"limits": limits}
	for _, part := range []string{"user", "client_id", "ip"} {
		if form.Get("default_"+part) != "" {
			body["default_"+part] = true
		}
		if text := form.Get(part); text != "" {
			body[part] = text
		}
	}
	if err := v.do(http.MethodPatch, "/v1/quotas", body, nil); err != nil {
		return err
	}
	return v.done("/console/access/quotas", "The quota holds within two seconds.")
}

func (v *visit) deleteQuota() error {
	form := v.r.PostForm
	var pairs []string
	for _, part := range []string{"user", "default_user", "client_id", "default_client_id", "ip", "default_ip"} {
		pairs = append(pairs, part, form.Get(part))
	}
	at := "/v1/quotas" + query(pairs...)
	if err := v.do(http.MethodDelete, at, nil, nil); err != nil {
		return err
	}
	return v.done("/console/access/quotas", "The quota was removed.")
}
