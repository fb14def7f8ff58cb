package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Ensure creates the queue if there is none of that name. If there is one it changes nothing: if
// the topic, or a setting that spec sets, is not as in spec, the error is an ErrQueueDiffers that
// lists the differences. Other errors are those of Create.
func (qs *Queues) Ensure(ctx context.Context, spec Spec) error {
	_, err := qs.Create(ctx, spec)
	if !errors.Is(err, ErrQueueExists) {
		return err
	}
	var info Info
	err = qs.With(ctx, spec.Name, func(q *Queue) (err error) {
		info, err = q.Now(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("ensure queue %q: %w", spec.Name, err)
	}
	var list []string
	if topic := cmp.Or(spec.Topic, info.Topic); topic != info.Topic {
		list = append(list, fmt.Sprintf("topic %s, but %s was asked for", info.Topic, topic))
	}
	asked, is := reflect.ValueOf(spec.Settings), reflect.ValueOf(info.Settings)
	for i := range asked.NumField() {
		if a, b := asked.Field(i), is.Field(i); !a.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			list = append(list, fmt.Sprintf("%s %v, but %v was asked for", asked.Type().Field(i).Name, b, a))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: queue %q has %s", ErrQueueDiffers, spec.Name, strings.Join(list, "; "))
}
