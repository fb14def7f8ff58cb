package quota

import (
	"time"

	"github.com/weir-log/weir/use/table"
)

// freshFor is how old the quotas may be by which a server measures its clients, while it serves
// any.
const freshFor = 2 * time.Second

// Client is who uses something.
type Client struct {
	User string // without "User:"
	ID   string // the client id of its request; "" for none
	IP   string // of ConnectionCreationRate, which asks for nothing else
}

// set is all limits at a moment, by kind. It never changes.
type set struct {
	limits map[Kind]map[Entity]float64
}

func newSet(all table.Rows[Quota]) *set {
	s := &set{limits: make(map[Kind]map[Entity]float64)}
	for _, r := range all {
		for k, limit := range r.Value.Limits { // a quota that cannot be read has no limits
			if s.limits[k] == nil {
				s.limits[k] = make(map[Entity]float64)
			}
			s.limits[k][r.Value.Entity] = limit
		}
	}
	return s
}

// limit returns the most specific limit for a client, and who shares it: clients with the same
// sharer are measured together. ok is false if nothing limits the client.
//
// The order is Kafka's (documentation, "Quota Configuration";
// ClientQuotaManager.DefaultQuotaCallback), for each kind on its own:
//
//	user and client id          measured for      each user and client id
//	user, default client id                       each user and client id
//	user                                          each user, whatever its client ids
//	default user, client id                       each user and client id
//	default user and client id                    each user and client id
//	default user                                  each user
//	client id                                     each client id, whoever uses it
//	default client id                             each client id
func (s *set) limit(k Kind, c Client) (limit float64, sharer Client, ok bool) {
	limits := s.limits[k]
	if len(limits) == 0 {
		return 0, Client{}, false
	}
	if k == ConnectionCreationRate {
		if limit, ok = limits[Entity{IP: Named(c.IP)}]; !ok {
			limit, ok = limits[Entity{IP: Default}]
		}
		return limit, Client{IP: c.IP}, ok
	}
	both, user, id := Client{User: c.User, ID: c.ID}, Client{User: c.User}, Client{ID: c.ID}
	for _, level := range [...]struct {
		Entity
		sharer Client
	}{
		{Entity{User: Named(c.User), ClientID: Named(c.ID)}, both},
		{Entity{User: Named(c.User), ClientID: Default}, both},
		{Entity{User: Named(c.User)}, user},
		{Entity{User: Default, ClientID: Named(c.ID)}, both},
		{Entity{User: Default, ClientID: Default}, both},
		{Entity{User: Default}, user},
		{Entity{ClientID: Named(c.ID)}, id},
		{Entity{ClientID: Default}, id},
	} {
		if c.ID == "" && level.ClientID != (Part{}) {
			continue // the client has no id, so no quota of client ids is about it
		}
		if limit, ok = limits[level.Entity]; ok {
			return limit, level.sharer, true
		}
	}
	return 0, Client{}, false
}
