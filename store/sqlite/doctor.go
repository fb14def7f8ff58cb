package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// spaceLow is how many bytes of the disk should be free.
const spaceLow = 2 << 30

// Examine reports what the store in a file is, and whether it keeps what it acknowledges. It
// changes nothing, and may run while the store is in use.
func Examine(ctx context.Context, path string) ([]doctor.Finding, error) {
	_, file, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("examine %s: the file does not exist: check the path, or start weir serve to create it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	c, wal, err := examining(file)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	findings := []doctor.Finding{{Name: "store", Value: "SQLite file " + path}}
	inside, err := c.examine(ctx)
	if err = errors.Join(err, c.close()); err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	findings = append(findings, inside...)
	findings = append(findings, doctor.Finding{Name: "file size", Value: human(info.Size())}, examineMode(info))
	if n := links(info); n > 1 {
		findings = append(findings, doctor.Finding{Name: "names", Value: fmt.Sprintf("the file has %d names (hard links)", n), Level: doctor.Bad,
			Advice: "a program that opens it by another name does not find its WAL, and damages it: remove the other names while nobody has the file open"})
	}
	if wal != nil {
		findings = append(findings, examineWAL(wal.Size()))
	}
	disk, err := statDisk(filepath.Dir(file))
	return append(findings, examineDisk(disk, err)...), nil
}

// examining opens a file to read it. wal is nil without a WAL: then nobody has the file open, and
// immutable reads it without creating other files.
func examining(file string) (c *conn, wal fs.FileInfo, err error) {
	parameters := "mode=ro"
	if wal, err = os.Stat(file + "-wal"); errors.Is(err, fs.ErrNotExist) {
		parameters, wal = "immutable=1", nil
	} else if err != nil {
		return nil, nil, err
	}
	if c, err = connect(file, parameters); err != nil {
		return nil, nil, err
	}
	if err := c.set(settings); err != nil {
		return nil, nil, errors.Join(err, c.close())
	}
	return c, wal, nil
}

// Keys lists at most limit keys that begin with prefix, for an examination. It changes nothing. A
// file without weir's tables has none.
func Keys(_ context.Context, path, prefix string, limit int) (list []eventlog.KeyValue, err error) {
	_, file, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	c, _, err := examining(file)
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", path, err)
	}
	now := time.Now().UnixMilli()
	seen, err := c.schema()
	if err == nil && seen > 0 {
		err = c.query(sqlList, func(row []driver.Value) error {
			key := row[0].(string)
			if !strings.HasPrefix(key, prefix) {
				return errStop
			}
			list = append(list, keyValue(key, row[1:], now))
			return nil
		}, prefix, int64(limit))
	}
	if err = errors.Join(err, c.close()); err != nil {
		return nil, fmt.Errorf("examine %s: list keys under %q: %w", path, prefix, err)
	}
	return list, nil
}

func (c *conn) examine(ctx context.Context) ([]doctor.Finding, error) {
	version, err := c.text("SELECT sqlite_version()")
	if err != nil {
		return nil, err
	}
	library := doctor.Finding{Name: "SQLite version", Value: version}
	if !atLeast(version, libraryMin) {
		library.Level, library.Advice = doctor.Bad, "this version can corrupt a file in WAL mode: build weir with SQLite "+libraryMin+" or later"
	}
	if err := c.exec("BEGIN"); err != nil {
		return nil, err
	}
	defer c.rollback()
	seen, err := c.schema()
	if err != nil { // read no further in a file that is not ours
		return []doctor.Finding{library, {Name: "schema", Value: err.Error(), Level: doctor.Bad, Advice: "give the path of a weir store"}}, nil
	}
	findings := []doctor.Finding{library, {Name: "schema", Value: fmt.Sprintf("%d of %d", seen, len(scripts()))}}
	if encoding, err := c.text("PRAGMA encoding"); err != nil {
		return nil, err
	} else if encoding != utf8Encoding {
		findings = append(findings, doctor.Finding{Name: "encoding", Value: encoding, Level: doctor.Bad, Advice: "weir_inbox needs " + utf8Encoding + ": copy the store to a new file with weir copy"})
	}
	durable, err := c.examineDurability()
	if err != nil {
		return nil, err
	}
	findings = append(findings, durable...)
	page, err := c.integer("PRAGMA page_size")
	if err != nil {
		return nil, err
	}
	free, err := c.integer("PRAGMA freelist_count")
	if err != nil {
		return nil, err
	}
	findings = append(findings, doctor.Finding{Name: "page size", Value: human(page)},
		doctor.Finding{Name: "free within the file", Value: human(free*page) + "; used before the file grows"})
	if seen == 0 || ctx.Err() != nil {
		return findings, ctx.Err()
	}
	return append(findings, c.examineLog()), nil
}

