package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/user"
)

// resolveTimeout bounds how long start-up waits for a name server.
const resolveTimeout = 2 * time.Second

// checkAddresses returns the addresses for Kafka clients. It refuses addresses that cannot work
// together or that would open the log to strangers.
func (c *serveCmd) checkAddresses(ctx context.Context, logger *slog.Logger) ([]kafkaAddress, error) {
	addresses, err := c.kafkaAddresses()
	if err != nil {
		return nil, err
	}
	host, port, err := splitAddress("--http", c.HTTP)
	if err != nil {
		return nil, err
	}
	used := []kafkaAddress{{address: "--http " + c.HTTP, host: host, port: port}}
	for _, a := range addresses {
		for _, other := range used {
			if a.port == other.port && a.port != "0" && (a.host == other.host || unspecified(a.host) || unspecified(other.host)) {
				return nil, config(fmt.Errorf("--kafka %s and %s have the same port", a.address, other.address), "give each its own port")
			}
		}
		if err := c.checkKafka(ctx, a, logger); err != nil {
			return nil, err
		}
		a.address = "--kafka " + a.address
		used = append(used, a)
	}
	return addresses, nil
}

// checkHTTP reports whether HTTP clients must show who they are: with API keys, as users, or
// because the server takes tokens or certificates. It refuses an address that other machines can
// reach if clients need not.
func (c *serveCmd) checkHTTP(ctx context.Context, keys *apikey.Keys, users *user.Users, logger *slog.Logger) (locked bool, err error) {
	host, _, _ := net.SplitHostPort(c.HTTP) // checkAddresses has checked it
	locked, err = anyCredentials(ctx, keys, users)
	locked = locked || c.OAuthJWKS != "" || c.TLSClientCA != ""
	switch {
	case err != nil:
		return false, c.explain(ctx, err, "")
	case locked && c.TLSCert == "" && !loopback(host):
		logger.Warn("API keys, passwords and tokens are sent over the network without encryption", "http", c.HTTP, "do", "give --tls-cert and --tls-key, or put a proxy with TLS in front of weir")
	case !locked && !c.Insecure && !loopback(host):
		return false, unsafe(fmt.Errorf("--http %s can be reached from other machines, and the store has no API keys and no users: anybody could read and write everything", c.HTTP),
			"listen on 127.0.0.1; or create a key (`weir key create --help`) or a user (`weir user create --help`); or add --insecure if a firewall lets in only clients that you trust")
	}
	return locked, nil
}

// credentialsPatience is how long a start waits for the store to say whether it has keys or users.
// Opening it may have taken as long.
const credentialsPatience = 30 * time.Second

// anyCredentials reports whether the store has API keys or users. A store that was just opened and
// does not answer for a moment does not end the start.
func anyCredentials(ctx context.Context, keys *apikey.Keys, users *user.Users) (any bool, err error) {
	for until := time.Now().Add(credentialsPatience); ; {
		if any, err = keys.Any(ctx); err == nil && !any {
			any, err = users.Any(ctx)
		}
		if !errors.Is(err, eventlog.ErrUnavailable) || time.Now().After(until) {
			return any, err
		}
		select {
		case <-time.After(time.Second): // a failed read is remembered for a shorter time
		case <-ctx.Done():
			return false, err
		}
	}
}

// encryption is how to serve over TLS. Its fields are nil if no flag asks for it.
type encryption struct {
	server    *tls.Config // the server shows a certificate
	certified *tls.Config // the server shows a certificate, and so must Kafka clients if --tls-client-ca is given
	http      *tls.Config // the server shows a certificate, and so may HTTP clients
}

func (c *serveCmd) encryption(logger *slog.Logger) (encryption, error) {
	switch {
	case c.TLSClientCA != "" && c.TLSCert == "":
		return encryption{}, usage(errors.New("--tls-client-ca is for clients that use TLS, and --tls-cert is not given"), "add --tls-cert FILE --tls-key FILE")
	case c.TLSClientCA == "" && len(c.TLSPrincipalRule) > 0:
		return encryption{}, usage(errors.New("--tls-principal-rule is about client certificates, and --tls-client-ca is not given"), "give --tls-client-ca the certificate that signs your clients' certificates")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return encryption{}, usage(errors.New("--tls-cert and --tls-key must be given together"), "give both, or neither")
	case c.TLSCert == "":
		return encryption{}, nil
	}
	shown, err := certificate.Load(c.TLSCert, c.TLSKey, logger)
	switch {
	case errors.Is(err, certificate.ErrExposed):
		return encryption{}, unsafe(err, "`chmod 600 "+c.TLSKey+"`")
	case err != nil:
		return encryption{}, config(err, "")
	case c.TLSClientCA == "":
		return encryption{shown.TLS(), shown.TLS(), shown.TLS()}, nil
	}
	signers, err := certificate.LoadAuthorities(c.TLSClientCA, logger)
	if err != nil {
		return encryption{}, config(err, "give --tls-client-ca the certificate that signs your clients' certificates")
	}
	return encryption{shown.TLS(), shown.MutualTLS(signers), shown.OptionalTLS(signers)}, nil
}

func splitAddress(flag, address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", "", usage(fmt.Errorf("%s %q is not an address", flag, address), "write HOST:PORT, such as 127.0.0.1:9092")
	}
	return host, port, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func unspecified(host string) bool {
	return host == "" || net.ParseIP(host).IsUnspecified()
}

// listen opens a port, or returns why it cannot.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	_, port, _ := net.SplitHostPort(address)
	hint := "give " + flag + " an address of this machine"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = fmt.Sprintf("another program uses the port: find it with `lsof -i :%s`, or give %s another port", port, flag)
	case errors.Is(err, syscall.EACCES):
		hint = "ports below 1024 need special rights: give " + flag + " a higher one"
	}
	return nil, config(fmt.Errorf("%s %s: %w", flag, address, cause(err)), hint)
}
