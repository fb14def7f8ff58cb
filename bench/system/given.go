package system

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// givenWait bounds what is asked of a PostgreSQL that was there before.
const givenWait = 30 * time.Second

// CheckPostgres says why systems cannot be measured on a PostgreSQL that is there already; nil:
// they can. For durable it must flush what it commits: the time of a flush there is not known.
func CheckPostgres(ctx context.Context, address string, modes []Mode) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
		return errors.New("a URL such as postgres://user:password@host:5432/postgres was expected") // without the password that it has
	}
	ctx, cancel := context.WithTimeout(ctx, givenWait)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var may bool
	var fsync, commit string
	if err := conn.QueryRow(ctx, `SELECT rolcreatedb OR rolsuper, current_setting('fsync'), current_setting('synchronous_commit')
		FROM pg_roles WHERE rolname = current_user`).Scan(&may, &fsync, &commit); err != nil {
		return err
	}
	if !may {
		return fmt.Errorf("the user %s may not create databases there: ALTER ROLE … CREATEDB", conn.Config().User)
	}
	for _, m := range modes {
		if m == Durable && (fsync != "on" || commit == "off") {
			return fmt.Errorf("it has fsync = %s and synchronous_commit = %s, which is not durable: --mode shipped", fsync, commit)
		}
	}
	return nil
}

// freshDatabase makes a database on a server that was there before. Closing it drops it.
func freshDatabase(address string) (string, database, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, errors.New("the URL of the PostgreSQL that was given does not parse")
	}
	do := func(sql string) error {
		ctx, cancel := context.WithTimeout(context.Background(), givenWait)
		defer cancel()
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	name := "weir_bench_" + strings.ToLower(rand.Text()[:12])
	if err := do(`CREATE DATABASE ` + name + ` TEMPLATE template0 ENCODING 'UTF8'`); err != nil {
		return "", nil, fmt.Errorf("create a database on the PostgreSQL that was given: %w", err)
	}
	u.Path = "/" + name
	query := u.Query() // a name of a database there would be the one that is used
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	drop := closer(func() error {
		if err := do(`DROP DATABASE IF EXISTS ` + name + ` WITH (FORCE)`); err != nil {
			return fmt.Errorf("drop the database %s: %w", name, err)
		}
		return nil
	})
	return u.String(), &postgres{database: drop, url: u.String()}, nil
}
