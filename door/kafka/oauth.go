package kafka

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/token"
)

const oauthBearer = "OAUTHBEARER"

// badTokenText is the server's challenge to a token that is not valid (RFC 7628, 3.2.2), and then
// the text of the error, as in Kafka (OAuthBearerSaslServer.process). The client is not told what
// is wrong with the token; the log is.
const badTokenText = `{"status":"invalid_token"}`

// oauthMessageMax bounds a client's message, in bytes: a token and extensions.
const oauthMessageMax = token.TextMax + 4<<10

// oauthMessage is the client's first message (RFC 7628, 3.1), as Kafka takes it
// (OAuthBearerClientInitialResponse): no channel binding, an authorization id, then pairs of which
// auth has the token. weir ignores the other pairs, which Kafka calls extensions (KIP-342).
//
//	n,a=alice,^Aauth=Bearer eyJ…^Akey=value^A^A
var oauthMessage = regexp.MustCompile(`^n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01$`)

// oauthExchange is a login by OAUTHBEARER (KIP-255, KIP-768): one message, with a token.
type oauthExchange struct{ c *conn }

// step takes the first message. If it refuses a token, it returns an answer with errBadLogin: the
// challenge.
func (x oauthExchange) step(ctx context.Context, message []byte) ([]byte, *caller, error) {
	refused := func(err error) ([]byte, *caller, error) {
		return []byte(badTokenText), nil, fmt.Errorf("%w: %w", errBadLogin, err)
	}
	as, text, err := parseOAuth(message)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBadLogin, err)
	}
	valid, err := x.c.s.cfg.Tokens.Check(ctx, text)
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return nil, nil, err
	case err != nil:
		return refused(err)
	case as != "" && as != valid.Name:
		return refused(fmt.Errorf("the authorization id is %q, and the token's name %q", as, valid.Name))
	}
	who := x.c.userCaller("User:" + valid.Name)
	who.expires, who.until = valid.Expires, valid.Ends
	return []byte{}, who, nil
}

// parseOAuth returns the authorization id and the token of a client's first message.
func parseOAuth(message []byte) (as, text string, err error) {
	if len(message) > oauthMessageMax {
		return "", "", fmt.Errorf("the message of %s has %d bytes; the limit is %d", oauthBearer, len(message), oauthMessageMax)
	}
	parts := oauthMessage.FindSubmatch(message)
	if parts == nil {
		return "", "", fmt.Errorf("the message of %s does not have the form of RFC 7628, 3.1", oauthBearer)
	}
	as = strings.NewReplacer("=2C", ",", "=3D", "=").Replace(string(parts[1]))
	for pair := range strings.SplitSeq(string(parts[2]), "\x01") {
		name, value, _ := strings.Cut(pair, "=")
		if name != "auth" {
			continue
		}
		scheme, rest, _ := strings.Cut(value, " ")
		if text != "" || !strings.EqualFold(scheme, "Bearer") {
			return "", "", fmt.Errorf("the message of %s must have one auth=Bearer TOKEN", oauthBearer)
		}
		text = strings.TrimSpace(rest)
	}
	if text == "" {
		return "", "", fmt.Errorf("the message of %s has no auth=Bearer TOKEN", oauthBearer)
	}
	return as, text, nil
}

// challenged is the rest of an exchange after a challenge has told the client that it failed. The
// client answers the challenge with one byte (RFC 7628, 3.2.3), and gets the error.
type challenged struct{}

// errChallenged is errBadLogin of a client that was told so, and is logged.
var errChallenged = fmt.Errorf("%w, as the client was told by a challenge", errBadLogin)

func (challenged) step(context.Context, []byte) ([]byte, *caller, error) {
	return nil, nil, errChallenged
}

// lasts sets when a client must log in again: within the server's limit, and before its credentials
// expire. The client is told w.told, which does not go past the expiry, as in Kafka
// (SaslServerAuthenticator.ReauthInfo). The server enforces w.until, which may be later.
func (w *caller) lasts(now time.Time, limit time.Duration) {
	if limit > 0 {
		w.told = limit
		if w.until.IsZero() || now.Add(limit).Before(w.until) {
			w.until = now.Add(limit)
		}
	}
	if w.expires.IsZero() {
		return
	}
	if left := max(0, w.expires.Sub(now)); limit <= 0 || left < limit {
		w.told = left
	}
}
