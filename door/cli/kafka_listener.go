package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/use/acl"
)

// kafkaOff is the value of --kafka for a broker without Kafka clients.
const kafkaOff = "off"

// kafkaListenersMax bounds the addresses for Kafka clients.
const kafkaListenersMax = 16

// securityProtocol says how a listener secures its connections. The names are those of Kafka's
// setting security.protocol, in small letters.
type securityProtocol string

const (
	protocolPlaintext     securityProtocol = "plaintext"
	protocolSSL           securityProtocol = "ssl"
	protocolSASLPlaintext securityProtocol = "sasl_plaintext"
	protocolSASLSSL       securityProtocol = "sasl_ssl"
)

var securityProtocols = []securityProtocol{protocolPlaintext, protocolSSL, protocolSASLPlaintext, protocolSASLSSL}

// tls reports whether connections are encrypted.
func (p securityProtocol) tls() bool { return p == protocolSSL || p == protocolSASLSSL }

// sasl reports whether clients log in.
func (p securityProtocol) sasl() bool { return p == protocolSASLPlaintext || p == protocolSASLSSL }

// kafkaAddress is one value of --kafka, [NAME=][PROTOCOL://]HOST:PORT, with its value of
// --advertise.
type kafkaAddress struct {
	name       string // of the listener; default: its protocol
	protocol   securityProtocol
	address    string // host:port
	host, port string
	advertised string // host:port, or ""
}

func (a kafkaAddress) String() string { return string(a.protocol) + "://" + a.address }

// kafkaAddresses returns the listeners that the flags ask for; none for --kafka off.
func (c *serveCmd) kafkaAddresses() ([]kafkaAddress, error) {
	if slices.Contains(c.Kafka, kafkaOff) {
		switch {
		case len(c.Kafka) > 1:
			return nil, usage(errors.New("--kafka off and another --kafka contradict each other"), "give one of them")
		case len(c.Advertise) > 0:
			return nil, usage(errors.New("--advertise is for Kafka clients, but --kafka is off"), "leave --advertise out, or give --kafka an address")
		}
		return nil, nil
	}
	if len(c.Kafka) > kafkaListenersMax {
		return nil, usage(fmt.Errorf("--kafka is given %d times; the limit is %d", len(c.Kafka), kafkaListenersMax), "")
	}
	var all []kafkaAddress
	for _, text := range c.Kafka {
		a, err := parseKafkaAddress(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(other kafkaAddress) bool { return other.name == a.name }) {
			return nil, usage(fmt.Errorf("two --kafka addresses have the name %s", a.name), "give each a name of its own: NAME="+a.String())
		}
		if a.protocol.tls() && c.TLSCert == "" {
			return nil, usage(fmt.Errorf("--kafka %s needs a TLS certificate", text), "add --tls-cert FILE --tls-key FILE")
		}
		all = append(all, a)
	}
	return all, advertise(all, c.Advertise)
}

func parseKafkaAddress(text string) (kafkaAddress, error) {
	a := kafkaAddress{address: text, protocol: protocolPlaintext}
	name, rest, named := strings.Cut(text, "=")
	if named {
		a.name, a.address = name, rest
	}
	if protocol, rest, given := strings.Cut(a.address, "://"); given {
		a.protocol, a.address = securityProtocol(strings.ToLower(protocol)), rest
	}
	switch {
	case named && name == "":
		return a, usage(fmt.Errorf("--kafka %s has an empty name before the =", text), "write NAME=PROTOCOL://HOST:PORT, or leave the = out")
	case !slices.Contains(securityProtocols, a.protocol):
		var words []string
		for _, p := range securityProtocols {
			words = append(words, string(p))
		}
		return a, usage(fmt.Errorf("--kafka %s has the protocol %q, which weir does not know", text, a.protocol), "use "+strings.Join(words, ", "))
	}
	a.name = cmp.Or(a.name, string(a.protocol))
	var err error
	a.host, a.port, err = splitAddress("--kafka", a.address)
	return a, err
}

// advertise gives listeners their advertised addresses: NAME=HOST:PORT, or HOST:PORT if there is
// one listener.
func advertise(all []kafkaAddress, values []string) error {
	for _, text := range values {
		name, address, named := strings.Cut(text, "=")
		if !named {
			if len(all) > 1 {
				return usage(fmt.Errorf("--advertise %s does not say for which of the %d --kafka addresses it is", text, len(all)), "write --advertise NAME=HOST:PORT; without a name of its own, a --kafka address has the name of its protocol, such as "+all[0].name)
			}
			name, address = all[0].name, text
		}
		i := slices.IndexFunc(all, func(a kafkaAddress) bool { return a.name == name })
		if i < 0 {
			return usage(fmt.Errorf("--advertise %s: no --kafka address has the name %s", text, name), "give it to one: --kafka "+name+"=PROTOCOL://HOST:PORT")
		}
		if all[i].advertised != "" {
			return usage(fmt.Errorf("--advertise is given twice for %s", name), "give it once")
		}
		if _, _, err := splitAddress("--advertise", address); err != nil {
			return err
		}
		all[i].advertised = address
	}
	return nil
}

