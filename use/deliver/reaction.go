package deliver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/group"
)

// Reaction adds what an event causes to the entry that commits the event as handled. It is called
// again for each attempt to commit the entry, once no earlier attempt can be applied any more.
type Reaction func(ctx context.Context, e *eventlog.Entry) error

// appendReaction appends what a call of React returned, and commits the event as handled with it.
// While the outcome of an attempt is unknown, it tries again with the same reaction: a new reaction
// might be appended in addition.
func (p *Partition) appendReaction(ctx, wait context.Context, e Event) error {
	mark := fmt.Sprintf("reaction to %d, %s", e.Offset, rand.Text())
	patience := wait
	for attempt := 1; ; attempt++ {
		err := p.c.commitReaction(ctx, p, e.at()+1, mark, p.reaction)
		var refused *group.AddError
		switch {
		case err == nil, errors.Is(err, errNotNow):
			return err
		case errors.As(err, &refused) && !errors.Is(err, eventlog.ErrUnavailable):
			return refused.Err
		case errors.Is(err, eventlog.ErrSpansShards): // nothing happened, in any attempt
			return err
		case errors.Is(err, eventlog.ErrUnsure):
			patience = ctx // until the outcome is known, the event must not be delivered again
		}
		p.c.logger.Warn("the reaction to an event cannot be appended; trying again", p.attrs("offset", e.Offset, "attempt", attempt, "err", err)...)
		if !retry.Sleep(patience, writeRetry.Pause(attempt)) {
			return errNotNow
		}
	}
}
