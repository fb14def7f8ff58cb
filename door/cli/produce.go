package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// anyPartition marks a record whose partition the key decides.
const anyPartition = -1

// bufferMax bounds the bytes that were read and not yet acknowledged. Reading waits beyond it.
const bufferMax = 64 << 20

type produceCmd struct {
	brokerFlags
	Topic        string   `arg:"" names:"topic" help:"The topic to write to."`
	Input        string   `help:"Format of a line: text, where the line is the value; or json, where it is a record." enum:"text,json" default:"text"`
	Key          *string  `help:"The key of every line." placeholder:"KEY"`
	KeySeparator string   `help:"A line has the key, this separator, and the value. Use $'\\t' for a tab." placeholder:"TEXT"`
	Partition    *int32   `help:"Write to this partition, whatever the key." placeholder:"N"`
	Header       []string `help:"A header for every record. May be given again." placeholder:"NAME=VALUE" sep:"none"`
	Compression  string   `help:"Compression of the batches: ${enum}." enum:"none,gzip,snappy,lz4,zstd" default:"none"`
	LineLimit    size     `help:"The longest line. A longer one is an error." default:"1MiB"`
}

func (produceCmd) Help() string {
	return `Each line of standard input becomes a record. With --input text, the line end (LF or CRLF) is removed, and nothing else is changed.
With --input json, the fields are key, value, headers, partition and timestamp; binary data goes into key_b64, value_b64 and name_b64. The output of
"weir consume --output json" can be used as input. The command stops at the first invalid line; the lines before it are sent.

Examples:

  echo hello | weir produce greetings
  weir produce orders --key-separator=: < orders.txt
  weir consume orders --output json | weir produce orders-copy --input json`
}

func (c *produceCmd) Run(ctx context.Context, t *terminal) error {
	fixed, err := c.fixedHeaders()
	if err != nil {
		return err
	}
	if c.Key != nil && c.KeySeparator != "" {
		return usage(errors.New("--key and --key-separator both set the key"), "give one of them")
	}
	if c.Input == "json" && (c.Key != nil || c.KeySeparator != "") {
		return usage(errors.New("--input json takes the key from each line"), "leave out --key and --key-separator")
	}
	if c.Partition != nil && *c.Partition < 0 {
		return usage(fmt.Errorf("--partition %d is negative", *c.Partition), "leave it out to let the key decide")
	}
	batchMax, err := c.batchMax(ctx)
	if err != nil {
		return err
	}
	client, err := c.connect(ctx,
		kgo.DefaultProduceTopic(c.Topic),
		kgo.RecordPartitioner(byFieldOrKey{}),
		kgo.ProducerBatchCompression(codecs[c.Compression]),
		kgo.ProducerBatchMaxBytes(batchMax),
		kgo.MaxBufferedBytes(bufferMax),
		kgo.AllowAutoTopicCreation(), // the broker decides
		kgo.UnknownTopicRetries(1),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if t.inTTY {
		fmt.Fprintln(t.err, "Reading lines from the terminal. Ctrl-D ends.")
	}
	lines := readLines(t.in, int(min(int64(c.LineLimit), bufferMax)))
	send := newSender(client, t, time.Duration(c.Timeout))
	send.topic, send.codec = c.Topic, batchCodecs[c.Compression]
	defer send.patience.Stop()
	stop := c.sendAll(ctx, lines, send, fixed)
	return c.conclude(ctx, t, send, stop)
}

// batchMax returns how large a batch may be: what the topic allows, or Kafka's default if the topic
// does not exist yet or its settings are not for us to see.
func (c *produceCmd) batchMax(ctx context.Context) (int32, error) {
	const byDefault = 1<<20 + 12 // max.message.bytes
	client, err := c.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	topics, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, c.Topic)
	if err != nil {
		return byDefault, nil // producing says what is wrong
	}
	for _, topic := range topics {
		for _, setting := range topic.Configs {
			if n, err := strconv.ParseInt(setting.MaybeValue(), 10, 32); setting.Key == "max.message.bytes" && err == nil {
				return int32(min(max(n, 512), bufferMax)), nil // franz-go takes no less
			}
		}
	}
	return byDefault, nil
}

// sendAll sends lines until they end, one is wrong, the broker refuses one, or a signal comes; and
// returns why it stopped.
func (c *produceCmd) sendAll(ctx context.Context, lines <-chan line, send *sender, fixed []kgo.RecordHeader) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case l, more := <-lines:
			if !more {
				return nil
			}
			if l.err != nil {
				return fmt.Errorf("line %d: %w", l.number, l.err)
			}
			record, err := c.parse(l.text)
			if err != nil {
				return fmt.Errorf("line %d: %w", l.number, err)
			}
			if record == nil {
				continue
			}
			record.Headers = append(record.Headers, fixed...)
			if !send.record(l.number, record) {
				return nil // send.failure says why
			}
		}
	}
}

