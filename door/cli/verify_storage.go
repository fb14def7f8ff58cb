package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
)

const (
	// storageVersions is how many versions callers race for, and storageTime for how long at most.
	storageVersions = 200
	storageTime     = 2 * time.Minute
	// storageRemoval bounds the time to remove what was written.
	storageRemoval = time.Minute
)

// tryStorage tries whether a storage is what weir needs, beside what weir doctor finds in it.
func (c *verifyCmd) tryStorage(ctx context.Context, t *terminal) error {
	if c.Rate.bytes != 0 || c.CacheDir != "" {
		return usage(errors.New("--rate and --cache-dir are for the examination of a store, and --storage examines none"), "leave them out")
	}
	as := doctorCmd{storeFlag: storeFlag{Store: c.Storage[0]}, Output: c.Output}
	raced, err := raceIn(ctx, c.Storage)
	if err != nil {
		return as.explain(ctx, err, "run it again; `weir doctor --store URL` examines the storage's settings")
	}
	findings, err := store.Examine(ctx, c.Storage[0])
	if err != nil {
		return as.explain(ctx, err, "")
	}
	findings = append(findings, raced)
	if err := as.print(t, findings); err != nil {
		return err
	}
	return verdict(findings)
}

func raceIn(ctx context.Context, addresses []string) (found doctor.Finding, err error) {
	scratch, err := store.Scratch(ctx, addresses...)
	if err != nil {
		return found, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageRemoval)
		defer cancel()
		err = errors.Join(err, scratch.Remove(ctx))
	}()
	ctx, cancel := context.WithTimeout(ctx, storageTime)
	defer cancel()
	r, err := verify.Race(ctx, scratch, storageVersions)
	if err != nil {
		return found, fmt.Errorf("race for versions in %s: %w", scratch.Name, err)
	}
	found = doctor.Finding{Name: "writes that race", Value: fmt.Sprintf("of %d conditional writes %d won, one for each version; %d reads saw the newest; %d answers were lost", r.Puts, r.Won, r.Gets, r.Unsure)}
	if len(r.Wrong) > 0 {
		found.Level, found.Value = doctor.Bad, strings.Join(r.Wrong, "; ")
		found.Advice = "processes of weir would overwrite each other's records, or read old ones: use a storage that honours conditional writes and reads after writes, or let all processes reach it through one server"
	}
	return found, nil
}
