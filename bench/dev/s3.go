package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/s3test"
)

const (
	s3Put    = 30 * time.Millisecond // added to each PUT
	s3Linger = 10 * time.Millisecond
)

// runS3 measures weir on versitygw behind a proxy that delays each PUT.
func runS3(ctx context.Context, b *bench) error {
	server, err := s3test.Launch(b.dir)
	if err != nil {
		return err
	}
	defer server.Close()
	bucket, err := server.Bucket()
	if err != nil {
		return err
	}
	proxy, err := s3test.LaunchProxy(withOptions(bucket, "linger", s3Linger.String(), "poll", "1s"))
	if err != nil {
		return err
	}
	defer proxy.Close()
	proxy.Faults(s3test.SlowPuts(s3Put))
	w := &broker{store: proxy.URL(), closeStore: func() {}, kafka: freePort(), http: freePort(), log: filepath.Join(b.dir, "s3.log")}
	if err := w.run(ctx, b.weir); err != nil {
		return err
	}
	defer func() { w.close() }()
	fmt.Println("| what | result |\n| --- | --- |")
	for range b.runs {
		rate, err := fillKafka(ctx, w.kafka, "throughput", time.Now().Add(b.load.length), 1<<62)
		if err != nil {
			return err
		}
		fmt.Printf("| a Kafka producer, 1 KiB | %.0f MB/s |\n", rate/1e6)
	}
	if err := w.stop(); err != nil {
		return err
	}
	for range b.runs {
		if err := b.barePuts(ctx, proxy.URL()); err != nil {
			return err
		}
		for _, callers := range []int{1200, 500} {
			if err := b.s3Callers(ctx, proxy.URL(), callers); err != nil {
				return err
			}
		}
	}
	proxy.Faults(nil) // it may be filled and read fast
	w.kafka, w.http = freePort(), freePort()
	if err := w.run(ctx, b.weir); err != nil {
		return err
	}
	wanted := int64(b.load.gib) << 30
	if _, err := fillKafka(ctx, w.kafka, "history", time.Now().Add(time.Hour), wanted); err != nil {
		return err
	}
	if err := w.stop(); err != nil {
		return err
	}
	w.store = withOptions(bucket, "linger", s3Linger.String(), "poll", "1s") // the proxy would copy each byte twice
	if err := w.run(ctx, b.weir); err != nil {
		return err
	}
	fmt.Printf("| start on %d GiB | ready after %d ms |\n", b.load.gib, w.started.Milliseconds())
	before, err := w.s3Requests(ctx)
	if err != nil {
		return err
	}
	rate, err := drainKafka(ctx, w.kafka, "history", wanted)
	if err != nil {
		return err
	}
	after, err := w.s3Requests(ctx)
	if err != nil {
		return err
	}
	_, peak := w.rss()
	fmt.Printf("| reading %d GiB with nothing cached | %.0f MB/s, %d GETs, %d LISTs, at most %.0f MiB of memory |\n", b.load.gib, rate/1e6, after["get"]-before["get"], after["list"]-before["list"], peak)
	return nil
}

// barePuts measures what a put itself takes: of as much as a flush of 1,200 events has, one after
// the other.
func (b *bench) barePuts(ctx context.Context, address string) error {
	bucket, err := url.Parse(address)
	if err != nil {
		return err
	}
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sdk.NewFromConfig(settings, func(o *sdk.Options) {
		o.BaseEndpoint, o.Region, o.UsePathStyle = aws.String(bucket.Query().Get("endpoint")), bucket.Query().Get("region"), true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired // as weir does
	})
	body := noise(1200*eventSize, 1)
	got, err := pace{callers: 1, length: b.load.length}.run(ctx, func(_, n int, _ time.Time) error {
		_, err := client.PutObject(ctx, &sdk.PutObjectInput{Bucket: &bucket.Host, Key: aws.String(fmt.Sprintf("bare/%d", n)), Body: bytes.NewReader(body)})
		return err
	})
	if err := errors.Join(err, got.clean()); err != nil {
		return err
	}
	fmt.Printf("| a PUT by itself, %d KiB | p50 %s, p99 %s |\n", len(body)>>10, millis(got.took, 50), millis(got.took, 99))
	return nil
}

// s3Callers measures callers of the Go library with one event each at a time.
func (b *bench) s3Callers(ctx context.Context, address string, callers int) error {
	w, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return err
	}
	defer w.Close(context.WithoutCancel(ctx))
	if err := w.EnsureTopic(ctx, weir.Topic{Name: "library", Partitions: 4}); err != nil {
		return err
	}
	sent := newSender(w, eventSize, callers)
	got, err := pace{callers: callers, warmUp: 2 * time.Second, length: b.load.length}.run(ctx, sent.publish)
	if err := errors.Join(err, got.clean()); err != nil {
		return err
	}
	allowed := float64(callers) / (s3Linger + s3Put).Seconds()
	fmt.Printf("| %d callers, one event each | %.0f events/s, %.2f of what linger and PUT allow; p50 %s, p99 %s |\n", callers, got.perSecond, got.perSecond/allowed, millis(got.took, 50), millis(got.took, 99))
	return nil
}

// fillKafka produces records of 1 KiB into 16 partitions of a topic, until the time or so many
// bytes, and returns the bytes a second that were acknowledged.
func fillKafka(ctx context.Context, address, topic string, until time.Time, most int64) (float64, error) {
	const size = 1024
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(40_000),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 16, 1, nil, topic); err != nil && !strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS") {
		return 0, err
	}
	value := noise(size, 1)
	var acked atomic.Int64
	var failed atomic.Pointer[error]
	began := time.Now()
	for sent := int64(0); sent < most && time.Now().Before(until) && failed.Load() == nil; sent += size {
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
				return
			}
			acked.Add(size)
		})
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(acked.Load()) / time.Since(began).Seconds(), nil
}

// drainKafka consumes so many bytes of values from the beginning of a topic, and returns the bytes
// a second.
func drainKafka(ctx context.Context, address, topic string, bytes int64) (float64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	began := time.Now()
	for seen := int64(0); seen < bytes; {
		got := client.PollFetches(ctx)
		if err := got.Err(); err != nil {
			return 0, err
		}
		got.EachRecord(func(r *kgo.Record) { seen += int64(len(r.Value)) })
	}
	return float64(bytes) / time.Since(began).Seconds(), nil
}

// s3Requests reads weir's count of requests to S3, by kind.
func (w *broker) s3Requests(ctx context.Context) (map[string]int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	counts := map[string]int64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, is := strings.CutPrefix(lines.Text(), `weir_s3_requests_total{kind="`)
		if !is {
			continue
		}
		kind, number, _ := strings.Cut(rest, `"} `)
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("the metrics have the line %q: %w", lines.Text(), err)
		}
		counts[kind] = int64(n)
	}
	if len(counts) == 0 {
		return nil, errors.New("the metrics do not have weir_s3_requests_total")
	}
	return counts, nil
}

func withOptions(address string, namesAndValues ...string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // the server made it
	}
	options := u.Query()
	for i := 0; i < len(namesAndValues); i += 2 {
		options.Set(namesAndValues[i], namesAndValues[i+1])
	}
	u.RawQuery = options.Encode()
	return u.String()
}
