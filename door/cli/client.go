package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/weir-log/weir/use/apikey"
)

// brokerFlags say which Kafka brokers to speak to, and as whom.
type brokerFlags struct {
	loginFlags
	Bootstrap []string         `help:"Addresses of Kafka brokers to connect to first. Default: ${default}." default:"127.0.0.1:9092" placeholder:"HOST:PORT"`
	Protocol  securityProtocol `help:"How the brokers secure connections: plaintext, ssl (TLS), sasl_plaintext or sasl_ssl; with the last two, weir logs in as --user, or with --api-key. Default: ${default}." enum:"plaintext,ssl,sasl_plaintext,sasl_ssl" default:"plaintext" placeholder:"PROTOCOL"`
	Timeout   duration         `help:"Give up on a broker that does not answer for this long." default:"10s"`
}

// connect returns a client to a broker that has just answered.
func (f *brokerFlags) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	for _, broker := range f.Bootstrap {
		if _, port, err := net.SplitHostPort(broker); err != nil || port == "" {
			return nil, usage(fmt.Errorf("--bootstrap %q is not an address", broker), "write HOST:PORT, such as 127.0.0.1:9092")
		}
	}
	secured, err := f.secure()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(append([]kgo.Opt{
		kgo.SeedBrokers(f.Bootstrap...),
		kgo.ClientID("weir-cli"),
		kgo.DialTimeout(time.Duration(f.Timeout)),
		kgo.RetryTimeout(time.Duration(f.Timeout)),
	}, secured...), opts...)...)
	if err != nil {
		return nil, usage(err, "")
	}
	ping, cancel := context.WithTimeout(ctx, time.Duration(f.Timeout))
	defer cancel()
	if err := client.Ping(ping); err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, kerr.SaslAuthenticationFailed) {
			return nil, failed(fmt.Errorf("the broker at %s refused the login", strings.Join(f.Bootstrap, ", ")), "`weir key list` lists the keys, and which are valid; `weir user list` lists the users")
		}
		return nil, f.unreachable(err)
	}
	return client, nil
}

// secure returns how to connect by --protocol.
func (f *brokerFlags) secure() (opts []kgo.Opt, err error) {
	if f.Protocol.tls() {
		trust, err := f.trust()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(trust))
	}
	if f.Protocol.sasl() {
		name, password, err := f.who()
		if err != nil {
			return nil, err
		}
		if name != "" {
			return append(opts, kgo.SASL(scram.Auth{User: name, Pass: password}.AsSha256Mechanism(), scram.Auth{User: name, Pass: password}.AsSha512Mechanism())), nil
		}
		id, ok := apikey.IDOf(f.APIKey)
		if !ok {
			return nil, usage(fmt.Errorf("--protocol %s needs an API key, or a user", f.Protocol), "set WEIR_API_KEY to the secret that `weir key create` printed, or give --user and --password-file")
		}
		opts = append(opts, kgo.SASL(plain.Auth{User: id, Pass: f.APIKey}.AsMechanism()))
	}
	return opts, nil
}

func (f *brokerFlags) unreachable(err error) error {
	return unreachable(fmt.Errorf("no answer from a Kafka broker at %s: %w", strings.Join(f.Bootstrap, ", "), cause(err)),
		"start one with `weir serve`, or give the address of another with --bootstrap HOST:PORT")
}

// admin is connect for commands that only ask and change settings.
func (f *brokerFlags) admin(ctx context.Context) (*kadm.Client, error) {
	client, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(min(time.Duration(f.Timeout).Milliseconds(), 1<<31-1)))
	return admin, nil
}

// answer turns what a broker said about a topic or group into an error with an exit code and a
// hint.
func (f *brokerFlags) answer(ctx context.Context, tried string, err error, message string) error {
	var network net.Error
	var broker *kerr.Error
	var done *problem
	switch {
	case err == nil, errors.As(err, &done):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &broker):
		text, hint := strings.ToLower(strings.TrimSuffix(broker.Description, ".")), hints[broker.Code]
		if message != "" {
			text = message
		}
		if message != "" && broker.Code == kerr.InvalidTopicException.Code {
			hint = "" // the broker says what is wrong, and it need not be the name's letters
		}
		return failed(fmt.Errorf("%s: %s (%s)", tried, text, broker.Message), hint)
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return f.unreachable(fmt.Errorf("%s: %w", tried, err))
	}
	return fmt.Errorf("%s: %w", tried, err)
}

// hints says what to do about a broker's answer.
var hints = map[int16]string{
	kerr.ClusterAuthorizationFailed.Code: "the user has no right to write; or the broker only reads its store, because it runs with --read-only: write to one that does not",
	kerr.GroupAuthorizationFailed.Code:   "the user has no right to the group; or the broker only reads its store, because it runs with --read-only: use one that does not",
	kerr.UnknownTopicOrPartition.Code:    "`weir topic list` lists the topics; `weir topic create NAME` creates one",
	kerr.TopicAlreadyExists.Code:         "`weir topic describe NAME` shows it; with --if-not-exists the command succeeds if the topic exists",
	kerr.NonEmptyGroup.Code:              "stop the group's members first; `weir group describe NAME` lists them",
	kerr.GroupIDNotFound.Code:            "`weir group list` lists the groups",
	kerr.InvalidTopicException.Code:      "a name has 1 to 249 letters, digits, dots, hyphens and underscores",
	kerr.MessageTooLarge.Code:            "raise the topic's limit with `weir topic alter NAME --config max.message.bytes=BYTES`",
}

// cause finds the part of a client's error that a person can use: what the operating system said.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return err
}
