package sqlfn

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// Who looks into the schema (\df+ weir.* of psql) sees which functions and views are for sessions,
// and what they do.
func TestWhatSessionsMayUseHasAComment(t *testing.T) {
	address := pgtest.URL(t)
	openInbox(t, address)
	conn := session(t, address)
	rows, err := conn.Query(t.Context(), `
		SELECT p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), '') FROM pg_proc AS p WHERE p.pronamespace = 'weir'::regnamespace
		UNION ALL
		SELECT c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class AS c
		WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind = 'v'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	seen := make(map[string]bool)
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(public, name) {
			if !strings.HasPrefix(text, "Internal") {
				t.Errorf("weir.%s, which is not for sessions, has the comment %q", name, text)
			}
			continue
		}
		seen[name] = true
		lines := strings.Split(text, "\n")
		long := slices.IndexFunc(lines, func(line string) bool { return len([]rune(line)) > 72 })
		if !strings.HasPrefix(text, name+" ") || long >= 0 || len(lines) > 8 {
			t.Errorf("weir.%s has the comment\n%s\nwant one that begins with its name, in a few short lines", name, text)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range public {
		if !seen[name] {
			t.Errorf("the database has no weir.%s", name)
		}
	}
}

func TestTheManualHasWhatSessionsMayUse(t *testing.T) {
	text, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	manual, _, _ := strings.Cut(string(text), "## On MariaDB, MySQL and SQLite")
	notFunctions := []string{"inbox", "notify", "acked", "set_rights", "topic_spans"} // tables and settings
	for _, found := range regexp.MustCompile(`\bweir\.([a-z_]+)(?:$|[^.a-z_])`).FindAllStringSubmatch(manual, -1) {
		if name := found[1]; !slices.Contains(public, name) && !slices.Contains(notFunctions, name) {
			t.Errorf("the manual names weir.%s, which is not among those for sessions", name)
		}
	}
	for _, name := range public {
		if !strings.Contains(manual, "weir."+name) {
			t.Errorf("the manual does not have weir.%s", name)
		}
	}
}