// conclude waits until what was sent is answered, even after a signal, and prints how many records
// were acknowledged.
func (c *produceCmd) conclude(ctx context.Context, t *terminal, send *sender, stop error) error {
	ctx = context.WithoutCancel(ctx)
	_ = send.client.Flush(ctx) // fails with ctx only; send's patience bounds it
	send.bar.done()
	done := plural(send.acked.Load(), "record")
	if number, err := send.failure(); err != nil {
		tried := fmt.Sprintf("produce to %q, line %d (%s acknowledged)", c.Topic, number, done)
		if errors.Is(err, kgo.ErrAborting) {
			return c.unreachable(fmt.Errorf("%s: no acknowledgement for %s", tried, time.Duration(c.Timeout)))
		}
		if errors.Is(err, kerr.InvalidTopicException) && eventlog.CheckTopicName(c.Topic) == nil { // so it is not about the name
			return failed(fmt.Errorf("%s: Kafka clients may not append to this topic (%w)", tried, err),
				"if it is a category of streams, append to one with `weir stream append CATEGORY STREAM`")
		}
		return c.answer(ctx, tried, err, "")
	}
	switch {
	case errors.As(stop, &stopped{}):
		fmt.Fprintf(t.err, "weir: interrupted; %s acknowledged\n", done)
		return stop
	case stop != nil:
		return failed(fmt.Errorf("produce to %q: %w (%s acknowledged: all lines before it)", c.Topic, stop, done),
			"correct the line, and send it and the rest again; --line-limit sets how long a line may be")
	}
	fmt.Fprintf(t.err, "%s acknowledged\n", done)
	return nil
}

// parse makes a record of a line. It returns nil for an empty line if lines are JSON.
func (c *produceCmd) parse(text []byte) (*kgo.Record, error) {
	if c.Input == "json" {
		if len(bytes.TrimSpace(text)) == 0 {
			return nil, nil
		}
		record, err := decodeRecord(text)
		if err == nil && c.Partition != nil {
			record.Partition = *c.Partition
		}
		return record, err
	}
	record := &kgo.Record{Value: text, Partition: anyPartition}
	if c.Key != nil {
		record.Key = []byte(*c.Key)
	}
	if c.KeySeparator != "" {
		key, value, found := bytes.Cut(text, []byte(c.KeySeparator))
		if !found {
			return nil, fmt.Errorf("it does not have the key separator %q", c.KeySeparator)
		}
		record.Key, record.Value = key, value
	}
	if c.Partition != nil {
		record.Partition = *c.Partition
	}
	return record, nil
}

func (c *produceCmd) fixedHeaders() ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range c.Header {
		name, value, found := bytes.Cut([]byte(pair), []byte("="))
		if !found || len(name) == 0 {
			return nil, usage(fmt.Errorf("--header %q is not NAME=VALUE", pair), "")
		}
		headers = append(headers, kgo.RecordHeader{Key: string(name), Value: value})
	}
	return headers, nil
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// sender sends records and keeps count of the answers.
type sender struct {
	client   *kgo.Client
	topic    string      // where late sends to
	codec    batch.Codec // of late's batches
	bar      progress
	wait     time.Duration
	patience *time.Timer // gives up on all that was sent and not acknowledged
	unacked  atomic.Int64
	acked    atomic.Int64

	mu     sync.Mutex // guards number and err
	number int64      // of the first line that failed
	err    error
}

func newSender(client *kgo.Client, t *terminal, wait time.Duration) *sender {
	return &sender{client: client, bar: progress{t: t}, wait: wait,
		patience: time.AfterFunc(wait, client.UnsafeAbortBufferedRecords)} // the client sends no more afterwards
}

// record sends one record; it waits while bufferMax bytes are not yet acknowledged. False means
// that an earlier record failed.
func (s *sender) record(number int64, r *kgo.Record) bool {
	if _, err := s.failure(); err != nil {
		return false
	}
	if s.unacked.Add(1) == 1 {
		s.patience.Reset(s.wait)
	}
	if r.Timestamp.UnixMilli() > lastOfClient {
		s.answered(number, s.late(r))
		return true
	}
	s.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) { s.answered(number, err) })
	return true
}

func (s *sender) answered(number int64, err error) {
	s.unacked.Add(-1)
	s.patience.Reset(s.wait)
	if err == nil {
		s.bar.say("%d records acknowledged", s.acked.Add(1))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || number < s.number {
		s.number, s.err = number, err
	}
}

func (s *sender) failure() (line int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number, s.err
}

// byFieldOrKey sends a record to the partition that it names, otherwise to the partition of its
// key, as the client does by default.
type byFieldOrKey struct{}

func (byFieldOrKey) ForTopic(topic string) kgo.TopicPartitioner {
	byKey := kgo.UniformBytesPartitioner(64<<10, true, true, nil).ForTopic(topic)
	return topicByFieldOrKey{byKey.(kgo.TopicBackupPartitioner)}
}

type topicByFieldOrKey struct{ kgo.TopicBackupPartitioner }

func (p topicByFieldOrKey) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != anyPartition || p.TopicBackupPartitioner.RequiresConsistency(r)
}

func (p topicByFieldOrKey) PartitionByBackup(r *kgo.Record, n int, backup kgo.TopicBackupIter) int {
	if r.Partition != anyPartition {
		return int(r.Partition) // out of range fails this record, as it should
	}
	return p.TopicBackupPartitioner.PartitionByBackup(r, n, backup)
}

// line is one line of input, or why there is none.
type line struct {
	number int64 // the first is 1
	text   []byte
	err    error
}

// readLines reads in a goroutine of its own, because a read from a terminal or a pipe cannot be
// cancelled. It ends with the input, at the latest with the process.
func readLines(from io.Reader, limit int) <-chan line {
	lines := make(chan line, 64)
	go func() {
		defer close(lines)
		in := bufio.NewReaderSize(from, 64<<10)
		for number := int64(1); ; number++ {
			text, err := readLine(in, limit)
			if err == io.EOF {
				return
			}
			lines <- line{number, text, err}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// readLine returns the next line without its end, or io.EOF. Input may end without the end of a
// line.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		content := bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		switch {
		case len(content) > limit:
			return nil, fmt.Errorf("it is longer than the limit of %d bytes", limit)
		case err == nil, err == io.EOF && len(text) > 0:
			return content, nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
