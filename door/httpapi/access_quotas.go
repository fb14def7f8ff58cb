package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/weir-log/weir/use/quota"
)

// quotaView is what an entity may use, in an answer. A part that the entity does not have is left
// out; a part default_… stands for all that have no quota of their own.
type quotaView struct {
	User            string                 `json:"user,omitempty"`
	DefaultUser     bool                   `json:"default_user,omitempty"`
	ClientID        string                 `json:"client_id,omitempty"`
	DefaultClientID bool                   `json:"default_client_id,omitempty"`
	IP              string                 `json:"ip,omitempty"`
	DefaultIP       bool                   `json:"default_ip,omitempty"`
	Limits          map[quota.Kind]float64 `json:"limits"`
}

func viewOfQuota(q quota.Quota) quotaView {
	e, limits := q.Entity, q.Limits
	if limits == nil {
		limits = map[quota.Kind]float64{}
	}
	return quotaView{e.User.Name, e.User.Default, e.ClientID.Name, e.ClientID.Default, e.IP.Name, e.IP.Default, limits}
}

// storedQuotas returns the quotas, or an error if this server has none.
func (s *Server) storedQuotas() (*quota.Quotas, error) {
	if s.cfg.Quotas == nil {
		return nil, kindNotFound.because("this process has no quotas")
	}
	return s.cfg.Quotas, nil
}

// listQuotas lists the quotas of all entities that have what the parameters name.
func (s *Server) listQuotas(c *call) error {
	quotas, err := s.storedQuotas()
	if err != nil {
		return err
	}
	entity, err := entityIn(c.query)
	if err != nil {
		return err
	}
	read := func(ctx context.Context) ([]quota.Quota, error) { return quotas.List(ctx, quota.FilterOf(entity)) }
	return answerList(c, "quotas", read, func(quota.Quota) bool { return true }, viewOfQuota)
}

// changeQuota changes what one entity may use, and answers with all that it may use then.
func (s *Server) changeQuota(c *call) error {
	quotas, err := s.storedQuotas()
	if err != nil {
		return err
	}
	body, err := s.jsonBody(c)
	if err != nil {
		return err
	}
	change, err := parseQuota(body)
	if err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := quotas.Change(ctx, []quota.Change{change})[0]; err != nil {
		return sentAgain(err)
	}
	now, err := quotas.Find(ctx, change.Entity)
	if err != nil {
		return kindUnknown.because("the quota was changed, but weir could not read it afterwards")
	}
	return c.json(http.StatusOK, viewOfQuota(now))
}

// deleteQuota removes all limits of one entity.
func (s *Server) deleteQuota(c *call) error {
	quotas, err := s.storedQuotas()
	if err != nil {
		return err
	}
	damaged, err := truth(c.query, "damaged")
	if err != nil {
		return err
	}
	if damaged {
		return s.deleteDamaged(c, quotas.DeleteDamaged)
	}
	entity, err := entityIn(c.query)
	if err != nil {
		return err
	}
	if err := entity.Check(); err != nil {
		return err
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	if err := quotas.Change(ctx, []quota.Change{{Entity: entity, Clear: true}})[0]; err != nil {
		return sentAgain(err)
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// entityIn reads an entity from parameters.
func entityIn(q url.Values) (quota.Entity, error) {
	var e quota.Entity
	for name, at := range partsOf(&e) {
		every, err := truth(q, "default_"+name)
		switch {
		case err != nil:
			return e, err
		case every && q.Has(name):
			return e, kindInvalidRequest.because("%s and default_%[1]s contradict each other; give one of them", name)
		case every:
			*at = quota.Default
		case q.Has(name):
			*at = quota.Named(q.Get(name))
		}
	}
	return e.Normal(), nil
}

// partsOf returns the parts of an entity by their names.
func partsOf(e *quota.Entity) map[string]*quota.Part {
	return map[string]*quota.Part{"user": &e.User, "client_id": &e.ClientID, "ip": &e.IP}
}

// parseQuota reads a change. A limit that is null is removed.
func parseQuota(body []byte) (change quota.Change, err error) {
	change.Set = make(map[quota.Kind]float64)
	parts := partsOf(&change.Entity)
	known := []string{"user", "default_user", "client_id", "default_client_id", "ip", "default_ip", "limits"}
	err = readJSON(body, 0, func(r *jsonReader) error {
		return r.object(func(member string) error {
			if member == "limits" {
				return r.limits(&change)
			}
			start := *r
			if at := parts[member]; at != nil {
				name, err := r.string()
				if err == nil && *at != (quota.Part{}) {
					*r = start
					err = r.fail("%s and default_%[1]s contradict each other", member)
				}
				*at = quota.Named(name)
				return err
			}
			for name, at := range parts {
				if member != "default_"+name {
					continue
				}
				every, err := r.boolean()
				switch {
				case err != nil || !every:
					return err
				case *at != quota.Part{}:
					*r = start
					return r.fail("%s and default_%[1]s contradict each other", name)
				}
				*at = quota.Default
				return nil
			}
			return r.unknown(member, known...)
		})
	})
	change.Entity = change.Entity.Normal()
	return change, err
}

// limits reads the limits that a change sets and removes.
func (r *jsonReader) limits(change *quota.Change) error {
	return r.object(func(name string) error {
		kind := quota.Kind(name)
		if !slices.Contains(quota.Kinds, kind) {
			var known []string
			for _, k := range quota.Kinds {
				known = append(known, string(k))
			}
			return r.unknown(name, known...)
		}
		if r.null() {
			change.Unset = append(change.Unset, kind)
			return nil
		}
		r.space()
		start := *r
		raw, err := r.number()
		if err != nil {
			return err
		}
		if change.Set[kind], err = strconv.ParseFloat(string(raw), 64); err != nil {
			*r = start
			return r.fail("%s is too large", shorten(string(raw)))
		}
		return nil
	})
}
