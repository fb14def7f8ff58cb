package sqlfn_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// What a transaction said of messages goes with their topic, be it all of the queue's or that of
// one priority. Others' answers are carried.
func TestAnswersForMessagesOfADeletedTopicAreDropped(t *testing.T) {
	for _, c := range []struct {
		topic  string
		levels int
	}{{"mail", 1}, {"mail", 2}, {"mail.p1", 2}} {
		t.Run(fmt.Sprintf("%s of %d", c.topic, c.levels), func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			p, q := startQueuesWith(t, address, true, queue.Settings{Lease: time.Hour, Priorities: c.levels})
			conn := connect(t, address)
			exec(t, conn, `SELECT weir.enqueue('mail', 'hello', priority => n % $1) FROM generate_series(1, 6) n`, c.levels)
			var receipts []string
			for range 6 {
				receipts = append(receipts, claim(t, q).Receipt)
			}
			exec(t, conn, `BEGIN`)
			for i, receipt := range receipts {
				exec(t, conn, `SELECT `+[]string{`weir.ack($1)`, `weir.nack($1, 'no')`, `weir.extend($1, '1 hour')`}[i%3], receipt)
			}
			if err := p.log.DeleteTopic(t.Context(), c.topic); err != nil {
				t.Fatal(err)
			}
			exec(t, conn, `COMMIT`)
			empties(t, address)
		})
	}
}
