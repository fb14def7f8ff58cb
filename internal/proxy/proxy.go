// Package proxy says which headers of a request show that a proxy forwarded it.
package proxy

import "strings"

// Header reports whether a header, named as http.Header names it, shows that a proxy forwarded the
// request. A client can leave such a header out, so only that it is there says something.
func Header(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "Via", "Cf-Connecting-Ip", "True-Client-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}
