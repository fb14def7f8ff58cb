// Package pathname makes a name one segment of a URL's path.
package pathname

import (
	"net/url"
	"strings"
)

// Escape escapes a name, whatever it is. A client or a proxy would take . and .. for steps to
// another path (RFC 3986, 5.2.4), so they are escaped, too.
func Escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}
