package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/proctest"
)

// ferretDB is an event store on MongoDB's protocol. The server is FerretDB, which keeps documents
// in PostgreSQL: its figures say nothing about MongoDB.
func ferretDB() System {
	settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's and FerretDB's defaults", "client": "mongo-driver without retries: a document for each append, with a unique index of stream and version; after a conflict the version is read; a projection asks for the next documents, and pauses as long as an answer took"}
	return System{
		Name: "ferretdb", About: "an event store by MongoDB's protocol on FerretDB " + mustPeer("ferretdb").Version + ", on PostgreSQL", Needs: "PostgreSQL", Fetch: "ferretdb",
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			dir, err := fetch.Dir("ferretdb")
			if err != nil {
				return nil, err
			}
			url, db, err := startPostgres(place)
			if err != nil {
				return nil, err
			}
			addresses, err := proctest.FreeAddresses(1)
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			p, err := StartProcess(ctx, place.Dir, addresses[0], filepath.Join(dir, "bin", "ferretdb"), "--listen-addr="+addresses[0], "--handler=postgresql", "--postgresql-url="+url,
				"--state-dir="+place.Dir, "--debug-addr=-", "--telemetry=disable", "--log-level=error")
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			// A write that is sent again may be done twice.
			client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + addresses[0]).SetRetryWrites(false).SetMaxPoolSize(sessionsMost))
			if err != nil {
				return nil, errors.Join(err, p.Stop(), db.Close())
			}
			return &mongoServer{client: client, commits: client.Database("bench").Collection("commits"), p: p, database: db, known: map[string]int64{}}, nil
		},
	}
}

// mongoServer keeps commits as NEventStore.Persistence.MongoDB does: each is a document, whose _id
// is a position that its client counts. A position whose commit was refused is filled with an empty
// document (its ConcurrencyExceptionStrategy FillHole), so that who follows can wait for a missing
// one: commits become visible in any order.
type mongoServer struct {
	client   *mongo.Client
	commits  *mongo.Collection
	p        *Process
	database database
	position atomic.Int64

	mu    sync.Mutex       // guards known
	known map[string]int64 // the versions that this client last saw
}

// commit is a document. One without values fills a hole.
type commit struct {
	Position int64    `bson:"_id"`
	Stream   string   `bson:"stream"`
	Version  int64    `bson:"version"` // of its first event
	Next     int64    `bson:"next"`    // the version afterwards
	Values   [][]byte `bson:"values"`
}

func (s *mongoServer) Target() any { return s }
func (s *mongoServer) Close() error {
	return errors.Join(s.client.Disconnect(context.Background()), s.p.Stop(), s.database.Close())
}

func (s *mongoServer) Faults() Faults {
	faults := s.p.faults()
	faults.Hold = databaseFaults(s.database).Hold
	return faults
}

func (s *mongoServer) Size(ctx context.Context) (int64, error) {
	return databaseSize(ctx, s.database, "")
}

func (s *mongoServer) CreateStreams(ctx context.Context) error {
	_, err := s.commits.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "stream", Value: 1}, {Key: "version", Value: 1}}, Options: options.Index().SetUnique(true)})
	return err
}

func (s *mongoServer) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	for {
		at := expected
		if expected == AnyVersion {
			at = s.lastSeen(stream)
		}
		c := commit{Position: s.position.Add(1), Stream: stream, Version: at, Next: at + int64(len(values)), Values: values}
		_, err := s.commits.InsertOne(ctx, c)
		switch {
		case err == nil:
			s.saw(stream, c.Next)
			return c.Next, nil
		case !mongo.IsDuplicateKeyError(err):
			return 0, fmt.Errorf("%w (%w)", ErrUnsure, err)
		}
		if err := s.fill(ctx, c.Position); err != nil {
			return 0, err
		}
		actual, err := s.version(ctx, stream, at)
		if err != nil {
			return 0, err
		}
		s.saw(stream, actual)
		if expected != AnyVersion && actual != expected { // else its position was taken
			return 0, &Conflict{Actual: actual}
		}
	}
}

// fill puts an empty document at a position, unless something is there.
func (s *mongoServer) fill(ctx context.Context, position int64) error {
	_, err := s.commits.InsertOne(ctx, commit{Position: position, Version: position, Next: position, Values: [][]byte{}})
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

func (s *mongoServer) lastSeen(stream string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[stream]
}

func (s *mongoServer) saw(stream string, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[stream] = max(s.known[stream], version)
}

// version goes from commit to commit, from a version at which one begins, or at which the stream
// ends. FerretDB asks PostgreSQL for what is equal, and reads all documents of a stream otherwise.
func (s *mongoServer) version(ctx context.Context, stream string, at int64) (int64, error) {
	for {
		var c commit
		err := s.commits.FindOne(ctx, bson.D{{Key: "stream", Value: stream}, {Key: "version", Value: at}}).Decode(&c)
		if errors.Is(err, mongo.ErrNoDocuments) {
			return at, nil
		}
		if err != nil {
			return 0, err
		}
		at = c.Next
	}
}

func (s *mongoServer) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	find := options.Find().SetSort(bson.D{{Key: "version", Value: 1}})
	if most > 0 {
		find.SetLimit(int64(most)) // a commit has at least one event
	}
	found, err := s.commits.Find(ctx, bson.D{{Key: "stream", Value: stream}, {Key: "next", Value: bson.D{{Key: "$gt", Value: from}}}}, find)
	if err != nil {
		return nil, nil, err
	}
	var all []commit
	if err := found.All(ctx, &all); err != nil {
		return nil, nil, err
	}
	for _, c := range all {
		for i, v := range c.Values {
			if at := c.Version + int64(i); at >= from && (most == 0 || len(values) < most) {
				versions, values = append(versions, at), append(values, v)
			}
		}
	}
	return versions, values, nil
}

// holeWait is how long a position may be missing until who follows fills it: the append may have
// failed. One that comes later finds its position taken, and takes another.
const holeWait = 5 * time.Second

// Follow asks for what comes after the last position. FerretDB has no change streams, and reads all
// documents for a question that is no equality: a pause as long as the answer took leaves it half
// of its time.
func (s *mongoServer) Follow(ctx context.Context, deliver func(Followed)) error {
	missing := time.Now()
	for next := int64(1); ctx.Err() == nil; {
		asked := time.Now()
		found, err := s.commits.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: next}}}}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(followMost))
		if err != nil {
			return errUnless(ctx, err)
		}
		var all []commit
		if err := found.All(ctx, &all); err != nil {
			return errUnless(ctx, err)
		}
		saved, before := time.Now(), next
		for _, c := range all {
			if c.Position != next {
				break
			}
			next++
			for i, v := range c.Values {
				deliver(Followed{Stream: c.Stream, Version: c.Version + int64(i), Value: v, Saved: saved})
			}
		}
		switch {
		case next > before || len(all) == 0:
			missing = saved
		case time.Since(missing) > holeWait:
			if err := s.fill(ctx, next); err != nil {
				return errUnless(ctx, err)
			}
		}
		if next == before {
			pause(ctx, max(pollEvery, saved.Sub(asked)))
		}
	}
	return nil
}
