package mysql

import (
	"math"
	"strings"
)

// writer gathers statements into texts that fit into a packet. The last one commits.
type writer struct {
	*transaction
	most int // bytes of values in one text
	text text
}

// add adds a statement without an answer. It may send what was gathered before.
func (w *writer) add(statement string, args ...any) error {
	size := 0
	for _, a := range args {
		size += sizeOf(a)
	}
	if w.text.sql.Len() > 0 && w.text.bytes+w.text.sql.Len()+size > w.most {
		if err := w.run(&w.text); err != nil {
			return err
		}
		w.text = text{}
	}
	w.text.add(nil, statement, args...)
	return nil
}

// insert adds INSERT statements. The parameter each is the form of a row, and after is what follows
// the rows. A statement has at most rowsMax rows, and about half a text's bytes.
func (w *writer) insert(into, each, after string, values [][]any) error {
	for len(values) > 0 {
		n, size := 0, 0
		var args []any
		for n < len(values) && n < rowsMax {
			more := 0
			for _, v := range values[n] {
				more += sizeOf(v)
			}
			if n > 0 && size+more > w.most/2 {
				break
			}
			args, size, n = append(args, values[n]...), size+more, n+1
		}
		if err := w.add("INSERT INTO "+into+" VALUES "+each+strings.Repeat(", "+each, n-1)+after, args...); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// write writes what the entries change, and commits.
func (f *flush) write() error {
	w := &writer{transaction: f.transaction, most: min(textMax, f.packet/2-64<<10)}
	for _, r := range f.cuts {
		for _, table := range []string{"weir_piece", "weir_batch"} {
			if err := w.add("DELETE FROM "+table+" WHERE partition_id = ? AND base_offset >= ? AND base_offset < ?", int64(r.Partition), int64(r.From), int64(r.To)); err != nil {
				return err
			}
		}
	}
	if err := f.writeBatches(w); err != nil {
		return err
	}
	if err := f.writePartitions(w); err != nil {
		return err
	}
	if err := f.writeState(w); err != nil {
		return err
	}
	for _, id := range f.forgets {
		if err := w.add("DELETE FROM weir_partition WHERE id = ?", int64(id)); err != nil {
			return err
		}
		if err := w.add(addTrash, int64(id), int64(math.MaxInt64)); err != nil {
			return err
		}
	}
	return w.commit(&w.text)
}

func (f *flush) writeBatches(w *writer) error {
	var batches, pieces [][]any
	most := min(pieceMax, w.most/2)
	for _, b := range f.batches {
		batches = append(batches, []any{int64(b.partition), int64(b.Base), int64(b.Records), int64(b.MaxTime), int64(b.Newest), b.FirstByte, int64(b.Size)})
		for nth, rest := 0, b.bytes; len(rest) > 0; nth++ {
			n := min(len(rest), most)
			pieces = append(pieces, []any{int64(b.partition), int64(b.Base), nth, rest[:n]})
			rest = rest[n:]
		}
	}
	if err := w.insert("weir_piece", list(4), "", pieces); err != nil {
		return err
	}
	return w.insert("weir_batch", list(7), "", batches)
}

// writePartitions inserts the partitions that were created; that fails if another process created
// one meanwhile. The other partitions exist, and are locked.
func (f *flush) writePartitions(w *writer) error {
	var created, changed [][]any
	for id, p := range f.partitions {
		row := []any{int64(id), int64(p.First), int64(p.Next), p.FirstByte, p.NextByte, int64(p.Newest), int64(p.Replaced), p.Removed}
		if p.created {
			created = append(created, row)
		} else if p.changed {
			changed = append(changed, row)
		}
	}
	if err := w.insert("weir_partition", list(8), "", created); err != nil {
		return err
	}
	return w.insert("weir_partition", list(8), ` ON DUPLICATE KEY UPDATE first_offset = VALUES(first_offset), next_offset = VALUES(next_offset), first_byte = VALUES(first_byte),
		next_byte = VALUES(next_byte), newest = VALUES(newest), replaced = VALUES(replaced), removed = VALUES(removed)`, changed)
}

// writeState inserts keys that did not exist; that fails if another process put one meanwhile. The
// other keys exist, and are locked.
func (f *flush) writeState(w *writer) error {
	var created, changed [][]any
	for _, p := range f.puts {
		_, exists := f.versions[p.Key]
		switch row := []any{[]byte(p.Key), int64(p.Version), p.value}; {
		case p.value == nil && exists:
			if err := w.add("DELETE FROM weir_state WHERE k = ?", []byte(p.Key)); err != nil {
				return err
			}
		case p.value == nil:
		case exists:
			changed = append(changed, row)
		default:
			created = append(created, row)
		}
	}
	const row = "(?, ?, ?, " + now + ")"
	if err := w.insert("weir_state", row, "", created); err != nil {
		return err
	}
	return w.insert("weir_state", row, " ON DUPLICATE KEY UPDATE version = VALUES(version), value = VALUES(value), put_at = VALUES(put_at)", changed)
}
