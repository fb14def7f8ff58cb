package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

func TestOldServersAndStandbysAreRefused(t *testing.T) {
	good := facts{server: serverMin, encoding: "UTF8", mayCreate: true}
	if err := good.suitable(logPart); err != nil {
		t.Errorf("PostgreSQL 14: %v", err)
	}
	old := good
	old.server, old.serverText = serverMin-1, "13.22"
	if err := old.suitable(logPart); err == nil || !strings.Contains(err.Error(), "13.22") {
		t.Errorf("PostgreSQL 13: %v", err)
	}
	standby := good
	standby.standby = true
	if err := standby.suitable(logPart); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a standby: %v, want ErrUnavailable: it may be promoted", err)
	}
}
