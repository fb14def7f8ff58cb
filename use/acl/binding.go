package acl

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

// Bounds of a stored rule, in bytes.
const (
	PrincipalMax = len(userPrefix) + 512 // a certificate's distinguished name may have some hundred
	NameMax      = 255
)

const (
	userPrefix = "User:"
	// Everybody, as the principal of a rule, stands for all users.
	Everybody = userPrefix + Everything
	// Everywhere, as the host of a rule, stands for all addresses.
	Everywhere = "*"
)

// Binding is a stored rule: a rule about the clients of a principal that connect from a host.
type Binding struct {
	Principal string // User:NAME, or Everybody
	Host      string // an IP address, or Everywhere
	Rule
}

// Compare orders bindings.
func (b Binding) Compare(c Binding) int {
	deny := func(d bool) int {
		if d {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Kind, c.Kind), strings.Compare(b.Name, c.Name), strings.Compare(strconv.FormatBool(b.Prefixed), strconv.FormatBool(c.Prefixed)),
		strings.Compare(b.Principal, c.Principal), strings.Compare(b.Host, c.Host), cmp.Compare(deny(b.Deny), deny(c.Deny)), cmp.Compare(b.Operation, c.Operation))
}

// Check returns an error if a binding cannot be stored.
func (b Binding) Check() error {
	if err := CheckPrincipal(b.Principal); err != nil {
		return err
	}
	switch {
	case b.Host != Everywhere && !isHost(b.Host):
		return invalid("host of an ACL", short(b.Host, NameMax), "it must be an IP address, or * for every address")
	case b.Kind < Topic || b.Kind > TransactionalID:
		return invalid("resource type of an ACL", strconv.Itoa(int(b.Kind)), "topic, group, cluster and transactional id are allowed")
	case b.Name == "" || len(b.Name) > NameMax:
		return invalid("resource name of an ACL", short(b.Name, NameMax), fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(b.Name), NameMax))
	case !readable(b.Name):
		return invalid("resource name of an ACL", b.Name, "it has characters that cannot be printed")
	case b.Kind == Cluster && b.Name != ClusterName: // as in Kafka (AclApis.handleCreateAcls)
		return invalid("resource name of an ACL", b.Name, "the only cluster is "+ClusterName)
	case b.Operation < All || b.Operation > IdempotentWrite:
		return invalid("operation of an ACL", strconv.Itoa(int(b.Operation)), fmt.Sprintf("%d (%s) to %d (%s) are allowed", All, All, IdempotentWrite, IdempotentWrite))
	}
	return nil
}

// PrincipalOf returns the principal of the user with a name, or an error if no rule can be about
// it.
func PrincipalOf(name string) (string, error) {
	principal := userPrefix + name
	if principal == Everybody {
		return "", invalid("principal of a user", principal, "it stands for every user")
	}
	return principal, CheckPrincipal(principal)
}

// CheckPrincipal returns an error if no rule can be about a principal.
func CheckPrincipal(principal string) error {
	name, ok := strings.CutPrefix(principal, userPrefix)
	switch {
	case !ok || name == "":
		return invalid("principal of an ACL", short(principal, PrincipalMax), "it must be User:NAME, or User:* for every user")
	case len(principal) > PrincipalMax:
		return invalid("principal of an ACL", short(principal, PrincipalMax), fmt.Sprintf("it has %d bytes; %d are allowed", len(principal), PrincipalMax))
	case !readable(principal):
		return invalid("principal of an ACL", principal, "it has characters that cannot be printed")
	}
	return nil
}

// HostOf returns the one way in which an IP address is stored; other text it returns as it is.
func HostOf(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" {
		return host
	}
	return addr.Unmap().String()
}

// isHost reports whether a host is an IP address in the way in which it is stored.
func isHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil && !strings.Contains(host, "%") && HostOf(host) == host
}

func invalid(what, value, why string) error {
	return &eventlog.InvalidError{What: what, Value: value, Why: why}
}