// authenticates reports whether clients of a listener must show who they are.
func (c *serveCmd) authenticates(a kafkaAddress) bool {
	return a.protocol.sasl() || a.protocol == protocolSSL && c.TLSClientCA != ""
}

// checkKafka refuses an address that would open the log to strangers, and warns of an advertised
// address that clients will not reach: they connect, get another address to use, and time out
// there.
func (c *serveCmd) checkKafka(ctx context.Context, a kafkaAddress, logger *slog.Logger) error {
	if !loopback(a.host) && !c.authenticates(a) && !c.Insecure {
		return unsafe(fmt.Errorf("--kafka %s can be reached from other machines, and its clients need not show who they are: anybody could read and write everything", a),
			"listen on 127.0.0.1; or let clients log in with API keys or as users (sasl_ssl://), or ask for client certificates (ssl:// with --tls-client-ca FILE); or add --insecure if a firewall lets in only clients that you trust")
	}
	if a.protocol == protocolSASLPlaintext && !loopback(a.host) {
		logger.Warn("API keys and OAuth tokens are sent over the network without encryption", "kafka", a.String(), "do", "use sasl_ssl://, with --tls-cert and --tls-key")
	}
	if a.advertised == "" {
		return nil
	}
	host, _, _ := net.SplitHostPort(a.advertised)
	switch {
	case unspecified(host):
		return config(fmt.Errorf("--advertise %s: clients cannot connect to this address", a.advertised),
			"give the name or address at which clients can reach this machine")
	case loopback(host) && !loopback(a.host):
		logger.Warn("clients on other machines will get a loopback address, and try to connect to their own machine",
			"advertise", a.advertised, "do", "give --advertise the name at which clients can reach this machine")
	default:
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			logger.Warn("this machine cannot resolve the advertised host; clients that cannot resolve it either will fail after their first connection",
				"advertise", a.advertised, "err", err)
		}
	}
	return nil
}

// listenKafka opens all ports for Kafka clients, or none.
func listenKafka(ctx context.Context, addresses []kafkaAddress, secured encryption) (all []kafka.Listener, err error) {
	for _, a := range addresses {
		l, err := listen(ctx, "--kafka", a.address)
		if err != nil {
			closeKafka(all)
			return nil, err
		}
		opened := kafka.Listener{Listener: l, Name: a.name, Advertised: a.advertised, SASL: a.protocol.sasl()}
		switch a.protocol {
		case protocolSSL:
			opened.TLS = secured.certified
			opened.Certified = opened.TLS.ClientAuth == tls.RequireAndVerifyClientCert
		case protocolSASLSSL:
			opened.TLS = secured.server
		}
		all = append(all, opened)
	}
	return all, nil
}

func closeKafka(all []kafka.Listener) {
	for _, l := range all {
		l.Close()
	}
}

// warnOfNoRights says that clients with certificates may do nothing, if that is so: weir once let
// them do everything.
func (c *serveCmd) warnOfNoRights(ctx context.Context, acls *acl.ACLs, logger *slog.Logger) {
	if c.TLSClientCA == "" || len(c.SuperUsers) > 0 {
		return
	}
	rules, err := acls.List(ctx, acl.Filter{Kind: acl.Any, Pattern: acl.AnyPattern, Operation: acl.Any, Effect: acl.Allow})
	if err == nil && len(rules) == 0 {
		logger.Warn("clients that show a certificate may do nothing, because no ACL allows it and there are no super users", "do", "weir acl create --principal User:CN=… --allow …; docs/security.md, Certificates")
	}
}

// kafkaDoor is a listener as welcome shows it.
type kafkaDoor struct {
	kafkaAddress
	at   string // where it listens: host:port
	open string // who may use it without a key or a certificate: "nobody", "this machine" or "everybody"
}

// kafkaDoors describes the listeners.
func (c *serveCmd) kafkaDoors(addresses []kafkaAddress, listeners []kafka.Listener) []kafkaDoor {
	var doors []kafkaDoor
	for i, a := range addresses {
		d := kafkaDoor{a, listeners[i].Addr().String(), "this machine"}
		host, _, _ := net.SplitHostPort(d.at)
		switch {
		case c.authenticates(a):
			d.open = "nobody"
		case !loopback(host):
			d.open = "everybody"
		}
		doors = append(doors, d)
	}
	return doors
}

// forWhom says who may use a listener.
func (d kafkaDoor) forWhom(locked bool) string {
	var words string
	switch {
	case d.protocol.sasl():
		words = "with an API key or as a user"
	case d.open == "nobody":
		words = "with a client certificate"
	case locked:
		words = "without API keys, for " + d.open + ": API keys do not protect this address; --kafka off closes it"
	default:
		words = "without API keys, for " + d.open
	}
	if d.protocol == protocolPlaintext {
		return words
	}
	return string(d.protocol) + ": " + words
}

// advertised returns the addresses that other brokers tell clients to use, by the listeners' names.
func advertised(addresses []kafkaAddress, listeners []kafka.Listener) map[string]string {
	all := make(map[string]string, len(listeners))
	for i, l := range listeners {
		all[l.Name] = cmp.Or(addresses[i].advertised, l.Addr().String())
	}
	return all
}
