package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// Examine reports what the store in a bucket is, and whether it can be read. It changes nothing, so
// it does not try whether the server honours If-None-Match: Open does.
func Examine(ctx context.Context, address string) ([]doctor.Finding, error) {
	at, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("examine S3: %w", err)
	}
	clock := &clock{}
	b, err := dial(ctx, at, clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), err)
	}
	defer b.close()
	return examine(ctx, at, b, clock)
}

// Keys lists at most limit keys that begin with prefix, for an examination. It changes nothing. A
// bucket without a log has none.
func Keys(ctx context.Context, address, prefix string, limit int) (list []eventlog.KeyValue, err error) {
	at, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("examine S3: %w", err)
	}
	clock := &clock{}
	b, err := dial(ctx, at, clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), err)
	}
	defer b.close()
	body, _, err := b.get(ctx, "format", 0, -1)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), notOpened(err))
	}
	head, _, err := unseal(magicFormat, body)
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), err)
	}
	s := &Store{place: at, bucket: b, clock: clock, turn: make(turn, 1), st: newState((&reader{b: head}).string()), logger: slog.New(slog.DiscardHandler)}
	if err := s.reload(ctx); err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), notOpened(err))
	}
	now, latest := clock.now()
	s.st.keys.Ascend(prefix, func(key string, v value) bool {
		if !strings.HasPrefix(key, prefix) || len(list) >= limit {
			return false
		}
		list = append(list, v.read(key, now, latest))
		return true
	})
	return list, nil
}

func examine(ctx context.Context, at place, b bucket, clock *clock) ([]doctor.Finding, error) {
	findings := []doctor.Finding{{Name: "store", Value: at.name()}}
	add := func(f doctor.Finding) { findings = append(findings, f) }
	body, a, err := b.get(ctx, "format", 0, -1)
	if errors.Is(err, errMissing) {
		add(doctor.Finding{Name: "log", Value: "none yet: weir begins one when it opens the store"})
		return findings, nil
	}
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), notOpened(err))
	}
	head, _, err := unseal(magicFormat, body)
	if err != nil {
		add(doctor.Finding{Name: "object format", Value: err.Error(), Level: doctor.Bad, Advice: "restore the bucket from a backup"})
		return findings, nil
	}
	if off := time.Since(a.date).Abs(); off > time.Minute {
		add(doctor.Finding{Name: "clock", Value: fmt.Sprintf("differs from the server's by %v", off.Round(time.Second)), Level: doctor.Warn,
			Advice: "set this machine's clock: S3 refuses requests when the difference is 15 minutes"})
	}
	s := &Store{place: at, bucket: b, clock: clock, turn: make(turn, 1), st: newState((&reader{b: head}).string()), logger: slog.New(slog.DiscardHandler)}
	voids := 0
	err = s.reload(ctx)
	if err == nil {
		voids, err = s.noGap(ctx)
	}
	if errors.Is(err, errGap) {
		add(doctor.Finding{Name: "log", Value: err.Error(), Level: doctor.Bad, Advice: "if an older copy of the bucket was put back while weir ran, create the object that is named; else restore the bucket from a backup"})
		return findings, nil
	}
	if errors.Is(err, errDamaged) || errors.Is(err, errForeign) {
		add(doctor.Finding{Name: "log", Value: err.Error(), Level: doctor.Bad, Advice: "restore the bucket from a backup"})
		return findings, nil
	}
	if err != nil {
		return nil, fmt.Errorf("examine S3 store %s: %w", at.name(), notOpened(err))
	}
	var size int64
	batches := 0
	for _, p := range s.st.partitions {
		size += p.bytes
		batches += len(p.held)
	}
	add(doctor.Finding{Name: "log", Value: fmt.Sprintf("%d commits, %d partitions, %d batches with %d bytes in %d objects, %d keys",
		s.st.number, len(s.st.partitions), batches, size, len(s.st.objects), s.st.keys.Len())})
	if voids > 0 {
		add(doctor.Finding{Name: "void commits", Value: fmt.Sprintf("%d, of processes that did not know that the bucket was put back to an older copy; they are passed over, and deleted later", voids)})
	}
	snapshot := doctor.Finding{Name: "newest snapshot", Value: fmt.Sprintf("of commit %d", s.newest)}
	if late := s.st.number - s.newest; late > 10*snapshotEvery {
		snapshot.Level, snapshot.Advice = doctor.Warn, fmt.Sprintf("%d commits follow it, so that a start is slow: see the log of weir for why no snapshot is written", late)
	}
	add(snapshot)
	return findings, nil
}
