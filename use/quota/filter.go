package quota

// Match says which parts of entities a filter finds. The numbers are those of Kafka's
// DescribeClientQuotasRequest (KIP-546).
type Match int8

// The matches.
const (
	Exact      Match = 0 // the part with this name
	IsDefault  Match = 1 // the part that stands for all other names
	AnyPart    Match = 2 // every name, and the default
	unfiltered Match = -1
)

// Component is a condition for one part of an entity. The zero value finds the empty name; use
// Whatever for no condition.
type Component struct {
	Match Match
	Name  string // of Exact
}

// Whatever finds every entity, also those without the part.
var Whatever = Component{Match: unfiltered}

func (c Component) finds(p Part, strict bool) bool {
	switch c.Match {
	case unfiltered:
		return !strict || p == Part{}
	case IsDefault:
		return p.Default
	case AnyPart:
		return p != Part{}
	}
	return !p.Default && p.Name == c.Name && p != Part{}
}

// Filter finds quotas whose entity meets all conditions, as in Kafka (ClientQuotasImage.describe).
type Filter struct {
	User, ClientID, IP Component
	Strict             bool // the entity has no other parts than those with a condition
}

// All finds every quota.
var All = Filter{User: Whatever, ClientID: Whatever, IP: Whatever}

// FilterOf returns the filter that finds the quotas of all entities that have what one entity has.
func FilterOf(e Entity) Filter {
	component := func(p Part) Component {
		switch {
		case p.Default:
			return Component{Match: IsDefault}
		case p.Name != "":
			return Component{Match: Exact, Name: p.Name}
		}
		return Whatever
	}
	return Filter{User: component(e.User), ClientID: component(e.ClientID), IP: component(e.IP)}
}

// Finds reports whether an entity meets the conditions.
func (f Filter) Finds(e Entity) bool {
	return f.User.finds(e.User, f.Strict) && f.ClientID.finds(e.ClientID, f.Strict) && f.IP.finds(e.IP, f.Strict)
}
