package main

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/judge"
)

var errAnswer = errors.New("the answer does not fit the request")

// rawProducer is an idempotent producer that counts its sequence numbers itself: it repeats
// batches, through the other broker too, leaves numbers out, and goes back to an epoch that it
// left. It sees what no client shows: P2 to P5.
type rawProducer struct {
	w       *world
	session string
	random  *rand.Rand
	id      int64 // -1: it needs one
	epoch   int16
	next    map[judge.Tail]int32 // sequence numbers of this epoch, where a batch of it was acknowledged
}

func openRaw(w *world, session string, random *rand.Rand) (send, error) {
	p := &rawProducer{w: w, session: session, random: random, id: -1}
	return p.send, nil
}

// produced is the answer of a broker to one batch.
type produced struct {
	code int16
	base int64
	err  error // there was none
}

func (p produced) is(errs ...*kerr.Error) bool {
	return p.err == nil && slices.ContainsFunc(errs, func(e *kerr.Error) bool { return e.Code == p.code })
}

// taken says that the batch is in the log, now or from an earlier try.
func (p produced) taken() bool {
	return p.err == nil && p.code == 0 || p.is(kerr.DuplicateSequenceNumber)
}

func (p *rawProducer) send(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
	ctx = context.WithoutCancel(ctx)
	l := p.w.model.Living(records[0].Topic)
	if l == nil || p.begin(ctx) != nil {
		pause(ctx, 50*time.Millisecond)
		return judge.Refused, nil // nothing was sent
	}
	if len(p.next) > 0 && p.random.IntN(20) == 0 {
		p.epoch++ // as KIP-360 lets a producer do by itself
		p.next = map[judge.Tail]int32{}
	}
	at := judge.Tail{Life: l, Partition: int32(p.random.IntN(2))}
	if l.Name == brief {
		at.Partition = 0
	}
	raw := p.batchOf(records, p.epoch, p.next[at])
	said, tries := p.until(ctx, at, raw)
	switch {
	case said.taken():
		p.next[at] += int32(len(records))
		if said.base < 0 {
			return judge.Done, nil
		}
		p.misuse(ctx, at, raw, said)
		return judge.Done, placesFrom(at.Partition, said.base, len(records))
	case said.err != nil || tries > 1:
		p.id = -1 // whether the numbers were used is not known
		return judge.Unknown, nil
	}
	p.id = -1
	return judge.Refused, nil
}

func placesFrom(partition int32, base int64, n int) (places []judge.Place) {
	for i := range n {
		places = append(places, judge.Place{Partition: partition, Offset: base + int64(i)})
	}
	return places
}

