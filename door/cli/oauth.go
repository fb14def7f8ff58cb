package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/weir-log/weir/internal/token"
)

// oauthFlags say which OAuth tokens are valid.
type oauthFlags struct {
	OAuthJWKS           string   `help:"Take OAuth tokens, over HTTP (Authorization: Bearer) and from Kafka clients that log in (SASL/OAUTHBEARER): JWTs that are signed with a key of this JWKS, at a URL or in a file. It is fetched again every 10 minutes (a file: 10 s), and for an unknown key." name:"oauth-jwks" placeholder:"URL|FILE"`
	OAuthIssuer         string   `help:"Who signs the tokens: their iss must be this." name:"oauth-issuer" placeholder:"ISSUER"`
	OAuthAudience       []string `help:"For whom the tokens are: their aud must have one of these. May be given again." name:"oauth-audience" placeholder:"NAME"`
	OAuthPrincipalClaim string   `help:"The claim of a token that has the user's name. Default: ${default}." name:"oauth-principal-claim" default:"sub" placeholder:"NAME"`
	OAuthLeeway         duration `help:"How far this machine's clock and the issuer's may differ. Default: ${default}." name:"oauth-leeway" default:"30s" placeholder:"TIME"`
}

// verifier returns what checks tokens; nil without --oauth-jwks.
func (f oauthFlags) verifier(insecure bool, logger *slog.Logger) (*token.Verifier, error) {
	switch {
	case f.OAuthJWKS == "" && (f.OAuthIssuer != "" || len(f.OAuthAudience) > 0):
		return nil, usage(errors.New("--oauth-issuer and --oauth-audience say which tokens are valid, but --oauth-jwks is not given"), "give --oauth-jwks the URL or the file of the issuer's keys")
	case f.OAuthJWKS == "":
		return nil, nil
	case f.OAuthIssuer == "" || len(f.OAuthAudience) == 0: // a token without them, or for somebody else, would let its owner in (RFC 9068, 4)
		return nil, usage(errors.New("--oauth-jwks needs --oauth-issuer and --oauth-audience"), "give them the values that the tokens have in iss and aud")
	}
	if u, err := url.Parse(f.OAuthJWKS); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) && !insecure {
		return nil, unsafe(fmt.Errorf("--oauth-jwks %s is not encrypted: whoever can change the answer on its way can log in as anybody", f.OAuthJWKS), "give an https URL, or a file; or add --insecure if you trust the network")
	}
	v, err := token.New(token.Config{
		JWKS: f.OAuthJWKS, Issuer: f.OAuthIssuer, Audiences: f.OAuthAudience, Claim: f.OAuthPrincipalClaim, Leeway: time.Duration(f.OAuthLeeway), Logger: logger,
	})
	if err != nil {
		return nil, config(fmt.Errorf("--oauth-jwks: %w", err), "")
	}
	return v, nil
}
