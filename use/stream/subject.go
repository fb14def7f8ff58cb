package stream

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/ledger"
)

// Personal data can be forgotten although a log never changes: the data of events about a subject
// is encrypted with a key for that subject only, and ForgetSubject destroys the key. The key is in
// the store, and never in the log:
//
//	stream/subject/<topic id>/<subject>   the subject's key; {} once it is destroyed
//
// Each append checks the version of the keys that it used. So no process can use a key that another
// process has destroyed.

const (
	subjectMax  = 255   // bytes of a subject's name
	subjectKeys = 10000 // how many keys one process remembers, for appends
	keyIDLength = 16
	sealedMore  = 12 + 16 // bytes that encryption adds: nonce and tag
)

// subjectKey encrypts the data of events about a subject: AES-256 in GCM, with a random nonce for
// each event.
type subjectKey struct {
	ID  string `json:"id,omitempty"`
	Key []byte `json:"key,omitempty"`

	version eventlog.Version // 0: there is none
}

func (k subjectKey) isThere() bool { return len(k.Key) > 0 }

func (k subjectKey) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.Key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// about returns the additional data that binds a ciphertext to its event: it does not decrypt as
// the data of another event.
func (c *Category) about(stream, id, kind string) []byte {
	return fmt.Appendf(nil, "%s/%d/%s/%d/%s/%s", c.topic.ID, len(stream), stream, len(id), id, kind)
}

// ForgetSubject destroys a subject's key. Once it has returned, nobody can read the data of the
// events that were appended about the subject, in this category and in its topic: the events are
// Erased. A subject that has no key is forgotten already. Events that are appended later get a new
// key.
//
// What it cannot reach: earlier backups of the store, and the replaced value of the key, which the
// store may keep until it reuses the space (on S3 for at most two days and twice the option grace,
// while a weir runs); metadata and the subject's own name, which are not encrypted; snapshots,
// which hold what the application put there. After eventlog.ErrUnsure try again.
func (c *Category) ForgetSubject(ctx context.Context, subject string) error {
	if err := c.forgetSubject(ctx, subject); err != nil {
		return fmt.Errorf("forget subject %q of category %q: %w", shorten(subject), c.Name(), err)
	}
	return nil
}

func (c *Category) forgetSubject(ctx context.Context, subject string) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	name := c.key(subjectPrefix, subject)
	_, err := ledger.Change(ctx, c.owner.log, name, func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error) {
		k, err := subjectKeyIn(now)
		if err == nil && !k.isThere() {
			err = ledger.ErrUnchanged
		}
		with.UsesReserve = true
		if err == nil { // with a hash of the subject's name: the name itself is to be forgotten
			err = tell(ctx, c.owner.log, &with, name, audit.Event{Verb: audit.SubjectForget, Object: c.Name(), Before: map[string]string{"subject_sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(subject)))}})
		}
		return []byte("{}"), with, err
	})
	return err
}

func checkSubject(subject string) error {
	switch {
	case subject == "":
		return &eventlog.InvalidError{What: "subject", Value: subject, Why: "it is empty"}
	case len(subject) > subjectMax:
		return &eventlog.InvalidError{What: "subject", Value: shorten(subject), Why: fmt.Sprintf("it has %d bytes; at most %d are allowed", len(subject), subjectMax)}
	case !isText(subject):
		return &eventlog.InvalidError{What: "subject", Value: shorten(subject), Why: "it is not UTF-8, or has control characters"}
	}
	return nil
}

func subjectKeyIn(kv eventlog.KeyValue) (k subjectKey, err error) {
	if kv.Version > 0 {
		if err := json.Unmarshal(kv.Value, &k); err != nil {
			return k, fmt.Errorf("key %s does not hold a subject's key: %w; restore a backup", kv.Key, err)
		}
	}
	k.version = kv.Version
	return k, nil
}

// readKeys reads subjects' keys by their names, all with one read.
func (s *Streams) readKeys(ctx context.Context, names []string) (map[string]subjectKey, error) {
	keys := make(map[string]subjectKey, len(names))
	return keys, s.log.GetAll(ctx, names, func(kv eventlog.KeyValue) (err error) {
		keys[kv.Key], err = subjectKeyIn(kv)
		return err
	})
}

// keysFor returns subjects' keys for an append, and creates those that are not there: a read for
// all, and an entry for all that are new. Unless fresh is set, it takes the keys that this process
// remembers, which may have been destroyed meanwhile: then the append's check fails.
func (s *Streams) keysFor(ctx context.Context, names []string, fresh bool) (map[string]subjectKey, error) {
	keys := make(map[string]subjectKey, len(names))
	if !fresh {
		s.mu.Lock()
		for _, name := range names {
			if k, known := s.keys[name]; known {
				keys[name] = k
			}
		}
		s.mu.Unlock()
	}
	for {
		missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return keys[name].isThere() })
		if len(missing) == 0 {
			return keys, nil
		}
		found, err := s.readKeys(ctx, missing)
		if err != nil {
			return nil, err
		}
		var e eventlog.Entry
		for _, name := range missing {
			k := found[name]
			if !k.isThere() {
				made := subjectKey{ID: rand.Text()[:keyIDLength], Key: make([]byte, 32), version: k.version.Next()}
				_, _ = rand.Read(made.Key) // it never fails
				value, err := json.Marshal(made)
				if err != nil {
					return nil, err
				}
				e.Checks = append(e.Checks, eventlog.Check{Key: name, Version: k.version})
				e.Puts = append(e.Puts, eventlog.Put{Key: name, Version: made.version, Value: value, Secret: true})
				found[name] = made
			}
		}
		if len(e.Puts) > 0 {
			_, err := s.log.Append(ctx, e)
			if errors.Is(err, eventlog.ErrStale) {
				continue // another process made one of them
			}
			if err != nil {
				return nil, fmt.Errorf("the subject's key may have been created: %w", notAppended(err))
			}
		}
		s.mu.Lock()
		for name, k := range found {
			if len(s.keys) >= subjectKeys {
				clear(s.keys)
			}
			s.keys[name], keys[name] = k, k
		}
		s.mu.Unlock()
	}
}

