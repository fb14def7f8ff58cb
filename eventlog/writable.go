package eventlog

import "context"

// Refusing returns nil while the store accepts records, otherwise why it refuses them. It makes no
// store call.
func (l *Log) Refusing() error {
	if err := l.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// reachable returns nil while the store answers: reading and deleting work on a full disk, too.
func (l *Log) reachable() error {
	if err := l.health.Load(); err != nil {
		return *err
	}
	return nil
}

// checkWritable asks the store whether it accepts records, and logs a change once. So a refusal is
// noticed even while nobody publishes.
func (l *Log) checkWritable(ctx context.Context) {
	store, can := As[Writable](l.store)
	if !can {
		return
	}
	refusal, err := store.Writable(ctx)
	if err != nil {
		return // the poll of the store logs that
	}
	was := l.Refusing()
	if refusal == nil {
		l.refusal.Store(nil)
	} else {
		l.refusal.Store(&refusal)
	}
	switch {
	case was == nil && refusal != nil:
		l.cfg.Logger.Error("the store accepts no records; reading and deleting still work; publishing works again when the store accepts records again", "err", refusal)
	case was != nil && refusal == nil:
		l.cfg.Logger.Info("the store accepts records again")
	}
}
