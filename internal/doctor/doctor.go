// Package doctor names what an examination of a store can find.
package doctor

// Level tells how much a finding matters.
type Level int

const (
	// OK: as it should be.
	OK Level = iota
	// Warn: works, but costs speed, or will need care.
	Warn
	// Bad: acknowledged data can be lost, or the store cannot serve.
	Bad
)

func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	}
	return "bad"
}

// Finding is one fact about a store. Advice says what to do about it, and is empty where nothing
// needs doing.
type Finding struct {
	Name, Value string
	Level       Level
	Advice      string
}