// until sends a batch until a broker says what became of it, or that it will not have it.
func (p *rawProducer) until(ctx context.Context, at judge.Tail, raw []byte) (said produced, tries int) {
	for tries = 1; ; tries++ {
		said = p.produce(ctx, p.w.brokers[p.random.IntN(2)], at, raw)
		if said.taken() || tries == triesMax || said.is(kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition) {
			return said, tries
		}
		if said.err == nil && said.code != 0 { // it is not known which other errors mean that nothing happened
			said.err = kerr.ErrorForCode(said.code)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// misuse sends, after a batch was acknowledged, requests that a broker must see through.
func (p *rawProducer) misuse(ctx context.Context, at judge.Tail, raw []byte, first produced) {
	m, other := p.w.model, p.w.brokers[p.random.IntN(2)]
	about := []string{at.Life.Name, p.session, other.name}
	switch p.random.IntN(10) {
	case 0, 1: // the same batch again
		again := p.produce(ctx, other, at, raw)
		p.w.counts.add("batches repeated by " + p.session)
		if again.taken() && again.base >= 0 && again.base != first.base {
			m.Broken("P2", about, "%s sent one batch twice: it was acknowledged at offset %d of %s/%d, and then by %s at %d", p.session, first.base, at.Life, at.Partition, other.name, again.base)
		}
	case 2: // a number is left out
		extra := m.Invoke(p.session, at.Life.Name, 1, false)
		said := p.produce(ctx, other, at, p.batchOf(extra, p.epoch, p.next[at]+1+p.random.Int32N(5)))
		p.w.counts.add("numbers left out by " + p.session)
		p.refuses(said, extra, at, "P3", "a batch after numbers that were left out", other)
	case 3: // an epoch that it left, with numbers that no batch had: the repetition of an old one would be answered as such
		if p.epoch == 0 {
			return
		}
		extra := m.Invoke(p.session, at.Life.Name, 1, false)
		said := p.produce(ctx, other, at, p.batchOf(extra, p.epoch-1, 1<<20))
		p.w.counts.add("old epochs of " + p.session)
		p.refuses(said, extra, at, "P4", "a batch of an epoch that the producer had left", other)
	}
}

// refuses sees that a broker did not take a batch.
func (p *rawProducer) refuses(said produced, extra []*judge.Record, at judge.Tail, invariant, what string, b *broker) {
	switch {
	case said.err != nil:
		p.w.model.End(extra, judge.Unknown, nil)
	case said.taken():
		p.w.model.End(extra, judge.Done, placesFrom(at.Partition, said.base, len(extra)))
		p.w.model.Broken(invariant, []string{at.Life.Name, p.session, b.name}, "%s took %s of %s, producer %d, into %s/%d at offset %d", b.name, what, p.session, p.id, at.Life, at.Partition, said.base)
	case said.is(kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition):
		p.w.model.End(extra, judge.Refused, nil)
	default:
		p.w.model.End(extra, judge.Unknown, nil)
	}
}

// begin sees to it that there is a producer id.
func (p *rawProducer) begin(ctx context.Context) error {
	if p.id >= 0 {
		return nil
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := request(ctx, p.w.brokers[p.random.IntN(2)], req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return err
	}
	p.id, p.epoch, p.next = resp.ProducerID, resp.ProducerEpoch, map[judge.Tail]int32{}
	p.w.model.ProducerID(p.session, p.id)
	return nil
}

// batchOf is a batch of an idempotent producer.
func (p *rawProducer) batchOf(records []*judge.Record, epoch int16, sequence int32) []byte {
	var list []batch.Record
	for _, r := range records {
		rec := batch.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(r.Value)}
		if r.Topic == old {
			rec.Timestamp = longAgo.UnixMilli()
		}
		list = append(list, rec)
	}
	raw, err := batch.Seal(list, batch.None)
	if err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(raw[43:], uint64(p.id))
	binary.BigEndian.PutUint16(raw[51:], uint16(epoch))
	binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// produce sends a batch to one broker, once.
func (p *rawProducer) produce(ctx context.Context, b *broker, at judge.Tail, raw []byte) produced {
	client, err := b.kafkaClient()
	if err != nil {
		return produced{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = at.Partition, slices.Clone(raw)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = at.Life.Name, at.Life.ID, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return produced{err: err}
	}
	said, is := resp.(*kmsg.ProduceResponse)
	if !is || len(said.Topics) != 1 || len(said.Topics[0].Partitions) != 1 {
		return produced{err: errAnswer}
	}
	answer := said.Topics[0].Partitions[0]
	return produced{code: answer.ErrorCode, base: answer.BaseOffset}
}

// judgeProducers reads the batches that topics have at the end: P3, the numbers of a producer in
// one epoch have no hole; P4, after an epoch comes none that is older.
func (w *world) judgeProducers(ctx context.Context, l *judge.Life) error {
	t, is := w.topicNow(ctx, l.Name)
	if !is {
		return nil
	}
	for n, p := range t.Partitions {
		last := map[int64]batch.Header{} // by producer
		bounds, err := w.audit.Bounds(ctx, p)
		if err == nil {
			err = bounds[0].Err
		}
		if err != nil {
			return err
		}
		for at := bounds[0].Bounds.First; at < bounds[0].Bounds.Next; {
			got, err := w.audit.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: at, MaxBytes: 1 << 20}}})
			if err == nil {
				err = got[0].Err
			}
			if err != nil {
				return err
			}
			if len(got[0].Batches) == 0 {
				break
			}
			for _, b := range got[0].Batches {
				h, err := batch.Parse(b.Bytes)
				if err != nil {
					return err
				}
				at = b.Base + eventlog.Offset(h.LastOffsetDelta) + 1
				if h.ProducerID >= 0 {
					w.model.JudgeSequence(l, int32(n), b.Base, last[h.ProducerID], h)
					last[h.ProducerID] = h
				}
			}
		}
	}
	return nil
}
