package eventlog

import "context"

// Refusing is nil while the store takes records, and says why while it does not. It costs no trip.
func (l *Log) Refusing() error {
	if err := l.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// reachable is nil while the store answers: on a full disk, too, reading and deleting go on.
func (l *Log) reachable() error {
	if err := l.health.Load(); err != nil {
		return *err
	}
	return nil
}

// lookWritable asks the store whether it takes records, and tells the operator once when that changes. Nobody has to publish for it.
func (l *Log) lookWritable(ctx context.Context) {
	store, can := l.store.(Writable)
	if !can {
		return
	}
	refusal, err := store.Writable(ctx)
	if err != nil {
		return // the look at the store tells of that
	}
	was := l.Refusing()
	if refusal == nil {
		l.refusal.Store(nil)
	} else {
		l.refusal.Store(&refusal)
	}
	switch {
	case was == nil && refusal != nil:
		l.cfg.Logger.Error("the store takes no records; reading and deleting go on, and publishing once it takes them again", "err", refusal)
	case was != nil && refusal == nil:
		l.cfg.Logger.Info("the store takes records again")
	}
}
