package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// engine is a store that a run made: a file, or a server. A set of shards has several.
type engine interface {
	// address is the URL by which weir knows it.
	address() string
	// settings are those that weir doctor must show, with their values.
	settings() map[string]string
	// makeNewer makes the store newer than the weir that is tested, and returns the version that
	// this weir knows, and the one that the store has until back is called.
	makeNewer(ctx context.Context) (known, newer string, back func() error, err error)
	// changeByte changes a byte of a value. The value is that of the last record of the batch at
	// base.
	changeByte(ctx context.Context, p eventlog.Partition, base int64, value string) error
	// backup copies the store; restore puts the copy back under those that use it.
	backup(ctx context.Context) (restore func() error, err error)
	close() error
}

// server is an engine that can crash.
type server interface {
	engine
	crash() error
	// recover starts it again, and returns when it takes requests.
	recover(ctx context.Context) error
}

// database is a server with sessions.
type database interface {
	server
	// interrupt cancels the statements, or ends the sessions, of a part of those that are
	// connected.
	interrupt(ctx context.Context, random *rand.Rand, terminate bool) error
	// suspend stops the server where it is: connections stay open, and nobody answers until resume
	// is called.
	suspend() (resume func(), err error)
}

// theShards are the kinds of the stores that a set of shards is made of. The seed decides which one
// is shard 0.
var theShards = []string{"postgres", "mysql", "sqlite"}

// openStore makes the stores of the run.
func (w *world) openStore(ctx context.Context) error {
	dir, err := w.diskFor(ctx)
	if err != nil {
		return err
	}
	if w.opt.store != "shards" {
		e, err := w.openEngine(w.opt.store, dir)
		if err != nil {
			return err
		}
		w.url = e.address()
		return w.openSQL(ctx)
	}
	var addresses []string
	for i := range theShards {
		e, err := w.openEngine(theShards[(i+int(w.seed%uint64(len(theShards))))%len(theShards)], dir)
		if err != nil {
			return err
		}
		addresses = append(addresses, strings.ReplaceAll(e.address(), ",", ",,"))
	}
	w.url = "shard:" + strings.Join(addresses, ",")
	w.history.Add("the store is " + w.url)
	return nil
}

func (w *world) openEngine(kind, dir string) (e engine, err error) {
	switch kind {
	case "sqlite":
		e = openSQLite(dir)
	case "postgres":
		e, err = launchPostgres(dir)
	case "mysql":
		e, err = launchMariaDB(dir)
	case "s3":
		e, err = launchBucket(dir)
	default:
		err = fmt.Errorf("-store %s: there are %s", kind, strings.Join(stores, ", "))
	}
	if err != nil {
		return nil, err
	}
	w.atEnd(e.close)
	w.engines = append(w.engines, e)
	return e, nil
}

// enginesThat returns the engines that can do something.
func enginesThat[E any](w *world) (all []E) {
	for _, e := range w.engines {
		if can, is := e.(E); is {
			all = append(all, can)
		}
	}
	return all
}
