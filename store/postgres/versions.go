package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A newer weir may upgrade the schema under a running process. The process finds that when it polls
// (Changes), or when a statement does not fit what is there any more. From then on it does nothing:
// what it would write may not mean the same to the newer one.

// pollVersions adds a row for each part of the schema that is newer than this binary. The row has
// three numbers: -1 minus the part's place in parts, counted from 1; the version that is there; and
// the newest version that this binary knows.
const pollVersions = `
	UNION ALL
	SELECT -1 - p.nth, max(m.number), p.newest, 0
	FROM unnest($1::text[], $2::int[]) WITH ORDINALITY AS p(part, newest, nth)
	JOIN weir.migration AS m ON m.part = p.part
	GROUP BY p.nth, p.newest HAVING max(m.number) > p.newest`

// used notes that this process uses a part of the schema.
func (s *Store) used(p Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.parts {
		if name == p.Name {
			return
		}
	}
	s.parts, s.newest = append(s.parts, p.Name), append(s.newest, int32(p.newest()))
}

// versions returns the parts that this process uses, and the newest version of each that it knows.
func (s *Store) versions() (parts []string, newest []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[:len(s.parts):len(s.parts)], s.newest[:len(s.newest):len(s.newest)]
}

// fits returns eventlog.ErrUpgraded if err says that a statement does not fit the schema, and a
// newer weir has upgraded the schema. Otherwise it returns err.
func (s *Store) fits(ctx context.Context, err error) error {
	if c := code(err); c == "" || isTransient(err) || strings.HasPrefix(c, "40") || strings.HasPrefix(c, "WE") {
		return err // no error of a statement that does not fit the schema: those are 42883, 42804, 0A000 (a cached plan) and XX000 (a dropped function), for example
	}
	parts, newest := s.versions()
	rows, failed := s.readPool.Query(ctx, `SELECT * FROM (SELECT 0::bigint, 0, 0, 0 WHERE false`+pollVersions+`) AS v`, parts, newest)
	if failed != nil {
		return err
	}
	var nth, version, known, none int64
	newer := error(nil)
	if _, failed := pgx.ForEachRow(rows, []any{&nth, &version, &known, &none}, func() error {
		newer = s.layout.Found(parts[-nth-2], int(version), int(known))
		return nil
	}); failed == nil && newer != nil {
		return newer
	}
	return err
}