func short(text string, most int) string { return text[:min(len(text), most)] }

func readable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Pattern says how the name of a filter is compared. The numbers are those of Kafka's PatternType
// (KIP-290).
type Pattern int8

// The patterns of a filter.
const (
	AnyPattern Pattern = 1 // rules with this name, literal or prefixed
	Match      Pattern = 2 // rules that apply to the resource with this name
	Literal    Pattern = 3 // literal rules with this name
	Prefixed   Pattern = 4 // prefixed rules with this name
)

// Patterns are the patterns by name. They mean what those of kafka-acls --resource-pattern-type
// mean (KIP-290); there the default is literal, which does not find the rules that apply to a topic
// by its prefix.
var Patterns = map[string]Pattern{"match": Match, "any": AnyPattern, "literal": Literal, "prefixed": Prefixed}

// Any, in a filter, stands for every kind, operation or effect.
const Any = 1

// Effect is what a filter's rules do. The numbers are those of Kafka's AclPermissionType.
type Effect int8

// The effects of rules.
const (
	Deny  Effect = 2
	Allow Effect = 3
)

func (e Effect) String() string {
	if e == Deny {
		return "deny"
	}
	return "allow"
}

// Effect is what the rule does.
func (r Rule) Effect() Effect {
	if r.Deny {
		return Deny
	}
	return Allow
}

// Filter finds stored rules. All that it names must be equal; nil stands for everything.
type Filter struct {
	Kind      Kind // or Any
	Name      *string
	Pattern   Pattern
	Principal *string
	Host      *string
	Operation Operation // or Any; All finds only rules with All
	Effect    Effect    // or Any
}

// ErrTooWide is returned for a filter that names nothing by which people choose rules to delete.
var ErrTooWide = errors.New("neither a principal, nor a host, nor a name is given")

// CheckDeletion returns ErrTooWide for a filter that would delete the rules about all principals,
// hosts and resources: that is a mistake, if it comes from a person.
func (f Filter) CheckDeletion() error {
	if f.Principal == nil && f.Host == nil && f.Name == nil {
		return ErrTooWide
	}
	return f.Check()
}

// Check returns an error if a filter has numbers that mean nothing.
func (f Filter) Check() error {
	switch {
	case f.Kind < Any || f.Kind > userKind:
		return invalid("resource type of a filter", strconv.Itoa(int(f.Kind)), "it is unknown")
	case f.Pattern < AnyPattern || f.Pattern > Prefixed:
		return invalid("pattern type of a filter", strconv.Itoa(int(f.Pattern)), "it is unknown")
	case f.Operation < Any || f.Operation > operationMax:
		return invalid("operation of a filter", strconv.Itoa(int(f.Operation)), "it is unknown")
	case f.Effect < Any || f.Effect > Allow:
		return invalid("permission type of a filter", strconv.Itoa(int(f.Effect)), "it is unknown")
	}
	return nil
}

// Kafka has more kinds and operations than weir: no rule has them, but a filter may ask.
const (
	userKind     Kind      = 7
	operationMax Operation = 15 // two-phase commit
)

// Finds reports whether a rule is among those that the filter describes, as in Kafka
// (ResourcePatternFilter.matches, AccessControlEntryFilter.matches).
func (f Filter) Finds(b Binding) bool {
	switch {
	case f.Kind != Any && f.Kind != b.Kind,
		f.Principal != nil && *f.Principal != b.Principal,
		f.Host != nil && HostOf(*f.Host) != b.Host,
		f.Operation != Any && f.Operation != b.Operation,
		f.Effect != Any && f.Effect != b.Effect(),
		f.Pattern == Literal && b.Prefixed,
		f.Pattern == Prefixed && !b.Prefixed:
		return false
	case f.Name == nil:
		return true
	case f.Pattern == Match:
		return b.covers(b.Kind, *f.Name)
	}
	return *f.Name == b.Name
}
