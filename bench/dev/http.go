package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// eventSize is the size of an event's value where the doors are compared: with its key, about 130
// bytes.
const eventSize = 120

// runHTTP posts events, one a request, over connections that stay open.
func runHTTP(ctx context.Context, b *bench) error {
	const connections, warmUp = 500, 2 * time.Second
	fmt.Println("| store | requests/s | p50 | p99 | max | failed | stored as acknowledged | memory |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		for range b.runs {
			w, err := b.start(ctx, store)
			if err != nil {
				return err
			}
			err = func() error {
				if err := createTopic(ctx, w.kafka, "http", 4); err != nil {
					return err
				}
				p, acknowledged, err := post(ctx, w.http, pace{callers: connections, warmUp: warmUp, length: b.load.length})
				if err != nil {
					return err
				}
				stored, err := w.records(ctx, "http")
				if err != nil {
					return err
				}
				_, peak := w.rss()
				fmt.Printf("| %s | %.0f | %s | %s | %s | %d | %s | %.0f MiB |\n", store, p.perSecond,
					millis(p.took, 50), millis(p.took, 99), millis(p.took, 100), p.failed, agree(stored, acknowledged), peak)
				return p.clean()
			}()
			w.close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// agree says whether the log holds what was acknowledged, no more and no less.
func agree(stored, acknowledged int64) string {
	if stored == acknowledged {
		return fmt.Sprintf("yes, %d", stored)
	}
	return fmt.Sprintf("NO: %d stored, %d acknowledged", stored, acknowledged)
}

func post(ctx context.Context, address string, p pace) (all paced, acknowledged int64, err error) {
	callers := make([]*poster, p.callers)
	for i := range callers {
		if callers[i], err = newPoster(address, "http", i); err != nil {
			return paced{}, 0, err
		}
		defer callers[i].conn.Close()
	}
	var acks atomic.Int64
	all, err = p.run(ctx, func(caller, _ int, _ time.Time) error {
		if err := callers[caller].post(); err != nil {
			return err
		}
		acks.Add(1)
		return nil
	})
	return all, acks.Load(), err
}

// poster is one connection. It shares the processors with the server, so it does no more than it
// must: its request is always the same bytes, and of the answer it reads the status and the length.
type poster struct {
	conn    net.Conn
	answer  *bufio.Reader
	request []byte
}

func newPoster(address, topic string, seed int) (*poster, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	var request bytes.Buffer
	fmt.Fprintf(&request, "POST /v1/topics/%s/events?key=key-%d HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		topic, seed, address, eventSize)
	request.Write(noise(eventSize, seed))
	return &poster{conn: conn, answer: bufio.NewReaderSize(conn, 1024), request: request.Bytes()}, nil
}

func (p *poster) post() error {
	if _, err := p.conn.Write(p.request); err != nil {
		return err
	}
	line, err := p.answer.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200") {
		return fmt.Errorf("the answer begins with %q", line)
	}
	status := string(line[9:12])
	length := -1
	for {
		line, err := p.answer.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte(": ")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("the answer has no Content-Length, which this client needs")
	}
	if status == "200" {
		_, err = p.answer.Discard(length)
		return err
	}
	body, err := p.answer.Peek(min(length, p.answer.Size()))
	return errors.Join(fmt.Errorf("status %s: %s", status, body), err)
}

// createTopic makes a topic through the Kafka door.
func createTopic(ctx context.Context, address, topic string, partitions int32) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// records is how many records a topic holds, in all partitions.
func (w *broker) records(ctx context.Context, topic string) (n int64, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	ends.Each(func(o kadm.ListedOffset) {
		err = errors.Join(err, o.Err)
		n += o.Offset
	})
	return n, err
}
