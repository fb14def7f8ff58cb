package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
)

// From a SQLite file to PostgreSQL and back, as docs/moving.md says: a server runs on the source
// until the switch.
func TestMovingHouse(t *testing.T) {
	file, back := "sqlite:"+filepath.Join(t.TempDir(), "weir.db"), "sqlite:"+filepath.Join(t.TempDir(), "back.db")
	address := pgtest.URL(t)
	s := serve(t, "--store", file)
	weir(t, "", "topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=123456789", "--linger", "2ms").want(t, exitOK)
	weir(t, "a:1\nb:2\nc:3\n", "produce", "orders", "--key-separator=:").want(t, exitOK)
	weir(t, "", "consume", "orders", "--group", "billing", "--max", "2").want(t, exitOK)
	groupBefore := weir(t, "", "group", "describe", "billing").out
	weir(t, "", "copy", "--from", file, "--to", address).want(t, exitOK, " records (", "all are the same", "the copy is not complete")
	weir(t, "", "serve", "--store", address).want(t, exitConfig, "it is a copy of "+file+" that is not complete")
	weir(t, "", "key", "list", "--store", address).want(t, exitConfig, "not complete")
	weir(t, "", "copy", "--from", back, "--to", address).want(t, exitConfig, "does not exist")
	weir(t, "d:4\n", "produce", "orders", "--key-separator=:").want(t, exitOK)
	weir(t, "", "copy", "--from", file, "--to", address, "--switch", "--output", "json").want(t, exitOK, `"records": 1,`, `"complete": true`)
	weir(t, "", "copy", "--from", file, "--to", address, "--switch").want(t, exitFailed, "the copy is complete")
	for late := time.After(20 * time.Second); !strings.Contains(s.out.String(), "it was copied to postgres://"); {
		select {
		case <-s.out.changed:
		case <-late:
			t.Fatalf("the server on the source says %s", s.out.String())
		}
	}
	s.stop()
	weir(t, "", "serve", "--store", file).want(t, exitConfig, "it was copied to postgres://")

	s = serve(t, "--store", address)
	if got := weir(t, "", "consume", "orders"); got.code != exitOK || len(strings.Fields(got.out)) != 4 {
		t.Errorf("%+v", got)
	}
	if got := weir(t, "", "group", "describe", "billing").out; withoutEnds(got) != withoutEnds(groupBefore) {
		t.Errorf("the group is %s, was %s", got, groupBefore)
	}
	weir(t, "", "topic", "describe", "orders").want(t, exitOK, "retention.ms", "123456789", "weir.linger.ms", "2")

	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', '"by SQL"')`)
	got := weir(t, "", "copy", "--from", address, "--to", back, "--switch")
	for got.code == exitFailed && strings.Contains(got.err, "wait in weir.inbox") { // the mover has not seen it yet
		got = weir(t, "", "copy", "--from", address, "--to", back, "--switch")
	}
	got.want(t, exitOK, "the copy is complete")
	s.stop()
	serve(t, "--store", back)
	if got := weir(t, "", "consume", "orders"); got.code != exitOK || !strings.Contains(got.out, "by SQL") {
		t.Errorf("%+v", got)
	}
}

// To a set of shards in two steps, as docs/moving.md says.
func TestMovingToASetOfShards(t *testing.T) {
	dir := t.TempDir()
	file, first, second := "sqlite:"+filepath.Join(dir, "weir.db"), "sqlite:"+filepath.Join(dir, "0.db"), "sqlite:"+filepath.Join(dir, "1.db")
	s := serve(t, "--store", file)
	weir(t, "", "topic", "create", "orders", "--partitions", "2").want(t, exitOK)
	weir(t, "a\nb\n", "produce", "orders", "--partition", "1").want(t, exitOK)
	weir(t, "", "consume", "orders", "--group", "billing", "--max", "1").want(t, exitOK, "a\n")
	weir(t, "", "copy", "--from", file, "--to", "shard:"+first+","+second).want(t, exitUsage, "copy to the store that is to be shard 0", "--store shard:THAT_STORE,NEW_STORE", "weir shard move")
	if made, err := filepath.Glob(filepath.Join(dir, "[01].db")); err != nil || len(made) > 0 {
		t.Errorf("the command that was refused made %v (%v)", made, err)
	}
	weir(t, "", "copy", "--from", file, "--to", first, "--switch").want(t, exitOK, "the copy is complete")
	s.stop()
	serve(t, "--store", "shard:"+first+","+second)
	weir(t, "", "consume", "orders", "--group", "billing").want(t, exitOK, "b\n")
	weir(t, "", "topic", "create", "bills", "--partitions", "2").want(t, exitOK)
	weir(t, "c\n", "produce", "bills", "--partition", "1").want(t, exitOK)
	for _, one := range []string{first, second} {
		weir(t, "", "copy", "--from", one, "--to", "sqlite:"+filepath.Join(dir, "copy.db")).want(t, exitConfig, "one shard of a set", "give all shards, in their order: --from shard:URL,URL,…")
	}
	weir(t, "", "consume", "bills").want(t, exitOK, "c\n")
}

// withoutEnds is what `weir group describe` says without END and LAG.
func withoutEnds(described string) string {
	var all []string
	for line := range strings.Lines(described) {
		if f := strings.Fields(line); len(f) == 6 {
			all = append(all, strings.Join(f[:3], " "))
		}
	}
	return strings.Join(all, ", ")
}

// Rows that SQL sessions left in the inbox are not copied, so nothing is switched while there are
// any; and an abandoned copy leaves the source in use.
func TestASwitchWaitsForTheInbox(t *testing.T) {
	address, file := pgtest.URL(t), "sqlite:"+filepath.Join(t.TempDir(), "weir.db")
	s := serve(t, "--store", address)
	weir(t, "", "topic", "create", "orders").want(t, exitOK)
	s.stop()
	pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', '"by SQL"')`) // nobody moves it
	weir(t, "", "copy", "--from", address, "--to", file, "--switch").want(t, exitFailed, "1 rows that SQL sessions committed wait in weir.inbox", "stop the programs")
	weir(t, "", "copy", "--from", address, "--to", file, "--abandon").want(t, exitOK, "abandoned the copy")
	weir(t, "", "serve", "--store", file).want(t, exitConfig, "that was abandoned: delete it")
	serve(t, "--store", address)
	weir(t, "", "consume", "orders", "--follow", "--max", "1").want(t, exitOK, "by SQL")
}

func TestWhatCannotBeCopied(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	weir(t, "", "copy", "--from", "memory:", "--to", file).want(t, exitUsage, "memory: cannot be copied")
	weir(t, "", "copy", "--from", file, "--to", "sqlite:x").want(t, exitConfig, "does not exist")
	weir(t, "", "copy", "--from", "nowhere", "--to", file).want(t, exitConfig, "invalid URL of a store")
	serve(t, "--store", file).stop()
	weir(t, "", "copy", "--from", file, "--to", file).want(t, exitConfig, "give an empty store")
	weir(t, "", "copy", "--from", file, "--to", file+"2", "--switch", "--abandon").want(t, exitUsage)
}
