package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// judgeHarm does to the store what no history may have in it, since acknowledged records may be
// gone afterwards: it changes a byte, makes the tables newer than the program, and puts a backup
// back. It needs a store whose topics are deleted, and processes that run.
func (w *world) judgeHarm(ctx context.Context) error {
	w.history.Add("now the store is harmed by hand")
	for _, judge := range []func(context.Context) error{w.judgeDoctor, w.judgeNewerTables, w.judgeChangedByte, w.judgeBackup, w.judgeTenants} {
		if err := judge(ctx); err != nil {
			return err
		}
	}
	return nil
}

// program runs weir to its end, and returns what it prints, or says of its failure.
func (w *world) program(ctx context.Context, args ...string) (out string, exit int) {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	text, err := exec.CommandContext(ctx, w.weir, args...).Output()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return string(text) + string(ended.Stderr), ended.ExitCode()
	case err != nil:
		return err.Error(), -1
	}
	return string(text), 0
}

const exitLosing = 6 // of weir doctor: a setting can lose acknowledged records

// judgeDoctor sees D1: what decides whether a record survives is shown, and what may lose records
// is told by the exit code.
func (w *world) judgeDoctor(ctx context.Context) error {
	settings := map[string]string{}
	for i, e := range w.engines {
		for name, value := range e.settings() {
			if len(w.engines) > 1 {
				name = fmt.Sprintf("shard %d: %s", i, name)
			}
			settings[name] = value
		}
	}
	want := 0
	if w.opt.store == "sqlite" && w.opt.has("full") {
		want = exitLosing // that disk is in memory
	}
	out, exit := w.program(ctx, "doctor", "--store", w.url, "--output", "json")
	var findings []struct{ Name, Value, Level string }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&findings); err != nil || exit != want {
		w.model.Broken("D1", nil, "weir doctor exits with %d, want %d, and says %s", exit, want, out)
		return nil
	}
	for _, f := range findings {
		if want, asked := settings[f.Name]; asked && f.Value == want {
			delete(settings, f.Name)
		}
	}
	if len(settings) > 0 {
		w.model.Broken("D1", nil, "weir doctor does not show %v, but %s", settings, out)
	}
	if !w.postgres() {
		return nil // a program that opens SQLite's file can set nothing that weir does not set again
	}
	return w.whileSet(ctx, "full_page_writes = off", func() {
		if out, exit := w.program(ctx, "doctor", "--store", w.url); exit != exitLosing {
			w.model.Broken("D1", nil, "weir doctor exits with %d where full_page_writes is off, and says %s", exit, out)
		}
	})
}

// whileSet has a setting of PostgreSQL's changed for a while.
func (w *world) whileSet(ctx context.Context, setting string, do func()) error {
	name, _, _ := strings.Cut(setting, " ")
	for _, step := range []string{"ALTER SYSTEM SET " + setting, "ALTER SYSTEM RESET " + name} {
		if _, err := w.sql.Exec(ctx, step); err != nil {
			return err
		}
		var before, now string
		if err := w.sql.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&before); err != nil {
			return err
		}
		if _, err := w.sql.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
			return err
		}
		for late := time.Now().Add(startMax); now == "" || now == before; pause(ctx, 20*time.Millisecond) {
			if err := w.sql.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&now); err != nil {
				return err
			}
			if time.Now().After(late) {
				return fmt.Errorf("%s is still %s after %v", name, now, startMax)
			}
		}
		if do != nil {
			do()
			do = nil
		}
	}
	return nil
}

// newerTables is the version of tables of a later weir.
const newerTables = "999"

// judgeNewerTables sees D4: a program older than the store's tables refuses them, and says which
// version it saw and which it knows. Brokers that run go on: their statements are of the tables
// that they found. Of a set, it is enough that one shard is newer.
func (w *world) judgeNewerTables(ctx context.Context) error {
	for _, e := range w.engines {
		known, newer, back, err := e.makeNewer(ctx)
		if err != nil {
			return err
		}
		out, exit := w.program(ctx, "serve", "--store", w.url, "--kafka", "off", "--http", "127.0.0.1:0")
		if exit <= 0 || !strings.Contains(out, newer) || !strings.Contains(out, known) {
			w.model.Broken("D4", nil, "%s is of version %s, this weir knows %s, and weir serve exits with %d and says %s", e.address(), newer, known, exit, out)
		}
		if err := back(); err != nil {
			return err
		}
	}
	return nil
}

// publishAll publishes values to one partition through a broker, each by itself, until each is
// known to be there.
func (w *world) publishAll(ctx context.Context, b *broker, topic string, partition int, values []string) (first int64, err error) {
	for i, v := range values {
		for late := time.Now().Add(leakMax); ; pause(ctx, 50*time.Millisecond) {
			body, o, err := b.call(ctx, "POST", fmt.Sprintf("/v1/topics/%s/events?partition=%d", topic, partition), []byte(v), nil)
			var at judge.Place
			if o == judge.Done && json.Unmarshal(body, &at) == nil {
				if i == 0 {
					first = at.Offset
				}
				break
			}
			if time.Now().After(late) || ctx.Err() != nil {
				return first, fmt.Errorf("publish %s to %s through %s: %w", v, topic, b.name, err)
			}
		}
	}
	return first, nil
}

