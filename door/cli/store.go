package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
)

// storeFlag names the store of the log.
type storeFlag struct {
	Store string `help:"Where the log is stored: sqlite:PATH, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, or memory: (lost when the process ends). Default: ${default}." default:"sqlite:./weir-data/weir.db" placeholder:"URL"`
}

func (f *storeFlag) open(ctx context.Context, logger *slog.Logger) (eventlog.Store, error) {
	opened, err := store.Open(ctx, f.Store, logger)
	return opened, f.explain(ctx, err, "`weir doctor --store URL` examines a store and changes nothing")
}

// explain adds an exit code and a hint to an error of the store.
func (f *storeFlag) explain(ctx context.Context, err error, hint string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrAddress):
		return config(err, "")
	case errors.Is(err, eventlog.ErrStoreClosed):
		return config(err, "")
	case errors.Is(err, eventlog.ErrUnavailable):
		return unreachable(err, "check that it is running, and that the address in --store "+store.Redact(f.Store)+" is right")
	}
	return refused(err, hint)
}
