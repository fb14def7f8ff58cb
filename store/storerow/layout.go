package storerow

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Layout remembers whether a newer weir has changed the tables of an open store. The zero value
// is ready.
type Layout struct{ newer atomic.Pointer[error] }

// Usable returns eventlog.ErrUpgraded if a newer weir has changed the tables.
func (l *Layout) Usable() error {
	if newer := l.newer.Load(); newer != nil {
		return *newer
	}
	return nil
}

// Found notes the version that tables have, and the newest that this binary knows, and returns
// Usable.
func (l *Layout) Found(what string, version, known int) error {
	if version <= known {
		l.newer.Store(nil)
		return nil
	}
	newer := Newer(what, version, known)
	l.newer.Store(&newer)
	return newer
}

// Newer returns eventlog.ErrUpgraded for tables of a version that this binary does not know.
func Newer(what string, version, known int) error {
	return fmt.Errorf("%w (%s: version %d is there, and this weir supports versions up to %d)", eventlog.ErrUpgraded, what, version, known)
}

// Upgrade calls do, which brings tables from one version to another, and logs that before and
// after. Not allowed: eventlog.ErrUpgradeDue, and nothing is changed. From version 0 tables are
// made, and not upgraded: that is always allowed, and not logged.
func Upgrade(logger *slog.Logger, allowed bool, what string, from, to int, do func() error) error {
	if from == 0 {
		return do()
	}
	if !allowed {
		return fmt.Errorf("%w: %s: version %d is there, and this weir needs version %d. Back up the store, and start without --no-upgrade; or run the older weir",
			eventlog.ErrUpgradeDue, what, from, to)
	}
	about := []any{"what", what, "from", from, "to", to}
	logger.Info("upgrading the store; older weirs cannot use it afterwards", about...)
	began := time.Now()
	if err := do(); err != nil {
		logger.Error("the store could not be upgraded", append(about, "took", time.Since(began), "err", err)...)
		return err
	}
	logger.Info("the store is upgraded; processes of older weirs refuse to work on it until they are restarted with this version", append(about, "took", time.Since(began))...)
	return nil
}
