package load

import "context"

// Names lists all topics, queues and groups of the store.
func (l *Library) Names(ctx context.Context) (names []string, err error) {
	topics, err := l.log.Topics(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := l.log.Queues(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := l.log.Groups(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		names = append(names, t.Name)
	}
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return append(names, groups...), nil
}
