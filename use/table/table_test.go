package table_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
)

var errFull = errors.New("full")

type words = table.Table[string, int]

type row = table.Row[string]

// open returns a table of words; of those with a question mark nobody knows what they say. Recent
// is how many there are.
func open(log table.Log, said *bytes.Buffer) *words {
	return table.New(log, slog.New(slog.NewTextHandler(said, nil)), -1, table.Rules[string, int]{
		Name: "words", Prefix: "word/", Counted: "word/of/", Max: 3, Full: errFull, Repair: "delete it", View: func(rows table.Rows[string]) int { return len(rows) },
		Decode: func(_ string, value []byte) (string, error) {
			if bytes.HasSuffix(value, []byte("?")) {
				return "", errors.New("who knows")
			}
			return string(value), nil
		},
	})
}

// say adds a letter to a row.
func say(name, letter string) table.Edit[string] {
	return table.Edit[string]{Key: "word/of/" + name, What: "say " + letter, Decide: func(old row) ([]byte, error) {
		if strings.HasSuffix(old.Value, letter) {
			return nil, ledger.ErrUnchanged
		}
		return []byte(old.Value + letter), nil
	}}
}

// faulty is a store with a fault at its next commit.
type faulty struct {
	eventlog.Store
	next    func(commit func() error) error
	commits int
}

func (f *faulty) Commit(ctx context.Context, flush []eventlog.Entry) (out []eventlog.Outcome, err error) {
	f.commits++
	next := f.next
	if f.next = nil; next == nil {
		return f.Store.Commit(ctx, flush)
	}
	err = next(func() error { out, err = f.Store.Commit(ctx, flush); return err })
	return out, err
}

func TestAChangeIsDecidedByTheRowThatItChanges(t *testing.T) {
	everystore.Run(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		store := &faulty{Store: reopen(t)}
		here, there := open(everystore.Direct(store), new(bytes.Buffer)), open(everystore.Direct(store), new(bytes.Buffer))
		edit := func(of *words, e table.Edit[string]) {
			t.Helper()
			if err := of.Edit(t.Context(), e)[0]; err != nil {
				t.Error(err)
			}
		}
		has := func(want string) {
			t.Helper()
			rows, err := there.Read(t.Context())
			if err != nil || rows["word/of/a"].Value != want {
				t.Errorf("%+v, %v; want %q", rows, err, want)
			}
		}
		edit(here, say("a", "x"))
		for _, c := range []struct {
			fault func(commit func() error) error
			want  string
		}{
			{func(commit func() error) error { edit(there, say("a", "o")); return commit() }, "xoyz"},        // another comes first
			{func(commit func() error) error { return errors.Join(commit(), eventlog.ErrUnsure) }, "xoyzyz"}, // the answer is lost
			{func(func() error) error { return eventlog.ErrUnsure }, "xoyzyzyz"},                             // the change is lost
			{func(commit func() error) error { // the row is deleted
				edit(there, table.Edit[string]{Key: "word/of/a", Decide: table.Delete[string]})
				return commit()
			}, "yz"},
		} {
			store.next = c.fault
			edit(here, say("a", "y"))
			edit(here, say("a", "z"))
			has(c.want)
		}
		before := store.commits
		if edit(here, say("a", "z")); store.commits != before {
			t.Error("a change that is none is committed")
		}
		if errs := here.Edit(t.Context(), say("a", "!"), say("a", "!")); errors.Join(errs...) != nil {
			t.Error(errs)
		}
		if has("yz!"); store.commits != before+1 {
			t.Errorf("one change, told twice, was made %d times", store.commits-before)
		}
	})
}

// Rows that cannot be read count, too, and rows of another kind do not.
func TestRowsAreCountedOneByOne(t *testing.T) {
	store, said := memory.New(), new(bytes.Buffer)
	put := func(key, value string) {
		t.Helper()
		if _, err := store.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte(value)}}}}); err != nil {
			t.Fatal(err)
		}
	}
	put("word/of/a", "what?")
	put("word/secret", "x")
	all := open(everystore.Direct(store), said)
	edits := []table.Edit[string]{say("b", "x"), say("c", "x"), say("d", "x"), say("b", "x"), {Key: "word/of/a", What: "forget a", Decide: table.Delete[string]}, say("e", "x")}
	for i, errs := range [][]error{all.Try(t.Context(), edits...), all.Edit(t.Context(), edits...)} {
		for at, err := range errs {
			if full := at == 2; errors.Is(err, errFull) != full || err != nil && !full {
				t.Errorf("%d: %d: %v", i, at, err)
			}
		}
	}
	rows, err := all.Read(t.Context())
	if recent, _ := all.Recent(t.Context(), time.Hour); err != nil || len(rows) != 4 || recent.Value != 4 {
		t.Errorf("%+v, %+v, %v", rows, recent, err)
	}
}

func TestRowsThatCannotBeReadAreLoggedOnceAndCanBeDeleted(t *testing.T) {
	store, said := memory.New(), new(bytes.Buffer)
	all := open(everystore.Direct(store), said)
	if err := errors.Join(all.Edit(t.Context(), say("a", "x"), say("b", "what?"))...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if rows, err := all.Read(t.Context()); err != nil || rows["word/of/b"].Err == nil || rows["word/of/b"].Value != "" {
			t.Errorf("%+v, %v", rows, err)
		}
	}
	if strings.Count(said.String(), "cannot be read; delete it") != 1 || !strings.Contains(said.String(), "word/of/b") {
		t.Errorf("the log says %s", said)
	}
	if n, err := all.DeleteDamaged(t.Context()); n != 1 || err != nil {
		t.Errorf("%d were deleted, %v", n, err)
	}
	if rows, err := all.Read(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
}
