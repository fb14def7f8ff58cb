package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-log/weir/use/acl"
)

// aclView is a rule in an answer.
type aclView struct {
	Principal string `json:"principal"`
	Effect    string `json:"effect"` // allow or deny
	Operation string `json:"operation"`
	Kind      string `json:"resource_type"`
	Name      string `json:"name"`
	Prefixed  bool   `json:"prefixed"`
	Host      string `json:"host"`
	APIKey    string `json:"api_key,omitempty"` // the id of the API key that has the rule; empty: it is an ACL
}

func viewOfACL(b acl.Binding, key string) aclView {
	operation := strings.ToLower(b.Operation.String())
	return aclView{b.Principal, b.Effect().String(), operation, b.Kind.String(), b.Name, b.Prefixed, b.Host, key}
}

// storedACLs returns the rules, or an error if this server has none.
func (s *Server) storedACLs() (*acl.ACLs, error) {
	if s.cfg.ACLs == nil {
		return nil, kindNotFound.because("this process has no ACLs")
	}
	return s.cfg.ACLs, nil
}

// listACLs lists the rules that the parameters describe: ACLs, and then the rules that API keys
// have.
func (s *Server) listACLs(c *call) error {
	acls, err := s.storedACLs()
	if err != nil {
		return err
	}
	filter, err := filterOf(c, acl.Match)
	if err != nil {
		return err
	}
	read := func(ctx context.Context) ([]aclView, error) {
		found, err := acls.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		views := make([]aclView, 0, len(found))
		for _, b := range found {
			views = append(views, viewOfACL(b, ""))
		}
		if s.cfg.Keys == nil {
			return views, nil
		}
		owned, err := s.cfg.Keys.Rules(ctx, filter)
		for _, o := range owned {
			views = append(views, viewOfACL(o.Binding, o.Key))
		}
		return views, err
	}
	return answerList(c, "acls", read, func(aclView) bool { return true }, func(v aclView) aclView { return v })
}

