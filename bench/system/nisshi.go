package system

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/proctest"
)

// nisshis are Nisshi, which was Tansu, on the stores that it keeps data on: one broker, by the
// Kafka protocol and the client that Kafka is measured with. Its documentation names PostgreSQL for
// production, and SQLite for development, where it sets synchronous to normal: an acknowledgement
// is not flushed (nisshi-storage-sql, lite.rs).
func nisshis() []System {
	var all []System
	client := "franz-go, acks=all, linger " + linger.String()
	durable := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's and Nisshi's defaults, but group-initial-rebalance-delay 0", "client": client}
	shipped := Settings{"flush": "SQLite with synchronous = normal, which Nisshi sets: at checkpoints", "settings": "Nisshi's defaults, but group-initial-rebalance-delay 0", "client": client}
	for _, x := range []struct {
		name, store, needs string
		open               func(Place) (string, database, error)
		modes              map[Mode]Settings
	}{
		{"nisshi", "PostgreSQL", "PostgreSQL", startPostgres, map[Mode]Settings{Durable: durable, Shipped: durable}},
		{"nisshi-sqlite", "SQLite", "", func(Place) (string, database, error) {
			return "sqlite://nisshi.db", nil, nil
		}, map[Mode]Settings{Shipped: shipped}},
	} {
		all = append(all, System{
			Name: x.name, About: "Nisshi " + mustPeer("nisshi").Version + " on " + x.store + ", by the Kafka protocol", Needs: x.needs, Fetch: "nisshi", Ordered: true,
			Modes: x.modes,
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
				dir, err := fetch.Dir("nisshi")
				if err != nil {
					return nil, err
				}
				url, db, err := x.open(place)
				if err != nil {
					return nil, err
				}
				closeStore := func() error {
					if db == nil {
						return nil
					}
					return db.Close()
				}
				addresses, err := proctest.FreeAddresses(1)
				if err != nil {
					return nil, errors.Join(err, closeStore())
				}
				address := addresses[0]
				p, err := StartProcess(ctx, place.Dir, address, filepath.Join(dir, "bin", "nisshi"), "broker", "--storage-engine="+url,
					"--listener-url=tcp://"+address, "--advertised-listener-url=tcp://"+address, "--group-initial-rebalance-delay=0s")
				if err != nil {
					return nil, errors.Join(err, closeStore())
				}
				faults := p.faults()
				faults.Hold = databaseFaults(db).Hold
				return &broker{address: address, stop: func() error { return errors.Join(p.Stop(), closeStore()) }, faults: faults,
					size: func(ctx context.Context) (int64, error) { return databaseSize(ctx, db, place.Dir) }}, nil
			},
		})
	}
	return all
}
