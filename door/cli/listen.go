package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// resolveTimeout bounds how long start-up waits for a name server.
const resolveTimeout = 2 * time.Second

// checkAddresses refuses addresses that cannot work together or that would open the log to strangers, and warns of an
// advertised address that clients will not reach: they connect, are told another address, and time out there.
func (c *serveCmd) checkAddresses(ctx context.Context, logger *slog.Logger) error {
	kafkaHost, kafkaPort, err := splitAddress("--kafka", c.Kafka)
	if err != nil {
		return err
	}
	httpHost, httpPort, err := splitAddress("--http", c.HTTP)
	if err != nil {
		return err
	}
	if kafkaPort == httpPort && kafkaPort != "0" && (kafkaHost == httpHost || unspecified(kafkaHost) || unspecified(httpHost)) {
		return config(fmt.Errorf("--kafka %s and --http %s are the same port", c.Kafka, c.HTTP), "give each its own")
	}
	for _, l := range []struct{ flag, address, host string }{{"--kafka", c.Kafka, kafkaHost}, {"--http", c.HTTP, httpHost}} {
		if !loopback(l.host) && !c.Insecure {
			return unsafe(fmt.Errorf("%s %s can be reached from other machines, and weir does not ask who is there yet: anybody could read and write everything",
				l.flag, l.address), "listen on 127.0.0.1, or add --insecure where a firewall lets in only those you trust")
		}
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
		return config(fmt.Errorf("--advertise %s: clients cannot connect to that", c.Advertise),
			"give the name or address under which they reach this machine")
	case loopback(host) && !loopback(kafkaHost):
		logger.Warn("clients on other machines will be told to connect to themselves",
			"advertise", c.Advertise, "do", "give --advertise the name under which they reach this machine")
	default:
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			logger.Warn("the advertised host does not resolve here; clients that cannot resolve it either will fail after their first connection",
				"advertise", c.Advertise, "error", err)
		}
	}
	return nil
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

// listen opens a port, or says what keeps us from it.
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
		hint = fmt.Sprintf("another program has the port: find it with `lsof -i :%s`, or give %s another port", port, flag)
	case errors.Is(err, syscall.EACCES):
		hint = "ports below 1024 belong to the system: give " + flag + " a higher one"
	}
	return nil, config(fmt.Errorf("%s %s: %w", flag, address, cause(err)), hint)
}
