package eventlog

import (
	"slices"
	"strconv"
)

// Content is what a store holds, as the earlier entries of a flush have left it. A store that
// judges entries in this process has one (Entry.Refusal).
type Content interface {
	// Version returns the version of a key; 0: there is no such key.
	Version(key string) (Version, error)
	// Exists reports whether there is a partition. It is asked for every partition that an entry
	// has batches for or replaces.
	Exists(id Partition) (bool, error)
	// Holds reports whether the batches of a partition that exists hold exactly the offsets of a
	// replacement, and were not trimmed.
	Holds(r Replace) (bool, error)
}

// Refusal returns why an entry is refused: ErrStale, ErrNoPartition, or noSpace, which is nil while
// there is space for records. err: the content could not be read.
func (e *Entry) Refusal(of Content, noSpace error) (refusal, err error) {
	for _, c := range e.Checks {
		version, err := of.Version(c.Key)
		if err != nil {
			return nil, err
		}
		if version != c.Version {
			return ErrStale, nil
		}
	}
	var opened []Partition
	for _, b := range e.Batches {
		exists, err := of.Exists(b.Partition)
		switch {
		case err != nil:
			return nil, err
		case b.Records == 0:
			opened = append(opened, b.Partition)
		case noSpace != nil && !e.UsesReserve:
			return noSpace, nil
		case !exists && !slices.Contains(opened, b.Partition):
			return ErrNoPartition, nil
		}
	}
	for _, r := range e.Replaces {
		exists, err := of.Exists(r.Partition)
		switch {
		case err != nil:
			return nil, err
		case noSpace != nil:
			return noSpace, nil
		case !exists:
			return ErrNoPartition, nil
		}
		if whole, err := of.Holds(r); err != nil {
			return nil, err
		} else if !whole {
			return ErrStale, nil
		}
	}
	return nil, nil
}

// Stored returns the value that a put gives its key; nil: it deletes the key. base has the base
// offsets of the entry's batches. The bytes are those of Value unless an offset is added to them:
// whoever keeps them clones them.
func (p *Put) Stored(base []Offset) []byte {
	if p.Value == nil || p.AddBase == 0 {
		return p.Value
	}
	return strconv.AppendInt(slices.Clip(p.Value), int64(base[p.AddBase-1]), 10)
}
