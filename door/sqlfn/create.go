package sqlfn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// createMark is how the header of a row that asks weir to create something appears in the text of
// the row's headers (functions/post_creation.sql).
var createMark = []byte(`"weir.create": {`)

// creation is a request of a session to create a topic, a queue or a category.
type creation struct {
	ID   int64        `json:"id"` // in weir.creation
	Kind string       `json:"kind"`
	Name string       `json:"name"`
	Spec creationSpec `json:"spec"`
	By   struct {
		Role    string `json:"role"`    // that the session logged in as; "" in a row that an older weir's function wrote
		Address string `json:"address"` // of the client; "local": a socket of the server's machine
	} `json:"by"`
}

// who returns who asks, for the audit.
func (c creation) who() audit.Who {
	return audit.Who{Type: audit.DatabaseRole, Name: c.By.Role, Door: "sql", Address: c.By.Address}
}

type creationSpec struct {
	Topic      string            `json:"topic"` // of a queue
	Partitions int               `json:"partitions"`
	Config     map[string]string `json:"config"`   // of a topic, also that of a category
	Settings   json.RawMessage   `json:"settings"` // of a queue: queueSettings
}

// queueSettings are the settings of a queue by the names that they have over HTTP.
type queueSettings struct {
	Lease       int64   `json:"lease_ms"`
	Attempts    int     `json:"attempts"`
	Backoff     int64   `json:"backoff_ms"`
	BackoffMax  int64   `json:"backoff_max_ms"`
	Delays      []int64 `json:"delays_ms"`
	TTL         int64   `json:"ttl_ms"`
	DropExpired bool    `json:"drop_expired"`
	KeyOrder    bool    `json:"key_order"`
	KeepDone    bool    `json:"keep_done"`
	Window      int     `json:"window"`
	Paused      bool    `json:"paused"`
	Unique      bool    `json:"unique"`
	Concurrency int     `json:"concurrency"`
	Rate        float64 `json:"rate"`
	Priorities  int     `json:"priorities"`
}

func (s queueSettings) settings() queue.Settings {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	settings := queue.Settings{
		Lease: ms(s.Lease), Attempts: s.Attempts, Backoff: ms(s.Backoff), BackoffMax: ms(s.BackoffMax), TTL: ms(s.TTL),
		DropExpired: s.DropExpired, KeyOrder: s.KeyOrder, KeepDone: s.KeepDone, Window: s.Window, Paused: s.Paused, Unique: s.Unique,
		Concurrency: s.Concurrency, Rate: s.Rate, Priorities: s.Priorities,
	}
	for _, d := range s.Delays {
		settings.Delays = append(settings.Delays, ms(d))
	}
	return settings
}

// isCreation reports whether a row asks weir to create something.
func (r *row) isCreation() bool { return r.group == "" && bytes.Contains(r.headers, createMark) }

// carryCreations creates what the rows of a chunk ask for, and notes the outcomes. It may be
// repeated: creating what is already there as requested changes nothing.
func (m *Mover) carryCreations(ctx context.Context, rows []row) error {
	for i := range rows {
		r := &rows[i]
		if !r.isCreation() {
			continue
		}
		var asked struct {
			Create creation `json:"weir.create"`
		}
		err := json.Unmarshal(r.headers, &asked)
		c := asked.Create
		if err == nil {
			err = m.create(audit.By(ctx, c.who()), c)
		}
		if isTransient(err) {
			return err
		}
		state, reason := "done", (*string)(nil)
		if isRefusal(err) {
			text := err.Error()
			state, reason = "refused", &text
			m.cfg.Logger.Warn("what SQL asked to create is refused", "kind", c.Kind, "name", c.Name, "err", err)
		} else if err != nil {
			m.skip("cannot create what SQL asked for; trying again later", "row", r.id, "kind", c.Kind, "name", c.Name, "err", err)
			continue
		}
		if err := m.inbox.endCreation(ctx, c.ID, state, reason); err != nil {
			return err
		}
		if _, err := m.inbox.move(ctx, []int64{r.id}, eventlog.Entry{}); err != nil {
			return err
		}
	}
	return nil
}

// isRefusal reports whether an error says that what was asked for cannot be, and not that it could
// not be done now.
func isRefusal(err error) bool {
	var invalid *eventlog.InvalidError
	return errors.As(err, &invalid) || errors.Is(err, eventlog.ErrTopicDiffers) || errors.Is(err, eventlog.ErrTopicExists) ||
		errors.Is(err, queue.ErrQueueDiffers) || errors.Is(err, stream.ErrCategoryExists) || errors.Is(err, stream.ErrUnknownCategory)
}

