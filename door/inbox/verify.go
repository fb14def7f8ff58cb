package inbox

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store/mysql"
	"github.com/weir-log/weir/use/group"
)

// Verify checks the positions of weir_consume, on MariaDB and MySQL. It needs no Attach.
func Verify() verify.Check { return group.VerifyPositions("weir_position", readPositions) }

// positionsOnce bounds the positions that one statement reads.
const positionsOnce = 1000

func readPositions(ctx context.Context, store eventlog.Store, visit func([]group.SQLPosition) error) error {
	if _, is := eventlog.As[*mysql.Store](store); !is {
		return nil
	}
	db := databaseOf(store, noSet)
	there := int64(0)
	err := db.query(ctx, func(row []any) error {
		there = row[0].(int64)
		return nil
	}, db.exists("weir_position"))
	if err != nil || there == 0 {
		return err
	}
	last := group.SQLPosition{Group: "", TopicPartition: group.TopicPartition{Partition: -1}}
	for {
		var page []group.SQLPosition
		err := db.query(ctx, func(row []any) (err error) {
			at := group.SQLPosition{Group: text(row[0])}
			at.Topic, err = eventlog.ParseTopicID(text(row[1]))
			at.Partition, at.Offset = int32(row[2].(int64)), eventlog.Offset(row[3].(int64))
			page, last = append(page, at), at
			return err
		}, fmt.Sprintf("SELECT consumer, topic_id, partition_number, next_offset FROM weir_position WHERE (consumer, topic_id, partition_number) > (_utf8mb4 X'%x', '%s', %d) ORDER BY consumer, topic_id, partition_number LIMIT %d",
			last.Group, last.Topic, last.Partition, positionsOnce))
		if err != nil {
			return fmt.Errorf("read weir_position: %w", err)
		}
		if err := visit(page); err != nil || len(page) < positionsOnce {
			return err
		}
	}
}
