package main

import (
	"slices"
	"strings"
)

// streamsProtocol are the names of parameters that choose group.protocol=streams if they are true.
var streamsProtocol = []string{"streamsProtocolEnabled", "streamsRebalanceProtocolEnabled", "useNewProtocol"}

// lacking says which feature that weir does not have a case asks for by its arguments, or needs
// whatever they are; "": none.
func (c *control) lacking(q question) string {
	if need := kafkaNeeds[c.class+"#"+q.Method]; strings.HasPrefix(need, next) {
		return need
	}
	for name, value := range q.Arguments {
		value = strings.ToLower(value)
		switch {
		case strings.HasPrefix(name, "groupProtocol") && strings.Contains(value, "streams"), slices.Contains(streamsProtocol, name) && value == "true":
			return streamsGroups
		case strings.HasPrefix(value, "exactly_once"):
			return transactions
		}
	}
	return ""
}