// create creates what was asked for, unless it is there. Its errors are those of EnsureTopic,
// queue.Ensure and stream.EnsureCategory.
func (m *Mover) create(ctx context.Context, c creation) error {
	switch c.Kind {
	case "topic":
		_, err := m.log.EnsureTopic(ctx, eventlog.TopicSpec{Name: c.Name, Partitions: c.Spec.Partitions, Config: c.Spec.Config})
		return err
	case "queue":
		if m.cfg.Queues == nil {
			return errors.New("this process runs no queues")
		}
		var settings queueSettings
		strict := json.NewDecoder(bytes.NewReader(c.Spec.Settings))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&settings); err != nil {
			return &eventlog.InvalidError{What: "settings", Value: string(c.Spec.Settings), Why: err.Error()}
		}
		return m.cfg.Queues.Ensure(ctx, queue.Spec{Name: c.Name, Topic: c.Spec.Topic, Partitions: c.Spec.Partitions, Settings: settings.settings()})
	case "category":
		if m.cfg.Streams == nil {
			return errors.New("this process runs no streams")
		}
		if _, err := m.cfg.Streams.EnsureCategory(ctx, stream.Spec{Name: c.Name, Partitions: c.Spec.Partitions, Settings: c.Spec.Config}); err != nil {
			return err
		}
		there, err := m.log.TopicNow(ctx, c.Name)
		if err == nil {
			err = there.Differs(eventlog.TopicSpec{Name: c.Name, Partitions: c.Spec.Partitions, Config: c.Spec.Config})
		}
		return err
	}
	return fmt.Errorf("unknown kind %q", c.Kind)
}

// withTopics returns rows with the ids of the topics that they are for: those that have an id which
// was reserved for a topic get its real one. Rows whose topic is still to be created are left out,
// and stay in the inbox.
func (m *Mover) withTopics(ctx context.Context, rows []row) ([]row, error) {
	var unknown []eventlog.TopicID
	for i := range rows {
		id := rows[i].topic
		if _, err := m.log.TopicByID(id); err != nil && id != (eventlog.TopicID{}) && !m.deleted[id] && !slices.Contains(unknown, id) {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return rows, nil
	}
	reserved, err := m.inbox.reserved(ctx, unknown)
	if err != nil || len(reserved) == 0 {
		return rows, err
	}
	if err := m.log.RefreshTopics(ctx); err != nil {
		return nil, err
	}
	made := make(map[eventlog.TopicID]eventlog.TopicID)
	waits := make(map[eventlog.TopicID]bool)
	for id, r := range reserved {
		t, err := m.log.Topic(ctx, r.name)
		switch {
		case err == nil && t.Writer != "": // SQL may not publish to such a topic, also not because it asked for the name before the topic was created
			waits[id] = true
			m.skip("what SQL published waits in weir.inbox, because its topic was not created by this request, and only "+t.Writer+" append to the one that is there", "topic", r.name)
		case err == nil:
			made[id] = t.ID
		case !errors.Is(err, eventlog.ErrUnknownTopic):
			return nil, err
		case r.state != "done": // it is still to be created; a topic that was created and is unknown was deleted
			waits[id] = true
			m.skip("what SQL published waits in weir.inbox, because its topic is not created; SELECT * FROM weir.creations says why", "topic", r.name, "creation", r.state)
		}
	}
	var out []row
	for _, r := range rows {
		if waits[r.topic] {
			continue
		}
		if id, is := made[r.topic]; is {
			r.topic = id
		}
		out = append(out, r)
	}
	return out, nil
}

// asksFor reports whether a request for a queue waits or was refused.
func (i *inbox) asksFor(ctx context.Context, name string) (asks bool, err error) {
	err = i.session.Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.creation WHERE kind = 'queue' AND name = $1 AND state <> 'done')`, name).Scan(&asks)
	})
	if err != nil {
		return false, fmt.Errorf("look whether SQL asked for queue %q: %w", name, err)
	}
	return asks, nil
}

// endCreation notes how a request was carried out.
func (i *inbox) endCreation(ctx context.Context, request int64, state string, reason *string) error {
	err := i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT weir.end_creation($1, $2, $3)`, request, state, reason)
		return err
	})
	if err != nil {
		return fmt.Errorf("note that what SQL asked to create is %s: %w", state, err)
	}
	return nil
}

// reservation is a topic that a request creates, and the state of the request.
type reservation struct{ name, state string }

// reserved returns those of the ids that are reserved for topics: one statement.
func (i *inbox) reserved(ctx context.Context, ids []eventlog.TopicID) (map[eventlog.TopicID]reservation, error) {
	found := make(map[eventlog.TopicID]reservation)
	err := i.session.Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		clear(found)
		rows, err := conn.Query(ctx, `
			SELECT r.id, r.name, c.state FROM weir.reserved AS r JOIN weir.creation AS c ON c.id = r.creation WHERE r.id = ANY ($1::text::uuid[])`, string(uuids(ids)))
		if err != nil {
			return err
		}
		var id [16]byte
		var r reservation
		_, err = pgx.ForEachRow(rows, []any{&id, &r.name, &r.state}, func() error { found[eventlog.TopicID(id)] = r; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find topics that SQL asked to create: %w", err)
	}
	return found, nil
}

// forgetCreations removes requests that ended long ago, in one trip; most bounds how many. It
// returns how many it removed.
func (i *inbox) forgetCreations(ctx context.Context, most int) (n int, err error) {
	err = i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.forget_creations($1)`, most).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("delete old requests to create: %w", err)
	}
	return n, nil
}
