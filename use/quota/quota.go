// Package quota bounds how much a Kafka client may use of a process: bytes that it sends and
// receives, time of its requests, partitions that it creates and deletes, and new connections
// (KIP-13, KIP-124, KIP-219, KIP-546, KIP-599, KIP-612).
//
// A quota is stored under the key `quota/<hash of its entity>`. Every process on the store enforces
// it on its own, as every broker of Kafka does.
//
// quota.go defines quotas and whom they are about, stored.go lists and changes them, filter.go
// finds them, limits.go says which quota applies to a client, meter.go measures what clients use,
// enforcer.go puts these together for a server.
package quota

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

// Kind is what a quota bounds, by Kafka's name.
type Kind string

// The kinds, as in Kafka (QuotaConfig). Those of an IP address and those of users and client ids
// are different ones.
const (
	ProducerByteRate       Kind = "producer_byte_rate"       // bytes a second of produce requests
	ConsumerByteRate       Kind = "consumer_byte_rate"       // bytes a second of answers to fetches
	RequestPercentage      Kind = "request_percentage"       // time in which the server works on requests; 100 is one second a second
	ControllerMutationRate Kind = "controller_mutation_rate" // partitions a second that are created or deleted, with their topics or alone
	ConnectionCreationRate Kind = "connection_creation_rate" // new connections a second, from one IP address
)

// Kinds are all kinds.
var Kinds = []Kind{ProducerByteRate, ConsumerByteRate, RequestPercentage, ControllerMutationRate, ConnectionCreationRate}

// Bounds of quotas.
const (
	NameMax     = 255 // bytes of a user's name or a client id
	entitiesMax = 1000
)

// Part is a user, a client id or an IP address in an entity. The zero value: the entity has none.
type Part struct {
	Name    string
	Default bool // stands for all names that have no quota of their own; Name is empty
}

// Named is the part with a name.
func Named(name string) Part { return Part{Name: name} }

// Default is the part for all names that have no quota of their own.
var Default = Part{Default: true}

func (p Part) String() string {
	if p.Default {
		return "<default>"
	}
	return p.Name
}

// Entity is whom a quota is about: a user, a client id, both, or an IP address.
type Entity struct {
	User     Part // without "User:"
	ClientID Part
	IP       Part
}

func (e Entity) String() string {
	var words []string
	for _, p := range []struct {
		what string
		Part
	}{{"user", e.User}, {"client-id", e.ClientID}, {"ip", e.IP}} {
		if p.Part != (Part{}) {
			words = append(words, p.what+" "+p.Part.String())
		}
	}
	return strings.Join(words, ", ")
}

// Compare orders entities.
func (e Entity) Compare(f Entity) int {
	part := func(a, b Part) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(strconv.FormatBool(a.Default), strconv.FormatBool(b.Default)))
	}
	return cmp.Or(part(e.IP, f.IP), part(e.User, f.User), part(e.ClientID, f.ClientID))
}

// Quota is what an entity may use.
type Quota struct {
	Entity Entity
	Limits map[Kind]float64
}

// Errors about quotas.
var (
	ErrTooMany = errors.New("too many quotas")
	ErrUnknown = errors.New("no such quota")
	ErrDamaged = errors.New("the stored quota cannot be read; `weir quota delete --damaged` removes it")
)

func invalid(what, value, why string) error {
	return &eventlog.InvalidError{What: what, Value: value, Why: why}
}

// Normal returns the entity with its IP address in the one way in which it is stored.
func (e Entity) Normal() Entity {
	if one := IPOf(e.IP.Name); one != "" {
		e.IP.Name = one
	}
	return e
}

// Check returns an error if there can be no quota about the entity.
func (e Entity) Check() error {
	switch none := (Part{}); {
	case e == Entity{}:
		return invalid("entity of a quota", "", "it is empty; it must have a user, a client id or an IP address")
	case e.IP != none && (e.User != none || e.ClientID != none): // as in Kafka (ClientQuotaControlManager.configKeysForEntityType)
		return invalid("entity of a quota", e.short(), "an IP address cannot be combined with a user or a client id")
	case e.IP.Name != "" && IPOf(e.IP.Name) != e.IP.Name, strings.Contains(e.IP.Name, "%"):
		return invalid("IP address of a quota", e.IP.Name[:min(len(e.IP.Name), NameMax)], "it is not an IP address")
	}
	return cmp.Or(checkName("user", e.User.Name), checkName("client id", e.ClientID.Name))
}

func (e Entity) short() string {
	text := e.String()
	return text[:min(len(text), NameMax)]
}

func checkName(what, name string) error {
	switch {
	case len(name) > NameMax:
		return invalid(what+" of a quota", name[:NameMax], fmt.Sprintf("it has %d bytes; %d are allowed", len(name), NameMax))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid(what+" of a quota", strconv.Quote(name), "it has characters that cannot be printed")
	}
	return nil
}

// IPOf returns the one way in which an IP address is stored; "" if the text is none.
func IPOf(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	return addr.WithZone("").Unmap().String()
}

// kinds returns what a quota about the entity may bound.
func (e Entity) kinds() []Kind {
	if e.IP != (Part{}) {
		return []Kind{ConnectionCreationRate}
	}
	return []Kind{ProducerByteRate, ConsumerByteRate, RequestPercentage, ControllerMutationRate}
}

// CheckLimit returns an error if the entity cannot have a limit: the conditions are Kafka's
// (ClientQuotaControlManager.validateQuotaKeyValue).
func (e Entity) CheckLimit(k Kind, limit float64) error {
	text := strconv.FormatFloat(limit, 'g', -1, 64)
	whole := math.Abs(math.Mod(limit, 1)) <= 1e-6
	switch {
	case !slices.Contains(e.kinds(), k):
		return invalid("quota", string(k[:min(len(k), NameMax)]), fmt.Sprintf("it is unknown for %s; known are %s", e.short(), joined(e.kinds())))
	case !(limit > 0): // also NaN
		return invalid(string(k), text, "it must be greater than 0")
	case k != RequestPercentage && k != ControllerMutationRate && !whole:
		return invalid(string(k), text, "it must be a whole number")
	case limit > limitMax(k):
		return invalid(string(k), text, fmt.Sprintf("the limit is %.0f", limitMax(k)))
	}
	return nil
}

// limitMax is the largest limit of a kind: Kafka has byte rates as a long, connection rates as an
// int, the others as a double (QuotaConfig).
func limitMax(k Kind) float64 {
	switch k {
	case ConnectionCreationRate:
		return math.MaxInt32
	case RequestPercentage, ControllerMutationRate:
		return math.MaxFloat64
	}
	return math.MaxInt64
}

func joined(kinds []Kind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}