// createACL stores a rule. One that exists stays.
func (s *Server) createACL(c *call) error {
	acls, err := s.storedACLs()
	if err != nil {
		return err
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	b, err := parseACL(body)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := acls.Create(ctx, []acl.Binding{b})[0]; err != nil {
		return sentAgain(err)
	}
	c.changed = fmt.Sprintf("%s %s %s on %s %q, prefix %v, from %s", b.Principal, b.Effect(), b.Operation, b.Kind, b.Name, b.Prefixed, b.Host)
	return c.json(http.StatusOK, viewOfACL(b, ""))
}

// deleteACLs deletes the rules that the parameters describe, and answers with them.
func (s *Server) deleteACLs(c *call) error {
	acls, err := s.storedACLs()
	if err != nil {
		return err
	}
	damaged, err := truth(c.query, "damaged")
	if err != nil {
		return err
	}
	if damaged {
		return s.deleteDamaged(c, acls.DeleteDamaged)
	}
	pattern := acl.AnyPattern
	if c.query.Has("name") {
		pattern = acl.Literal
	}
	filter, err := filterOf(c, pattern)
	switch {
	case err != nil:
		return err
	case filter.Pattern == acl.Match && c.query.Has("pattern"):
		return kindInvalidRequest.because("pattern=match also finds the rules about every name; " +
			"to delete, give literal, prefixed or any")
	}
	if err := filter.CheckDeletion(); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	done := acls.Delete(ctx, []acl.Filter{filter})[0]
	failed, views := done.Err, []aclView{}
	for i, b := range done.Rules {
		if err := done.Errs[i]; err != nil {
			failed = err
			continue
		}
		views = append(views, viewOfACL(b, ""))
	}
	if failed != nil && len(views) > 0 {
		return kindUnknown.because("%d of %d rules were deleted, and the others perhaps. %s", len(views), len(done.Rules), safeAgain)
	}
	if failed != nil {
		return sentAgain(failed)
	}
	return c.json(http.StatusOK, map[string][]aclView{"acls": views})
}

// deleteDamaged deletes what cannot be read, and answers with the number.
func (s *Server) deleteDamaged(c *call, remove func(context.Context) (int, error)) error {
	if len(c.query) > 1 {
		return kindInvalidRequest.because("damaged=true deletes all that cannot be read, whatever it is about; " +
			"leave the other parameters out")
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	n, err := remove(ctx)
	switch {
	case err != nil && n > 0:
		return kindUnknown.because("%d were deleted, and the others perhaps. %s", n, safeAgain)
	case err != nil:
		return sentAgain(err)
	}
	return c.json(http.StatusOK, map[string]int{"deleted": n})
}

// filterOf returns the filter that the parameters describe.
func filterOf(c *call, pattern acl.Pattern) (acl.Filter, error) {
	f := acl.Filter{Kind: acl.Any, Pattern: pattern, Operation: acl.Any, Effect: acl.Any}
	ok := true
	for name, at := range map[string]**string{"principal": &f.Principal, "host": &f.Host, "name": &f.Name} {
		if c.query.Has(name) {
			text := c.query.Get(name)
			*at = &text
		}
	}
	if text := c.query.Get("effect"); c.query.Has("effect") {
		if f.Effect, ok = parseEffect(text); !ok {
			return f, kindInvalidRequest.because("effect=%s: %s", shorten(text), effectNames)
		}
	}
	if text := c.query.Get("operation"); c.query.Has("operation") {
		if f.Operation, ok = acl.ParseOperation(text); !ok {
			return f, kindInvalidRequest.because("operation=%s: %s", shorten(text), operationNames)
		}
	}
	if text := c.query.Get("resource_type"); c.query.Has("resource_type") {
		if f.Kind, ok = acl.ParseKind(text); !ok {
			return f, kindInvalidRequest.because("resource_type=%s: %s", shorten(text), resourceNames)
		}
	}
	if text := c.query.Get("pattern"); c.query.Has("pattern") {
		if f.Pattern, ok = acl.Patterns[text]; !ok {
			return f, kindInvalidRequest.because("pattern=%s: it must be match, any, literal or prefixed", shorten(text))
		}
	}
	return f, nil
}

const (
	effectNames    = "it must be allow or deny"
	operationNames = "it must be all, read, write, create, delete, alter, describe, describe_configs, alter_configs, " +
		"cluster_action or idempotent_write"
	resourceNames = "it must be topic, group, cluster or transactional-id"
)

func parseEffect(text string) (acl.Effect, bool) {
	for _, e := range []acl.Effect{acl.Allow, acl.Deny} {
		if e.String() == text {
			return e, true
		}
	}
	return 0, false
}

// parseACL reads a rule. Package acl checks the rule; parseACL refuses only words that stand for
// nothing, and a rule without one of its parts.
func parseACL(body []byte) (b acl.Binding, err error) {
	b.Host = acl.Everywhere
	var effect acl.Effect
	err = readJSON(body, 0, func(r *jsonReader) error {
		word := func(known string, parse func(string) bool) error {
			start := *r
			text, err := r.string()
			if err == nil && !parse(text) {
				*r = start
				err = r.fail("%s", known)
			}
			return err
		}
		return r.object(func(member string) (err error) {
			switch member {
			case "principal":
				b.Principal, err = r.string()
			case "effect":
				err = word(effectNames, func(text string) (ok bool) { effect, ok = parseEffect(text); return ok })
			case "operation":
				err = word(operationNames, func(text string) (ok bool) {
					b.Operation, ok = acl.ParseOperation(text)
					return ok
				})
			case "resource_type":
				err = word(resourceNames, func(text string) (ok bool) { b.Kind, ok = acl.ParseKind(text); return ok })
			case "name":
				b.Name, err = r.string()
			case "prefixed":
				b.Prefixed, err = r.boolean()
			case "host":
				b.Host, err = r.string()
				b.Host = acl.HostOf(b.Host)
			default:
				err = r.unknown(member, "principal", "effect", "operation", "resource_type", "name", "prefixed", "host")
			}
			return err
		})
	})
	b.Deny = effect == acl.Deny
	if b.Kind == acl.Cluster && b.Name == "" {
		b.Name = acl.ClusterName
	}
	switch {
	case err != nil:
		return b, err
	case b.Principal == "":
		return b, kindInvalidJSON.because(`"principal" is missing`)
	case effect == 0:
		return b, kindInvalidJSON.because(`"effect" is missing`)
	case b.Operation == 0:
		return b, kindInvalidJSON.because(`"operation" is missing`)
	case b.Kind == 0:
		return b, kindInvalidJSON.because(`"resource_type" is missing`)
	case b.Name == "":
		return b, kindInvalidJSON.because(`"name" is missing`)
	}
	return b, nil
}
