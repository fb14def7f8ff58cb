package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// selectIncarnation asks which life of which server this is (life is 0 in a life that has no number
// yet), when the tables were created (a logical backup creates them again), the epoch, whether the
// server refuses writes, and the version of the tables. The life alone does not name a server: a
// replica has a copy of weir_life.
const selectIncarnation = `SELECT coalesce((SELECT id FROM weir_life WHERE one = 1), 0), concat(@@hostname, ':', @@port),
	coalesce((SELECT unix_timestamp(create_time) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'weir_partition'), 0),
	coalesce((SELECT version FROM weir_state WHERE k = '` + eventlog.EpochKey + `'), 0), @@global.read_only NOT IN ('0', 'OFF'),
	coalesce((SELECT max(version) FROM weir_migration), 0)`

type incarnation struct {
	life, tables, epoch int64
	server              string
	readOnly            bool
}

// scan returns eventlog.ErrUpgraded if a newer weir has upgraded the tables. Commits, trims, sweeps
// and reads all read the incarnation, so each of them ends with this error then.
func (in *incarnation) scan(row *sql.Rows) error {
	var version int
	if err := row.Scan(&in.life, &in.server, &in.tables, &in.epoch, &in.readOnly, &version); err != nil {
		return err
	}
	if newest := newest(); version > newest {
		return storerow.Newer("tables", version, newest)
	}
	return nil
}

// inMark returns the incarnation as a Mark has it.
func (in incarnation) inMark() eventlog.Incarnation {
	return eventlog.Incarnation{Store: fmt.Sprintf("server %s, life %d, tables of %d", in.server, in.life, in.tables), Epoch: eventlog.Version(in.epoch)}
}

// lastIncarnation is the incarnation that Changes returned last.
type lastIncarnation struct {
	mu   sync.Mutex // guards told
	told incarnation
}

func (l *lastIncarnation) tell(in incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = in
}

// check returns ErrRewound if the store is in another incarnation than Changes returned last.
// Before the first Changes, nothing is checked.
func (l *lastIncarnation) check(in incarnation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	in.readOnly = false
	if l.told != (incarnation{}) && l.told != in {
		return fmt.Errorf("%w: it was in %v, and is in %v", eventlog.ErrRewound, l.told.inMark(), in.inMark())
	}
	return nil
}

// numberLife gives the server's life a number, unless another process has.
func (s *Store) numberLife(ctx context.Context) error {
	_, err := s.commits.ExecContext(ctx, "INSERT IGNORE INTO weir_life VALUES (1, ?)", 1+rand.Int64N(1<<62))
	return err
}