// notAppended turns eventlog.ErrUnsure from an entry that comes before an append into
// eventlog.ErrUnavailable: the append itself has not begun.
func notAppended(err error) error {
	if errors.Is(err, eventlog.ErrUnsure) {
		return fmt.Errorf("%w: the events were not appended (%v)", eventlog.ErrUnavailable, err)
	}
	return err
}

// subjects returns the names of the keys of an append's subjects, each once.
func (c *Category) subjects(o *op) (names []string) {
	seen := make(map[string]bool)
	for _, e := range o.events {
		if e.Subject != "" && !seen[e.Subject] {
			seen[e.Subject] = true
			names = append(names, c.key(subjectPrefix, e.Subject))
		}
	}
	return names
}

// protect encrypts an append's events that are about a subject. prepare has left room for it in
// their records.
func (c *Category) protect(ctx context.Context, o *op, fresh bool) error {
	keys, err := c.owner.keysFor(ctx, c.subjects(o), fresh)
	if err != nil {
		return err
	}
	return c.protectWith(keys, o)
}

// protectWith is protect with keys that were read, by their names.
func (c *Category) protectWith(keys map[string]subjectKey, o *op) error {
	o.keys = nil
	used := make(map[string]bool)
	for i, e := range o.events {
		if e.Subject == "" {
			continue
		}
		name := c.key(subjectPrefix, e.Subject)
		k := keys[name]
		aead, err := k.aead()
		if err != nil {
			return fmt.Errorf("key %s: %w; restore a backup", name, err)
		}
		r := &o.records[i]
		r.Value = aead.Seal(r.Value[:0], nil, e.Data, c.about(o.stream, e.ID, e.Type))
		r.Headers[keyHeader].Value = []byte(k.ID)
		if !used[name] {
			used[name] = true
			o.keys = append(o.keys, eventlog.Check{Key: name, Version: k.version})
		}
	}
	return nil
}

// reveal decrypts events that were read. It reads the keys of all subjects from the store, with one
// read, and never from memory: a destroyed key must not be used.
func (c *Category) reveal(ctx context.Context, events []Event) error {
	var names []string
	seen := make(map[string]bool)
	for i := range events {
		if s := events[i].Subject; s != "" && !seen[s] {
			seen[s] = true
			names = append(names, c.key(subjectPrefix, s))
		}
	}
	keys, err := c.owner.readKeys(ctx, names)
	if err != nil {
		return err
	}
	for i := range events {
		if err := c.revealWith(keys, &events[i]); err != nil {
			return err
		}
	}
	return nil
}

// revealWith decrypts an event with keys that were read, by their names.
func (c *Category) revealWith(keys map[string]subjectKey, e *Event) error {
	if e.Subject == "" {
		return nil
	}
	k := keys[c.key(subjectPrefix, e.Subject)]
	if !k.isThere() || k.ID != e.key {
		e.Data, e.key, e.Erased = nil, "", true
		return nil
	}
	aead, err := k.aead()
	if err == nil {
		e.Data, err = aead.Open(nil, nil, e.Data, c.about(e.Stream, e.ID, e.Type))
	}
	if err != nil {
		return fmt.Errorf("the event with version %d cannot be decrypted with its subject's key: %w; restore a backup", e.Version, err)
	}
	e.key = ""
	return nil
}
