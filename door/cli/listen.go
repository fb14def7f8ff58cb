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

	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/use/apikey"
)

// resolveTimeout bounds how long start-up waits for a name server.
const resolveTimeout = 2 * time.Second

// checkAddresses refuses addresses that cannot work together or that would open the log to strangers, and warns of an
// advertised address that clients will not reach: they connect, get another address to use, and time out there.
func (c *serveCmd) checkAddresses(ctx context.Context, logger *slog.Logger) error {
	if c.Kafka == kafkaOff {
		if c.Advertise != "" {
			return usage(errors.New("--advertise is for Kafka clients, but --kafka is off"), "leave --advertise out, or give --kafka an address")
		}
		_, _, err := splitAddress("--http", c.HTTP)
		return err
	}
	kafkaHost, kafkaPort, err := splitAddress("--kafka", c.Kafka)
	if err != nil {
		return err
	}
	httpHost, httpPort, err := splitAddress("--http", c.HTTP)
	if err != nil {
		return err
	}
	if kafkaPort == httpPort && kafkaPort != "0" && (kafkaHost == httpHost || unspecified(kafkaHost) || unspecified(httpHost)) {
		return config(fmt.Errorf("--kafka %s and --http %s have the same port", c.Kafka, c.HTTP), "give each its own port")
	}
	if !loopback(kafkaHost) && !c.Insecure {
		return unsafe(fmt.Errorf("--kafka %s can be reached from other machines, and weir does not yet authenticate Kafka clients: anybody could read and write everything",
			c.Kafka), "listen on 127.0.0.1; or add --insecure if a firewall lets in only clients that you trust")
	}
	if c.Advertise == "" {
		return nil
	}
	host, _, err := splitAddress("--advertise", c.Advertise)
	if err != nil {
		return err
	}
	switch {
	case unspecified(host):
		return config(fmt.Errorf("--advertise %s: clients cannot connect to this address", c.Advertise),
			"give the name or address at which clients can reach this machine")
	case loopback(host) && !loopback(kafkaHost):
		logger.Warn("clients on other machines will get a loopback address, and try to connect to their own machine",
			"advertise", c.Advertise, "do", "give --advertise the name at which clients can reach this machine")
	default:
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			logger.Warn("this machine cannot resolve the advertised host; clients that cannot resolve it either will fail after their first connection",
				"advertise", c.Advertise, "error", err)
		}
	}
	return nil
}

// checkKeys reports whether HTTP clients need API keys. It refuses an address that other machines can reach if clients would need
// none.
func (c *serveCmd) checkKeys(ctx context.Context, keys *apikey.Keys, logger *slog.Logger) (locked bool, err error) {
	host, _, _ := net.SplitHostPort(c.HTTP) // checkAddresses has checked it
	locked, err = keys.Any(ctx)
	switch {
	case err != nil:
		return false, c.explain(ctx, err, "")
	case locked && c.TLSCert == "" && !loopback(host):
		logger.Warn("API keys are sent over the network without encryption", "http", c.HTTP, "do", "give --tls-cert and --tls-key, or put a proxy with TLS in front of weir")
	case !locked && !c.Insecure && !loopback(host):
		return false, unsafe(fmt.Errorf("--http %s can be reached from other machines, and the store has no API keys: anybody could read and write everything", c.HTTP),
			"listen on 127.0.0.1; or create a key (`weir key create --help`); or add --insecure if a firewall lets in only clients that you trust")
	}
	return locked, nil
}

// encryption is how to serve HTTP over TLS; nil if no flag asks for it.
func (c *serveCmd) encryption(logger *slog.Logger) (*tls.Config, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, usage(errors.New("--tls-cert and --tls-key must be given together"), "give both, or neither")
	}
	if c.TLSCert == "" {
		return nil, nil
	}
	shown, err := certificate.Load(c.TLSCert, c.TLSKey, logger)
	switch {
	case errors.Is(err, certificate.ErrExposed):
		return nil, unsafe(err, "`chmod 600 "+c.TLSKey+"`")
	case err != nil:
		return nil, config(err, "")
	}
	return shown.TLS(), nil
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
