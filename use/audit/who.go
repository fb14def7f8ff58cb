package audit

import (
	"context"
	"os"
	"os/user"
	"strconv"
)

// Who is who makes a change, and from where.
type Who struct {
	Type    string `json:"type"`           // one of the types below
	Name    string `json:"name,omitempty"` // of the user, of the role, or of the API key
	ID      string `json:"id,omitempty"`   // of the API key
	Door    string `json:"door"`           // kafka, http, console, cli or sql
	Address string `json:"address"`        // of the client; of the command line, the machine's name
}

// The types of who makes a change.
const (
	User      = "user"
	Key       = "key"
	Anonymous = "anonymous" // a client that need not authenticate
	OSUser    = "os_user"   // the operating system's user who runs a command on a store
	// DatabaseRole is the role of PostgreSQL that a session logged in as.
	DatabaseRole = "database_role"
)

type whoKey struct{}

// By returns a context of what a client does: its changes are recorded.
func By(ctx context.Context, who Who) context.Context { return context.WithValue(ctx, whoKey{}, &who) }

// Silent returns a context of what weir does itself.
func Silent(ctx context.Context) context.Context {
	return context.WithValue(ctx, whoKey{}, (*Who)(nil))
}

func of(ctx context.Context) (Who, bool) {
	who, _ := ctx.Value(whoKey{}).(*Who)
	if who == nil {
		return Who{}, false
	}
	return *who, true
}

// AtTheCommandLine returns who runs a command.
func AtTheCommandLine() Who {
	who := Who{Type: OSUser, Name: strconv.Itoa(os.Getuid()), Door: "cli"}
	if u, err := user.Current(); err == nil {
		who.Name = u.Username
	}
	who.Address, _ = os.Hostname()
	return who
}
