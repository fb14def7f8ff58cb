package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/console"
	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
)

const consoleOff = "off"

// console returns what makes the pages of the HTTP listener, as a part of the program.
func (c *serveCmd) console(p *parts, process, stored prometheus.Gatherer, w wiring) func(*httpapi.Inside) http.Handler {
	if c.Console == consoleOff {
		return nil
	}
	secret := &consoleSecret{log: p.node.Log, turn: make(chan struct{}, 1)}
	return func(api *httpapi.Inside) http.Handler {
		p.console = console.New(console.Config{
			API: api, Version: string(w.version), Process: process, Store: stored, Ready: p.healthy, Secret: secret.get, Logger: w.logger,
			Findings: w.findings,
		})
		return p.console
	}
}

// consoleSecretKey has the key that seals the sessions of the console. Processes that share a store
// share it, so that a browser's session goes on at any of them. To end all sessions, delete it.
const consoleSecretKey = "console/secret"

// consoleSecret reads that key, and makes it when it is not there. Anybody can make the console ask
// for it, so a store that does not answer is asked once a second, for 2 s at most.
type consoleSecret struct {
	log *eventlog.Log

	turn   chan struct{} // has room for one: a lock for the rest
	known  []byte
	failed error
	asked  time.Time // when the store was asked last, and failed
}

const (
	secretWait  = 2 * time.Second
	secretAgain = time.Second
)

func (s *consoleSecret) get(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretWait)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("read the key of the console's sessions: %w", context.Cause(ctx))
	}
	if s.known != nil || time.Since(s.asked) < secretAgain {
		return s.known, s.failed
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), secretWait) // it is for all others, too
	defer cancel()
	kv, err := ledger.Change(asking, s.log, consoleSecretKey, func(now eventlog.KeyValue) (made []byte, with eventlog.Entry, err error) {
		if now.Version > 0 {
			return nil, with, ledger.ErrUnchanged
		}
		made = make([]byte, 32)
		_, _ = rand.Read(made) // never fails
		return made, with, nil
	})
	if err != nil {
		s.asked, s.failed = time.Now(), fmt.Errorf("read the key of the console's sessions: %w", err)
		return nil, s.failed
	}
	s.known, s.failed = kv.Value, nil
	return s.known, nil
}
