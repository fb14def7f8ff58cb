package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// forgetEvery is how often a mover looks for positions of deleted topics, and on shards for
	// keys of deleted partitions.
	forgetEvery = time.Hour
	// forgetMost bounds how many positions one statement deletes.
	forgetMost = 1000
)

// positions is a database in which consumers have positions.
type positions interface {
	// positions counts them, by the ids of their topics, and returns the incarnation in which they
	// are: see database.
	positions(ctx context.Context) (of map[string]int64, in string, err error)
	// forgetPositions deletes up to forgetMost positions in a topic, except those that open
	// transactions have locked.
	forgetPositions(ctx context.Context, in, topic string) error
}

// forgetPositions deletes the positions in topics that are gone. A topic is there before a position
// in it, and its id is never used again: so a topic that is not there after its positions were read
// is gone for good. What is left is deleted an hour later.
func (m *Mover) forgetPositions(ctx context.Context) {
	m.prunedAt = time.Now()
	err := func() error {
		db, has := m.door.database.(positions)
		if !has {
			return nil
		}
		all, in, err := db.positions(ctx)
		if err != nil || len(all) == 0 {
			return err
		}
		if err := m.log.RefreshTopics(ctx); err != nil {
			return err
		}
		for topic, n := range all {
			id, err := eventlog.ParseTopicID(topic)
			if err != nil {
				continue // weir has not written it
			}
			if _, err := m.log.TopicByID(id); !errors.Is(err, eventlog.ErrUnknownTopic) {
				continue
			}
			for ; n > 0; n -= forgetMost {
				if err := db.forgetPositions(ctx, in, topic); err != nil {
					return fmt.Errorf("topic %s: %w", topic, err)
				}
			}
		}
		return nil
	}()
	if err != nil && ctx.Err() == nil {
		m.logger.Info("cannot delete positions of deleted topics; trying again later", "again", forgetEvery, "err", err)
	}
}

func (m mysqlTables) positions(ctx context.Context) (of map[string]int64, in string, err error) {
	of = make(map[string]int64)
	in, err = m.queryIn(ctx, func(row []any) error {
		of[text(row[0])] = row[1].(int64)
		return nil
	}, "SELECT topic_id, COUNT(*) FROM weir_position GROUP BY topic_id")
	return of, in, err
}

func (m mysqlTables) forgetPositions(ctx context.Context, in, topic string) error {
	// DELETE knows no SKIP LOCKED. The limit keeps the inner table a table of its own.
	return m.session.ExecIn(ctx, in, fmt.Sprintf(`
		DELETE p FROM (
			SELECT consumer, topic_id, partition_number FROM weir_position WHERE topic_id = ? LIMIT %d FOR UPDATE SKIP LOCKED
		) AS gone
		STRAIGHT_JOIN weir_position AS p
			ON p.consumer = gone.consumer AND p.topic_id = gone.topic_id AND p.partition_number = gone.partition_number`, forgetMost), topic)
}
