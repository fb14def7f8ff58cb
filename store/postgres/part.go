package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql
var sqlFiles embed.FS

// logPart is the part of the store itself.
var logPart = Part{Name: "log", Files: under(sqlFiles, "sql")}

// Part is the tables, functions and views of one package in the schema weir, under a name of its
// own.
//
//	tables/NNN_name.sql   runs once, in the order of numbers
//	functions/name.sql    is installed anew with each version
//	views/name.sql        is installed if the view is missing, or if a file in tables that runs has the line
//	                      "-- Replaces views/name.sql"; the new view may only have more columns, at the end
//	after.sql             runs after each installation
//	start.sql             runs whenever a process opens the part and need not install it; may be missing
//
// The first paragraph of a file's comment becomes the comment of what it creates: see comment.go.
//
// The highest number is the version of the part. A release that changes a function adds a file to
// tables, which may be only a comment: so an older binary that is started later does not install
// the older function again.
type Part struct {
	Name  string
	Files fs.FS
	// Public names the files of functions and views that users call and read. All others are
	// internal.
	Public []string
}

// under is a directory of embedded files.
func under(files fs.FS, dir string) fs.FS {
	sub, err := fs.Sub(files, dir)
	if err != nil {
		panic(err)
	}
	return sub
}

// file is one file of SQL.
type file struct {
	name   string
	number int // the number of a file in tables
	sql    string
}

// macros are settings that several functions have, each written as a line of its own in a file.
var macros = strings.NewReplacer(
	":pinned\n", "SET search_path = pg_catalog, pg_temp\nSET jit = off\n",
	// Statistics may be outdated, from a time when a table was empty, or full: so every statement
	// uses an index, whatever they say.
	":by_index\n", "SET search_path = pg_catalog, pg_temp\nSET jit = off\nSET enable_seqscan = off\nSET enable_bitmapscan = off\n",
)

// list returns the files of a directory, sorted by name.
func (p Part) list(dir string) (list []file) {
	paths, err := fs.Glob(p.Files, dir+"/*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range paths {
		list = append(list, file{name: strings.TrimSuffix(path.Base(name), ".sql"), sql: p.read(name)})
	}
	return list
}

func (p Part) read(name string) string {
	text, err := fs.ReadFile(p.Files, name)
	if err != nil {
		panic(err)
	}
	return macros.Replace(string(text))
}

// tables returns the files that run once.
func (p Part) tables() []file {
	list := p.list("tables")
	for i := range list {
		number, _, _ := strings.Cut(list[i].name, "_")
		var err error
		if list[i].number, err = strconv.Atoi(number); err != nil {
			panic(err)
		}
		if i > 0 && list[i].number == list[i-1].number {
			panic(fmt.Sprintf("part %s: %s.sql and %s.sql have the same number; give the newer file the next number", p.Name, list[i-1].name, list[i].name))
		}
	}
	return list
}

// newest is the version that this binary needs.
func (p Part) newest() int {
	list := p.tables()
	return list[len(list)-1].number
}

// hash identifies a set of functions and views.
func (p Part) hash() string {
	h := sha256.New()
	for _, f := range append(p.list("functions"), p.list("views")...) {
		fmt.Fprintf(h, "%s\n%s\n", f.name, f.sql)
	}
	fmt.Fprintf(h, "%s\n", strings.Join(p.Public, " "))
	h.Write([]byte(p.read("after.sql")))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// install runs the missing files, in the caller's transaction.
func (p Part) install(ctx context.Context, conn *pgx.Conn, from int) error {
	var ran []file
	for _, f := range p.tables() {
		if f.number <= from {
			continue
		}
		if err := run(ctx, conn, f.sql); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		ran = append(ran, f)
	}
	for _, f := range ran { // after all ran: the first of them create weir.migration
		if _, err := conn.Exec(ctx, `INSERT INTO weir.migration (part, number, name) VALUES ($1, $2, $3)`, p.Name, f.number, f.name); err != nil {
			return err
		}
	}
	views, err := missingViews(ctx, conn, p.list("views"))
	if err != nil {
		return err
	}
	views = append(views, replaced(ran, p.list("views"), views)...)
	if err := inOrder(ctx, conn, append(p.list("functions"), views...)); err != nil {
		return err
	}
	// By default everybody may call a new function. Nothing in the schema is public.
	const closed = `REVOKE ALL ON ALL ROUTINES IN SCHEMA weir FROM PUBLIC; REVOKE ALL ON ALL TABLES IN SCHEMA weir FROM PUBLIC`
	if err := run(ctx, conn, closed); err != nil {
		return err
	}
	if err := run(ctx, conn, p.read("after.sql")); err != nil {
		return fmt.Errorf("after.sql: %w", err)
	}
	if err := p.comment(ctx, conn); err != nil {
		return fmt.Errorf("comment on functions and views: %w", err)
	}
	_, err = conn.Exec(ctx, `UPDATE weir.migration SET functions = $3 WHERE part = $1 AND number = $2`, p.Name, p.newest(), p.hash())
	return err
}

// start runs start.sql.
func (p Part) start(ctx context.Context, conn *pgx.Conn) error {
	if _, err := fs.Stat(p.Files, "start.sql"); err != nil {
		return nil
	}
	return run(ctx, conn, p.read("start.sql"))
}

// run sends several statements in one message, with the simple protocol.
func run(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// missingViews returns the views that do not exist. Replacing a view waits for every transaction
// that has read it.
func missingViews(ctx context.Context, conn *pgx.Conn, all []file) ([]file, error) {
	var there []string
	err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(c.relname::text), '{}') FROM pg_class c
		WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind = 'v'`).Scan(&there)
	return slices.DeleteFunc(all, func(f file) bool { return slices.Contains(there, f.name) }), err
}

// replaced returns the views that files in tables replace, without those that are missing.
func replaced(ran, all, missing []file) (views []file) {
	for _, view := range all {
		says := func(f file) bool { return strings.Contains(f.sql, "-- Replaces views/"+view.name+".sql\n") }
		if slices.ContainsFunc(ran, says) && !slices.ContainsFunc(missing, func(f file) bool { return f.name == view.name }) {
			views = append(views, view)
		}
	}
	return views
}

// inOrder installs functions and views in an order in which each finds what it depends on: a file
// that fails because something is missing is retried after the others.
func inOrder(ctx context.Context, conn *pgx.Conn, files []file) error {
	for len(files) > 0 {
		var later []file
		var why error
		for _, f := range files {
			err := run(ctx, conn, "SAVEPOINT file;\n"+f.sql+";\nRELEASE file")
			switch code(err) {
			case "":
				if err != nil {
					return err
				}
			case "42883", "42P01", "42704", "42703": // no such function, table, type or column, yet
				later, why = append(later, f), fmt.Errorf("%s: %w", f.name, err)
				if err := run(ctx, conn, "ROLLBACK TO file"); err != nil {
					return err
				}
			default:
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if len(later) == len(files) {
			return why
		}
		files = later
	}
	return nil
}
