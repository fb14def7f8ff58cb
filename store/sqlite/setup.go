package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/weir-log/weir/store/storerow"
)

const (
	// applicationID identifies our files: "weir" in ASCII.
	applicationID = 0x77656972

	// libraryMin is the first SQLite without the WAL-reset bug, which could corrupt a file while
	// two connections checkpointed and wrote concurrently.
	libraryMin = "3.51.3"

	// synchronousFull is the value of PRAGMA synchronous for FULL.
	synchronousFull = 2

	// utf8Encoding is the value of PRAGMA encoding with which CAST turns a text into UTF-8, the
	// bytes that it has outside of SQLite.
	utf8Encoding = "UTF-8"

	// pageSize of a new file. See docs/decisions/sqlite-file-layout.md.
	pageSize = 16 << 10
)

// Settings of every connection. FULL: a commit is on disk before it is acknowledged; NORMAL would
// lose the last commits in a power failure. fullfsync matters only on macOS, where fsync does not
// flush the cache of the drive. cache_size, in KiB, bounds memory. Only the checkpointer, and
// readers during recovery, wait for a lock within SQLite.
var (
	settings = []string{
		"PRAGMA synchronous = FULL",
		"PRAGMA fullfsync = ON",
		"PRAGMA checkpoint_fullfsync = ON",
		"PRAGMA wal_autocheckpoint = 0",
		"PRAGMA journal_size_limit = 67108864",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA trusted_schema = OFF",
	}
	writerSettings = []string{"PRAGMA busy_timeout = 0", "PRAGMA cache_size = -8192"}
	readerSettings = []string{"PRAGMA busy_timeout = 5000", "PRAGMA cache_size = -1024", "PRAGMA query_only = ON"}
)

//go:embed migrations
var migrations embed.FS

// openWriter opens the connection that writes, and prepares the file for the other connections.
func (s *Store) openWriter(ctx context.Context, path string) (*conn, error) {
	c, err := connect(path, "mode=rw")
	if err != nil {
		return nil, err
	}
	if err := retryBusy(ctx, func() error { return c.ready(s) }); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func openReader(path string) (*conn, error) {
	c, err := connect(path, "mode=rw") // a reader of a WAL takes locks, for which it must write
	if err != nil {
		return nil, err
	}
	if err := c.set(readerSettings, settings); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// ready checks that the file is ours before it changes anything, and migrates it. It may be
// repeated.
func (c *conn) ready(s *Store) error {
	if err := c.checkLibrary(); err != nil {
		return err
	}
	if err := c.recognize(); err != nil {
		return err
	}
	if err := c.exec("PRAGMA page_size = " + strconv.Itoa(pageSize)); err != nil {
		return err
	}
	if mode, err := c.text("PRAGMA journal_mode = WAL"); err != nil {
		return err
	} else if mode != "wal" {
		return fmt.Errorf("journal_mode is %s and cannot be set to wal: use a file system with shared memory and locks", mode)
	}
	if err := c.set(settings, writerSettings); err != nil {
		return err
	}
	if err := c.checkSynchronous(); err != nil {
		return err
	}
	return c.migrate(s)
}

// checkSynchronous reads the setting back: a build of SQLite may ignore it silently.
func (c *conn) checkSynchronous() error {
	level, err := c.integer("PRAGMA synchronous")
	if err == nil && level < synchronousFull {
		err = fmt.Errorf("synchronous is %d and cannot be set to %d (full): a power failure would lose acknowledged records", level, synchronousFull)
	}
	return err
}

func (c *conn) set(lists ...[]string) error {
	for _, list := range lists {
		for _, setting := range list {
			if err := c.exec(setting); err != nil {
				return fmt.Errorf("%s: %w", setting, err)
			}
		}
	}
	return nil
}

func (c *conn) checkLibrary() error {
	version, err := c.text("SELECT sqlite_version()")
	if err != nil {
		return err
	}
	if !atLeast(version, libraryMin) {
		return fmt.Errorf("SQLite %s can corrupt a file in WAL mode: build with %s or later", version, libraryMin)
	}
	return nil
}

// atLeast compares version numbers such as 3.51.3.
func atLeast(version, least string) bool {
	want := strings.Split(least, ".")
	for i, part := range strings.Split(version, ".") {
		if i == len(want) {
			break
		}
		have, _ := strconv.Atoi(part)
		need, _ := strconv.Atoi(want[i])
		if have != need {
			return have > need
		}
	}
	return true
}

// recognize refuses a file that is not ours to change.
func (c *conn) recognize() error {
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	defer c.rollback()
	_, err := c.schema()
	return err
}

// schema returns how many migrations were run on a file, 0 for an empty file. It refuses a file
// that is not ours. It makes several queries, so call it in a transaction: another process may be
// migrating.
func (c *conn) schema() (int64, error) {
	id, err := c.integer("PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	tables, err := c.integer("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, err
	}
	if id != applicationID && (id != 0 || tables > 0) {
		return 0, fmt.Errorf("the file belongs to another program: its application_id is %#x, and it has %d tables and indexes; weir needs application_id %#x or an empty file", id, tables, applicationID)
	}
	version, err := c.integer("PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	if encoding, err := c.text("PRAGMA encoding"); err != nil {
		return 0, err
	} else if version == 0 && encoding != utf8Encoding {
		return 0, fmt.Errorf("the file keeps text as %s, which cannot be changed: weir needs %s; give the path of a new file", encoding, utf8Encoding)
	}
	if known := known(); version > int64(known) {
		return 0, storerow.Newer("tables", int(version), known)
	}
	return version, nil
}

// migrate runs the scripts that were not run on the file yet, in one transaction. If two processes
// migrate, the second finds nothing to do.
func (c *conn) migrate(s *Store) error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback() // does nothing after COMMIT
	seen, err := c.schema()
	if err != nil {
		return err
	}
	all := scripts()
	if seen == int64(len(all)) {
		return nil // nothing is written, for there may be no space
	}
	return s.Upgrade("tables", int(seen), len(all), func() error {
		for _, script := range all[seen:] {
			if err := c.exec(script); err != nil {
				return fmt.Errorf("upgrade from schema version %d: %w", seen, err)
			}
		}
		if err := c.set([]string{
			"PRAGMA application_id = " + strconv.Itoa(applicationID),
			"PRAGMA user_version = " + strconv.Itoa(len(all)),
		}); err != nil {
			return err
		}
		return c.exec("COMMIT")
	})
}

// upgraded returns eventlog.ErrUpgraded if a newer weir has upgraded the tables. Call it in a
// transaction.
func (s *Store) upgraded(c *conn) error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil {
		return err
	}
	return s.layout.Found("tables", int(version), known())
}

// known is the newest version of the tables that this binary knows.
var known = sync.OnceValue(func() int { return len(scripts()) })

// scripts returns the migrations in order. A script is never changed, only new ones are added.
func scripts() []string {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		panic(err)
	}
	var all []string
	for _, name := range files {
		text, err := migrations.ReadFile(name)
		if err != nil {
			panic(err)
		}
		all = append(all, string(text))
	}
	return all
}