// insist repeats a request until its outcome is known: the store may just have been away. A repeat
// of what was done is refused.
func (w *world) insist(ctx context.Context, method, path string, body any) error {
	b := w.brokers[0]
	for late, tried := time.Now().Add(startMax), false; ; pause(ctx, 100*time.Millisecond) {
		_, o, err := b.call(ctx, method, path, body, nil)
		var said *httpError
		switch {
		case o == judge.Done || tried && errors.As(err, &said) && (said.status == http.StatusConflict || said.status == http.StatusNotFound):
			return nil
		case o == judge.Refused && errors.As(err, &said) && said.status != http.StatusServiceUnavailable, time.Now().After(late), ctx.Err() != nil:
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		tried = true
	}
}

func numbered(what string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("%s %d", what, i))
	}
	return values
}

const harmed = "harmed" // a topic of two partitions, of which the first one has a changed byte

// judgeChangedByte sees D2: no door gives out a record of a batch in which a byte was changed, each
// gives out those of the other partition, and no process ends over it.
func (w *world) judgeChangedByte(ctx context.Context) error {
	b := w.brokers[0]
	if err := w.insist(ctx, "POST", "/v1/topics", map[string]any{"name": harmed, "partitions": 2}); err != nil {
		return err
	}
	amounts, others := numbered("amount", 5), numbered("other", 5)
	for n, values := range [][]string{amounts, others} {
		if _, err := w.publishAll(ctx, b, harmed, n, values); err != nil {
			return err
		}
	}
	for _, b := range w.brokers { // so that they have nothing in memory
		b.turn.Lock()
		b.stop()
		err := b.start(ctx)
		b.turn.Unlock()
		if err != nil {
			return err
		}
	}
	t, is := w.topicNow(ctx, harmed)
	if !is {
		return fmt.Errorf("there is no %s", harmed)
	}
	if err := w.engines[t.Partitions[0].Shard()].changeByte(ctx, t.Partitions[0], 2, amounts[2]); err != nil {
		return err
	}
	whole := slices.Concat(amounts, others)
	judge := func(door string, got []string, err error) {
		for _, v := range got {
			if !slices.Contains(whole, v) || v == amounts[2] {
				w.model.Broken("D2", nil, "a byte of a batch was changed, and %s reads %q", door, v)
			}
		}
		for _, v := range others {
			if !slices.Contains(got, v) {
				w.model.Broken("D2", nil, "a byte of a batch was changed, and %s does not read %q of the other partition (%v)", door, v, err)
			}
		}
	}
	for _, b := range w.brokers {
		got, err := pagesOf(ctx, b, harmed, 2)
		judge("HTTP at "+b.name, got, err)
		got, err = w.fetched(ctx, b, harmed, len(others))
		judge("Kafka at "+b.name, got, err)
	}
	got, err := w.readByGo(ctx, harmed, 2)
	judge("Go", got, err)
	if w.postgres() {
		got, err := w.readBySQL(ctx, harmed, 2)
		judge("SQL", got, err)
	}
	return w.insist(ctx, "DELETE", "/v1/topics/"+harmed, nil)
}

// pagesOf reads all partitions of a topic in pages.
func pagesOf(ctx context.Context, b *broker, topic string, partitions int) (values []string, err error) {
	for n := range partitions {
		for from, end := int64(0), int64(1); from < end; {
			var page struct {
				Events     []struct{ Value string }
				NextOffset int64 `json:"next_offset"`
				EndOffset  int64 `json:"end_offset"`
			}
			if err := b.get(ctx, fmt.Sprintf("/v1/topics/%s/partitions/%d/events?offset=%d", topic, n, from), &page); err != nil {
				return values, err
			}
			for _, e := range page.Events {
				values = append(values, e.Value)
			}
			from, end = page.NextOffset, page.EndOffset
		}
	}
	return values, nil
}

// fetched reads a topic with a Kafka client until it has as many records of partition 1 as it
// should.
func (w *world) fetched(ctx context.Context, b *broker, topic string, want int) (values []string, err error) {
	client, err := w.kafkaClient([]*broker{b}, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for want > 0 && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, e error) { err = e })
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			if r.Partition == 1 {
				want--
			}
		})
	}
	return values, err
}

func (w *world) readByGo(ctx context.Context, topic string, partitions int) (values []string, err error) {
	log, err := weir.Open(ctx, w.url, weir.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer log.Close(ctx)
	for n := range partitions {
		for e, e2 := range log.Read(ctx, weir.TopicPartition{Topic: topic, Partition: int32(n)}, weir.Earliest) {
			if e2 != nil {
				err = e2
				break
			}
			values = append(values, string(e.Value))
		}
	}
	return values, err
}

// readBySQL reads partitions, one statement each: an error ends the statement.
func (w *world) readBySQL(ctx context.Context, topic string, partitions int) (values []string, err error) {
	for n := range partitions {
		rows, e := w.sql.Query(ctx, `SELECT value FROM weir.events($1, 0, $2)`, topic, n)
		if e != nil {
			return values, e
		}
		for rows.Next() {
			var v []byte
			if e := rows.Scan(&v); e != nil {
				return values, e
			}
			values = append(values, string(v))
		}
		if e := rows.Err(); e != nil {
			var said *pgconn.PgError
			if !errors.As(e, &said) || said.Code != "XX001" {
				return values, e
			}
			err = e
		}
	}
	return values, err
}
