package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/console"
	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recent"
	"github.com/weir-log/weir/use/ledger"
)

const consoleOff = "off"

// console returns what makes the pages of the HTTP listener, as a part of the program.
func (c *serveCmd) console(p *parts, w wiring) func(*httpapi.Inside) http.Handler {
	if c.Console == consoleOff {
		return nil
	}
	secret := newConsoleSecret(p.node.Log, w.logger)
	return func(api *httpapi.Inside) http.Handler {
		return console.New(console.Config{
			API: api, Version: string(w.version), History: p.history, Ready: p.healthy, Secret: secret.get, Logger: w.logger,
			Findings: w.findings,
		})
	}
}

// keepHistory begins what the plots of the last hour show. With --console off the store is not read
// for it, but the consoles of other processes are told what this one does.
func (c *serveCmd) keepHistory(p *parts, process, stored prometheus.Gatherer) {
	if c.Console == consoleOff {
		stored = nil
	}
	p.history = console.NewHistory(process, stored)
	if c.Console == consoleOff {
		return
	}
	p.history.Watch(p.node.Log)
	if p.brokers != nil {
		p.history.Beside(p.brokers.View)
	}
}

// consoleSecretKey has the key that seals the sessions of the console. Processes that share a store
// share it, so that a browser's session goes on at any of them. To end all sessions, delete it:
// each process notices within secretFresh, while the store answers.
const consoleSecretKey = "console/secret"

// secretFresh is how old the key may be that a page is opened with. Anybody can make the console
// ask for it, so the store is asked once in this time, whether it answers or not.
const secretFresh = time.Second

// consoleSecret reads that key, and makes it when it is not there.
type consoleSecret struct {
	log  *eventlog.Log
	last *recent.Value[[]byte]
}

func newConsoleSecret(log *eventlog.Log, logger *slog.Logger) *consoleSecret {
	s := &consoleSecret{log: log}
	s.last = recent.New("keys of the console's sessions", nil, s.read, logger)
	return s
}

func (s *consoleSecret) get(ctx context.Context) ([]byte, error) {
	r, err := s.last.Get(ctx, secretFresh)
	if err != nil {
		return nil, err
	}
	return r.Value, nil
}

func (s *consoleSecret) read(ctx context.Context) ([]byte, error) {
	kv, err := ledger.Change(ctx, s.log, consoleSecretKey, func(now eventlog.KeyValue) (made []byte, with eventlog.Entry, err error) {
		if now.Version > 0 && len(now.Value) > 0 {
			return nil, with, ledger.ErrUnchanged
		}
		made = make([]byte, 32)
		_, _ = rand.Read(made) // never fails
		return made, with, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the key of the console's sessions: %w", err)
	}
	return kv.Value, nil
}
