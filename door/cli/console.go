package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"

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
	secret := &consoleSecret{log: p.node.Log}
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

// consoleSecret reads that key, and makes it when it is not there.
type consoleSecret struct {
	log *eventlog.Log

	mu    sync.Mutex // guards known
	known []byte
}

func (s *consoleSecret) get(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil {
		return s.known, nil
	}
	kv, err := ledger.Change(ctx, s.log, consoleSecretKey, func(now eventlog.KeyValue) (made []byte, with eventlog.Entry, err error) {
		if now.Version > 0 {
			return nil, with, ledger.ErrUnchanged
		}
		made = make([]byte, 32)
		_, _ = rand.Read(made) // never fails
		return made, with, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the key of the console's sessions: %w", err)
	}
	s.known = kv.Value
	return s.known, nil
}