// journalMode reads the mode from the header of the file, which says which mode a connection finds.
// PRAGMA journal_mode does not report it if the file is read as immutable. It asks SQLite for the
// header, and does not open the file itself: if this process had the file open, closing it here
// would drop the locks of SQLite. See "File format version numbers" in
// https://sqlite.org/fileformat2.html.
func (c *conn) journalMode() (string, error) {
	version, err := c.text("SELECT hex(substr(data, 19, 2)) FROM sqlite_dbpage WHERE pgno = 1")
	if err == nil && version != "0202" && version != "" { // an empty file will get it
		return "delete", nil
	}
	return "wal", err
}

// examineDurability reads the settings that decide whether a commit is on disk. synchronous belongs
// to a connection: c has the settings of the store.
func (c *conn) examineDurability() ([]doctor.Finding, error) {
	mode, err := c.journalMode()
	if err != nil {
		return nil, err
	}
	journal := doctor.Finding{Name: "journal_mode", Value: mode}
	if mode != "wal" {
		journal.Level, journal.Advice = doctor.Warn, "another program changed it: weir sets it to wal when it starts; until then, write to the file with no other program"
	}
	level, err := c.integer("PRAGMA synchronous")
	if err != nil {
		return nil, err
	}
	names := []string{"off", "normal", "full", "extra"}
	synchronous := doctor.Finding{Name: "synchronous", Value: strconv.FormatInt(level, 10)}
	if level >= 0 && level < int64(len(names)) {
		synchronous.Value = names[level]
	}
	if level < synchronousFull {
		synchronous.Level, synchronous.Advice = doctor.Bad, "a power failure loses acknowledged records: this weir was built wrongly, use another build"
	}
	return []doctor.Finding{journal, synchronous}, nil
}

// examineLog checks the end of each partition. PRAGMA integrity_check, which reads the whole file,
// checks the rest.
func (c *conn) examineLog() doctor.Finding {
	torn, err := c.integers(sqlTorn)
	finding := doctor.Finding{Name: "log", Value: "every partition ends with its newest batch"}
	switch {
	case err != nil:
		finding.Value, finding.Level = err.Error(), doctor.Bad
	case torn != nil:
		finding.Value, finding.Level = fmt.Sprintf("partition %d does not end with its newest batch", torn[0]), doctor.Bad
	}
	if finding.Level == doctor.Bad {
		finding.Advice = "the file is damaged: keep a copy of it, run PRAGMA integrity_check in the sqlite3 shell, restore a backup"
	}
	return finding
}

func examineMode(info fs.FileInfo) doctor.Finding {
	finding := doctor.Finding{Name: "file mode", Value: info.Mode().String()}
	if info.Mode().Perm()&0o007 != 0 {
		finding.Level, finding.Advice = doctor.Warn, "every user of this machine can open the log: run chmod o= on the file and on its -wal and -shm files"
	}
	return finding
}

func examineWAL(size int64) doctor.Finding {
	finding := doctor.Finding{Name: "WAL size", Value: human(size)}
	if size > 8*walStep {
		finding.Level, finding.Advice = doctor.Warn, "a long read keeps the WAL from restarting: look for open sqlite3 shells and running backups"
	}
	return finding
}

func examineDisk(disk disk, err error) []doctor.Finding {
	if err != nil {
		return []doctor.Finding{{Name: "disk", Value: "unknown: " + err.Error(), Level: doctor.Warn, Advice: "check yourself that the disk is local and has free space"}}
	}
	space := doctor.Finding{Name: "free disk space", Value: human(disk.free)}
	switch {
	case disk.free < disk.spare():
		space.Level, space.Advice = doctor.Bad, "producers are refused when the free space within the file is used up: free disk space, or shorten the topics' retention"
	case disk.free < spaceLow:
		space.Level, space.Advice = doctor.Warn, "free disk space soon, or shorten the topics' retention"
	}
	system := doctor.Finding{Name: "file system", Value: disk.system}
	switch {
	case disk.network:
		system.Level, system.Advice = doctor.Bad, "SQLite's locks and shared memory do not work across machines: move the file to a local disk, or use PostgreSQL"
	case disk.memory:
		system.Level, system.Advice = doctor.Bad, "it is in memory, and empty after a restart of the machine: move the file to a disk"
	}
	return []doctor.Finding{space, system}
}

func human(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for ; value >= 1<<10; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
