package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/xdg-go/scram"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/user"
)

// scramMessageMax bounds a client's message of SCRAM, in bytes: a name, a nonce and a proof.
const scramMessageMax = 4 << 10

// scramExchange is a login by SCRAM (RFC 5802, RFC 7677, KIP-84): two messages of the client, each
// answered. A client's message costs the server a few hashes, however many iterations the user's
// credential has.
type scramExchange struct {
	c         *conn
	mechanism user.Mechanism
	talk      *scram.ServerConversation
	found     user.Found
	find      func(name string) (user.Found, error) // set for each step
	trouble   error                                 // the error of find
}

func (c *conn) newScram(m user.Mechanism) exchange {
	x := &scramExchange{c: c, mechanism: m}
	kind := scram.SHA256
	if m == user.SHA512 {
		kind = scram.SHA512
	}
	server, err := kind.NewServer(x.credential)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", m, err)) // only clients can be refused
	}
	x.talk = server.NewConversation()
	return x
}

// step takes one message. As in Kafka (ScramSaslServer), the authorization id must be empty or the
// user.
func (x *scramExchange) step(ctx context.Context, message []byte) ([]byte, *caller, error) {
	if len(message) > scramMessageMax {
		return nil, nil, fmt.Errorf("%w: a message of %s has %d bytes; the limit is %d", errBadLogin, x.mechanism, len(message), scramMessageMax)
	}
	x.find = func(name string) (user.Found, error) { return x.c.s.cfg.Users.Lookup(ctx, name, x.mechanism) }
	answer, err := x.talk.Step(string(message))
	name := x.talk.Username()
	switch {
	case errors.Is(x.trouble, eventlog.ErrUnavailable):
		return nil, nil, x.trouble
	case err != nil && len(name) <= user.NameMax:
		return nil, nil, fmt.Errorf("%w: %s, user %q: %w", errBadLogin, x.mechanism, name, err)
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %s: %w", errBadLogin, x.mechanism, err)
	case x.talk.AuthzID() != "" && x.talk.AuthzID() != name:
		return nil, nil, fmt.Errorf("%w: the authorization id is not the user name, %q", errBadLogin, name)
	case !x.talk.Valid():
		return []byte(answer), nil, nil
	case !x.found.Known(): // this cannot be: no proof fits the keys that an unknown user gets
		return nil, nil, fmt.Errorf("%w: there is no user %q", errBadLogin, name)
	}
	found := x.found
	who := x.c.userCaller("User:" + name)
	who.still = func(ctx context.Context) error { return x.c.s.cfg.Users.Still(ctx, found) }
	return []byte(answer), who, nil
}

// credential is called by step for the name in the first message.
func (x *scramExchange) credential(name string) (scram.StoredCredentials, error) {
	if err := user.CheckName(name); err != nil {
		return scram.StoredCredentials{}, err
	}
	x.found, x.trouble = x.find(name)
	c := x.found.Credential
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: c.Iterations}, StoredKey: c.StoredKey, ServerKey: c.ServerKey,
	}, x.trouble
}

// userCaller is the caller for a principal whose credentials have no rights in them, unlike an API
// key. A super user may do everything; any other may do what the stored ACLs allow, which admit
// reads before each request.
func (c *conn) userCaller(principal string) *caller {
	return &caller{principal: principal, rights: acl.RightsOf(principal, c.nc.RemoteAddr().String(), c.s.superUsers[principal])}
}
