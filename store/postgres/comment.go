package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Comments of functions and views are for people who look into the schema: \df+ weir.* of psql and
// other tools show them.

const (
	// internalComment is the comment of each function and view that is not public.
	internalComment = "Internal: for weir itself."
	// commentWidth is how long a line of a comment may be: psql shows the lines one below another.
	commentWidth = 72
)

// comment comments on the functions and views of a part. It also comments on all other functions
// that have no comment yet: SQL of the part may have made them. It costs two trips, and leaves out
// what another role owns.
func (p Part) comment(ctx context.Context, conn *pgx.Conn) error {
	var names, texts []string
	for _, f := range append(p.list("functions"), p.list("views")...) {
		text := internalComment
		if slices.Contains(p.Public, f.name) {
			text = commentOf(f.sql)
		}
		names, texts = append(names, f.name), append(texts, text)
	}
	rows, err := conn.Query(ctx, `
		WITH said AS (SELECT * FROM unnest($1::text[], $2::text[]) AS s(name, text))
		SELECT format('COMMENT ON ROUTINE %s IS %L', r.oid::regprocedure, coalesce(s.text, $3))
		FROM pg_proc AS r LEFT JOIN said AS s ON s.name = r.proname
		WHERE r.pronamespace = 'weir'::regnamespace AND pg_has_role(r.proowner, 'USAGE')
		  AND (s.text IS NOT NULL OR obj_description(r.oid, 'pg_proc') IS NULL)
		UNION ALL
		SELECT format('COMMENT ON VIEW %s IS %L', c.oid::regclass, s.text)
		FROM pg_class AS c JOIN said AS s ON s.name = c.relname
		WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind = 'v' AND pg_has_role(c.relowner, 'USAGE')`,
		names, texts, internalComment)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(statements) == 0 {
		return err
	}
	return run(ctx, conn, strings.Join(statements, ";\n"))
}

// commentOf returns the first paragraph of the comment with which a file begins, in lines of at
// most commentWidth.
func commentOf(sql string) string {
	var words []string
	for line := range strings.Lines(sql) {
		text, is := strings.CutPrefix(line, "--")
		if text = strings.TrimSpace(text); !is || text == "" {
			break
		}
		words = append(words, strings.Fields(text)...)
	}
	var text strings.Builder
	width := 0
	for _, word := range words {
		switch n := len([]rune(word)); {
		case width == 0:
			width = n
		case width+1+n > commentWidth:
			text.WriteByte('\n')
			width = n
		default:
			text.WriteByte(' ')
			width += 1 + n
		}
		text.WriteString(word)
	}
	return text.String()
}
