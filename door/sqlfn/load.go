package sqlfn

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// load is rows of the inbox, by partition.
type load struct {
	partitions []*partitionRows // in the order of their first rows
	lost       partitionRows    // rows of deleted topics, which are dropped
	odd        int              // number of rows that stay in the inbox, because they are invalid or their partition does not exist
	why        error            // the error of the first row that stays
}

// partitionKey is a partition of a topic, whether it exists or not.
type partitionKey struct {
	topic     eventlog.TopicID
	partition int32
}

// partitionRows is the rows that go to one partition, in order.
type partitionRows struct {
	topic     eventlog.Topic
	partition int32
	ids       []int64
	wanted    map[int64]bool // those ids that somebody has: row.wanted
	records   []batch.Record
	since     time.Time // when the oldest row was published
}

func (p *partitionRows) want(id int64) {
	if p.wanted == nil {
		p.wanted = make(map[int64]bool)
	}
	p.wanted[id] = true
}

// addRuns adds the wanted rows to the runs of a move. The batches of the move from number on have
// all rows of p, in their order.
func (p *partitionRows) addRuns(runs []enqueuedRun, number int, batches []eventlog.Batch) []enqueuedRun {
	if len(p.wanted) == 0 {
		return runs
	}
	i := 0
	for n, b := range batches {
		for record := range int(b.Records) {
			if p.wanted[p.ids[i]] {
				runs = addRun(runs, p.ids[i], queue.Going{Batch: number + n, Record: record}, time.Time{})
			}
			i++
		}
	}
	return runs
}

// all lists the partitions' rows, and the rows to drop.
func (l *load) all() []*partitionRows {
	return append(l.partitions[:len(l.partitions):len(l.partitions)], &l.lost)
}

// load sorts rows by partition. Rows of a deleted topic are dropped, as its records were.
func (m *Mover) load(ctx context.Context, rows []row) (*load, error) {
	l := &load{}
	byPartition := make(map[eventlog.Partition]*partitionRows)
	for i := range rows {
		row := &rows[i]
		if row.group != "" || row.isMessage() || row.isAppend() || row.isCreation() {
			continue // a position, or a row for a queue, a stream or a creation
		}
		topic, found, err := m.topic(ctx, row)
		if err != nil {
			return nil, err
		}
		if !found {
			l.lost.ids = append(l.lost.ids, row.id)
			continue
		}
		headers, n, err := m.place(topic, row)
		to := partitionKey{topic.ID, n}
		if m.blocked[to] || m.holds(row) {
			m.hold(row)
			continue // an earlier row of the partition or of the key was skipped, so this one waits; both are retried together
		}
		if err != nil {
			m.blocked[to] = n >= 0
			l.odd++
			l.why = cmp.Or(l.why, fmt.Errorf("row %d of weir.inbox: %w", row.id, err))
			continue
		}
		p := topic.Partitions[n]
		at := byPartition[p]
		if at == nil {
			at = &partitionRows{topic: topic, partition: n, since: row.time}
			byPartition[p] = at
			l.partitions = append(l.partitions, at)
		}
		at.ids = append(at.ids, row.id)
		if row.wanted {
			at.want(row.id)
		}
		at.records = append(at.records, batch.Record{
			Timestamp: row.time.UnixMilli(), Key: row.key, Value: row.value, Headers: headers,
		})
	}
	if n := len(l.lost.ids); n > 0 {
		m.cfg.Logger.Warn("events published by SQL are dropped: their topic was deleted before they were moved into it", "events", n)
	}
	if l.odd > 0 {
		m.skip("cannot move events published by SQL into the log; they stay in weir.inbox, and later events of their partition wait for them; trying again later", "events", l.odd, "err", l.why)
	}
	return l, nil
}

// deletedMax is how many deleted topics are remembered.
const deletedMax = 1000

// topic finds the topic of a row; false if it was deleted. If this process does not know the topic
// or the partition, it reads the catalog again.
func (m *Mover) topic(ctx context.Context, row *row) (t eventlog.Topic, found bool, err error) {
	t, err = m.log.TopicByID(row.topic)
	if err == nil && int(row.partition) < len(t.Partitions) {
		return t, true, nil
	}
	if m.deleted[row.topic] {
		return t, false, nil
	}
	if err := m.log.RefreshTopics(ctx); err != nil {
		return t, false, err
	}
	if t, err = m.log.TopicByID(row.topic); err != nil {
		if len(m.deleted) >= deletedMax {
			clear(m.deleted)
		}
		m.deleted[row.topic] = true
		return t, false, nil
	}
	return t, true, nil
}

// place parses a row's headers and chooses its partition. With an error, p is the partition that
// does not exist, or negative if the row is invalid. weir.publish writes no invalid rows, and no
// other row waits for one.
func (m *Mover) place(topic eventlog.Topic, row *row) (headers []batch.RecordHeader, p int32, err error) {
	if headers, err = publish.ParseHeaders(row.headers); err != nil {
		return nil, -1, err
	}
	n, by := len(topic.Partitions), "the event asks for"
	if p = row.partition; p < 0 {
		event := &publish.Event{Topic: topic.Name, Key: row.key, Value: row.value, Headers: headers, Time: row.time}
		if err := recovered.Do(func() error { p = m.cfg.partitioner(event, n); return nil }); err != nil {
			return nil, -1, fmt.Errorf("the partitioner: %w", err)
		}
		by = "the partitioner chose"
	}
	if p < 0 || int(p) >= n {
		return nil, p, fmt.Errorf("%s partition %d of topic %q, which has %d, numbered from 0", by, p, topic.Name, n)
	}
	return headers, p, nil
}
