package eventlog

import "time"

// Silence tells for how long keys were not put, so that a process that should put one counts as
// dead after some time. KeyValue.Age alone does not tell: if the store's clock was set back, Age
// stays at 0 until the clock has reached the time at which the key was put. So the time for which
// this process has found a key at the same version counts, too. The zero value knows no key. Its
// methods must not be called concurrently.
type Silence struct {
	keys map[string]found
}

// found is a key as it was read first at its version.
type found struct {
	version Version
	first   time.Time // when the read that found it first had ended
	last    time.Time // when the read that found it last began
}

// Of returns for how long, at least, a key has not been put. asked is when its reading began.
func (s *Silence) Of(kv KeyValue, asked time.Time) time.Duration {
	f, is := s.keys[kv.Key]
	if !is || f.version != kv.Version {
		f = found{version: kv.Version, first: time.Now()}
	}
	f.last = asked
	if s.keys == nil {
		s.keys = make(map[string]found)
	}
	s.keys[kv.Key] = f
	return max(kv.Age, asked.Sub(f.first))
}

// Forget forgets the keys that no reading has found that began at asked or later.
func (s *Silence) Forget(asked time.Time) {
	for key, f := range s.keys {
		if f.last.Before(asked) {
			delete(s.keys, key)
		}
	}
}
