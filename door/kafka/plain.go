package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
)

// plainExchange is a login by PLAIN (RFC 4616): the user is an API key's name or id, the password
// its secret.
type plainExchange struct{ keys *apikey.Keys }

// Bounds of what PLAIN may send, in bytes. A longer message is refused without a lookup.
const (
	userMax   = 128 // as of a key's name
	secretMax = 256
)

// step takes the only message: authorization id, user and password, with zero bytes in between. As
// in Kafka (PlainSaslServer.evaluateResponse) the authorization id must be empty or the user.
func (x plainExchange) step(ctx context.Context, message []byte) ([]byte, *caller, error) {
	parts := bytes.SplitN(message, []byte{0}, 4)
	if len(parts) != 3 {
		return nil, nil, fmt.Errorf("%w: the message of PLAIN must have 3 parts, with zero bytes in between; it has another number", errBadLogin)
	}
	as, user, secret := string(parts[0]), string(parts[1]), string(parts[2])
	switch {
	case user == "" || len(user) > userMax:
		return nil, nil, fmt.Errorf("%w: the user name has %d bytes; 1 to %d are allowed", errBadLogin, len(user), userMax)
	case as != "" && as != user:
		return nil, nil, fmt.Errorf("%w: the authorization id is not the user name", errBadLogin)
	case len(secret) > secretMax:
		return nil, nil, fmt.Errorf("%w: the password has %d bytes; the limit is %d", errBadLogin, len(secret), secretMax)
	}
	if x.keys == nil {
		return nil, nil, fmt.Errorf("%w: there are no API keys here", errBadLogin)
	}
	id, err := x.keys.Check(ctx, secret)
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return nil, nil, err
	case err != nil:
		return nil, nil, fmt.Errorf("%w: user %q: %w", errBadLogin, user, err)
	case user != id.Name() && user != id.ID():
		return nil, nil, fmt.Errorf("%w: the user name is %q, but the API key is that of %s: use its name or its id", errBadLogin, user, id)
	}
	return nil, &caller{
		principal: "User:" + id.Name(), key: id.ID(), rights: acl.RightsBy(id.Rules()),
		still: func(ctx context.Context) error { return x.keys.Still(ctx, id) },
	}, nil
}
