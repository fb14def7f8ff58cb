package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// What a broker may have that it did not have at its start, a while after everything was deleted.
const (
	leakMax        = 150 * time.Second // until then: an idle process collects its garbage every two minutes
	goroutinesMore = 20                // some idle connections of the store's, mostly
	heapMore       = 48 << 20          // garbage that is not collected yet, and what a busy process keeps for its next work
)

// size is what a broker's metrics say of its own size.
type size struct {
	goroutines, heap float64
	named            []string // lines that name a topic, a group or a queue
}

var namesSomething = regexp.MustCompile(`(topic|group|queue)="`)

func (b *broker) size(ctx context.Context) (s size, err error) {
	body, _, err := b.call(ctx, "GET", "/metrics", nil, nil)
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(body)) {
		switch {
		case strings.HasPrefix(line, "#"):
		case namesSomething.MatchString(line):
			s.named = append(s.named, strings.TrimSpace(line))
		default:
			_, _ = fmt.Sscanf(line, "go_goroutines %g", &s.goroutines)
			_, _ = fmt.Sscanf(line, "go_memstats_heap_inuse_bytes %g", &s.heap)
		}
	}
	return s, nil
}

// checkLeaks ends all clients, deletes everything, and sees that the brokers' memory of it goes,
// too.
func (w *world) checkLeaks(ctx context.Context) error {
	w.rest()
	w.members.Wait()
	for _, e := range w.embedded {
		if took := e.stop(); took > stopMax {
			w.model.Broken("B3", []string{e.name}, "%s took %v to end after SIGTERM, with nothing else going on; the limit is %v", e.name, took.Round(time.Millisecond), stopMax)
		}
	}
	if err := w.deleteAll(ctx); err != nil {
		return err
	}
	for _, b := range w.brokers {
		for late := time.Now().Add(leakMax); ; pause(ctx, 200*time.Millisecond) {
			b.client.CloseIdleConnections()
			now, err := b.size(ctx)
			if err != nil {
				return err
			}
			if len(now.named) == 0 && now.goroutines <= w.born.goroutines+goroutinesMore && now.heap <= w.born.heap+heapMore {
				break
			}
			if time.Now().After(late) {
				w.model.Broken("R1", []string{b.name}, "%s, %v after everything was deleted: %.0f goroutines, %.0f MiB of heap, %d lines of metrics with names, such as %.3q; at its start it had %.0f goroutines and %.0f MiB",
					b.name, leakMax, now.goroutines, now.heap/(1<<20), len(now.named), now.named[:min(3, len(now.named))], w.born.goroutines, w.born.heap/(1<<20))
				break
			}
		}
	}
	return ctx.Err()
}

// deleteAll deletes all groups, as soon as their members' sessions have ended, all queues and all
// topics.
func (w *world) deleteAll(ctx context.Context) error {
	b := w.brokers[0]
	for late := time.Now().Add(leakMax); ; pause(ctx, 500*time.Millisecond) {
		var answer struct {
			Groups []struct{ Name, State string }
		}
		if err := b.get(ctx, "/v1/groups", &answer); err != nil {
			return err
		}
		if len(answer.Groups) == 0 {
			break
		}
		if time.Now().After(late) {
			left, _ := json.Marshal(answer.Groups)
			w.model.Broken("R1", nil, "%v after their members ended, these groups cannot be deleted: %s", leakMax, left)
			break
		}
		for _, g := range answer.Groups {
			_, _, _ = b.call(ctx, "DELETE", "/v1/groups/"+g.Name, nil, nil) // refused while it has members
		}
	}
	var has struct{ Queues []struct{ Name string } }
	if err := b.get(ctx, "/v1/queues", &has); err != nil {
		return err
	}
	for _, q := range has.Queues {
		if _, _, err := b.call(ctx, "DELETE", "/v1/queues/"+q.Name, nil, nil); err != nil {
			return fmt.Errorf("delete queue %s: %w", q.Name, err)
		}
	}
	var answer struct{ Topics []struct{ Name string } }
	if err := b.get(ctx, "/v1/topics", &answer); err != nil {
		return err
	}
	for _, t := range answer.Topics {
		if strings.HasPrefix(t.Name, "__") || t.Name == eventlog.AuditTopic {
			continue // Kafka's own; who changed what stays
		}
		if _, _, err := b.call(ctx, "DELETE", "/v1/topics/"+t.Name, nil, nil); err != nil {
			return fmt.Errorf("delete %s: %w", t.Name, err)
		}
	}
	return nil
}
