package claims

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// A state in the store:
//
//	{"writer":"9f3c-17","texts":["w1","refused"],"parts":[{"partition":4,"floor":10,"next":15,
//	   "runs":"CEjRWeA2#1+1790000000000@0dsw#1+1790000005000!1"}]}
//
// It is written with each claim and each ack, and a partition may have ten thousand claims. So runs
// is one text, of some ten bytes for each run: a letter, the number of messages if it is not 1, and
// then what is different from the last run before it with the same letter (c and C count as the
// same letter), in this order:
//
//	d        done
//	s        waiting, and skipped: no worker had the messages
//	w        waiting
//	c        claimed
//	CEjRWeA  claimed, with another nonce: its four bytes in base64
//	#2       attempt
//	+50 -50  until, as the difference; the first one is the difference to 0
//	@0       worker: an index in texts
//	!1       reason: an index in texts
//
// SQL reads it, too: weir.queue_runs. Older versions of weir wrote a list of objects (storedRun).
type storedState struct {
	Writer   string       `json:"writer"`
	After    string       `json:"after,omitempty"`
	Tokens   float64      `json:"tokens,omitempty"`
	TokensAt Time         `json:"tokens_at,omitempty"`
	Texts    []string     `json:"texts,omitempty"`
	Parts    []storedPart `json:"parts"`
}

type storedPart struct {
	Partition eventlog.Partition `json:"partition"`
	Floor     eventlog.Offset    `json:"floor"`
	Next      eventlog.Offset    `json:"next"`
	Runs      json.RawMessage    `json:"runs,omitempty"`
}

type storedRun struct {
	N       int64  `json:"n"`
	Fate    string `json:"fate"`
	Attempt int32  `json:"attempt"`
	Until   Time   `json:"until"`
	Nonce   uint32 `json:"nonce"`
	Worker  string `json:"worker"`
	Reason  string `json:"reason"`
}

// textsMax bounds the texts of a stored state, in bytes: names of workers, and why attempts failed.
// Each text is there once, but each message may have another one, and an ack writes all of them
// again. textOmitted stands for the texts that are beyond the bound.
const (
	textsMax    = 16 << 10
	textOmitted = "(not kept: there are too many different ones)"
)

// RunSize is about what a run takes in a stored state, in bytes.
const RunSize = 12

// nonceText is a nonce in a stored state.
func nonceText(nonce uint32) string {
	return base64.RawStdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, nonce))
}

// nonceSize is the length of nonceText.
var nonceSize = base64.RawStdEncoding.EncodedLen(4)

// Mentions returns two texts. If a message is claimed with a nonce, its stored state has the first
// one, or the second if an older version of weir wrote it.
func Mentions(nonce uint32) (texts [2][]byte) {
	return [2][]byte{[]byte("C" + nonceText(nonce)), fmt.Appendf(nil, `"nonce":%d`, nonce)}
}

// Encode returns the value of the key that holds the state.
func (s *State) Encode() []byte {
	stored := storedState{Writer: s.Writer, After: s.After, Tokens: s.tokens, TokensAt: s.tokensAt, Parts: make([]storedPart, len(s.Parts))}
	indexes, bytes := make(map[string]int), 0
	index := func(text string) int {
		i, there := indexes[text]
		if !there && text != "" && bytes+len(text) > textsMax {
			text = textOmitted
			i, there = indexes[text]
		}
		if !there {
			bytes += len(text)
			i = len(stored.Texts)
			indexes[text], stored.Texts = i, append(stored.Texts, text)
		}
		return i
	}
	for i, p := range s.Parts {
		sp := storedPart{Partition: p.Partition, Floor: p.Floor, Next: p.Next}
		if len(p.Runs) > 0 {
			sp.Runs = append(appendRuns([]byte{'"'}, p.Runs, index), '"')
		}
		stored.Parts[i] = sp
	}
	value, err := json.Marshal(stored)
	if err != nil {
		panic(fmt.Sprintf("claims: encode state: %v", err)) // JSON can encode all its fields
	}
	return value
}

// appendRuns appends the text of runs. index returns the index of a text.
func appendRuns(to []byte, runs []Run, index func(string) int) []byte {
	last := make(map[Fate]Run)
	number := func(letter byte, n int64) { to = strconv.AppendInt(append(to, letter), n, 10) }
	for _, r := range runs {
		before, any := last[r.Fate]
		switch {
		case r.Fate == Done:
			to, before = append(to, 'd'), r
		case r.like(Run{Fate: Waiting}):
			to, before = append(to, 's'), r
		case r.Fate == Waiting:
			to = append(to, 'w')
		case any && r.Nonce == before.Nonce:
			to = append(to, 'c')
		default:
			to = append(append(to, 'C'), nonceText(r.Nonce)...)
		}
		if r.N != 1 {
			to = strconv.AppendInt(to, r.N, 10)
		}
		if r.Attempt != before.Attempt {
			number('#', int64(r.Attempt))
		}
		if r.Until > before.Until {
			number('+', int64(r.Until-before.Until))
		} else if r.Until < before.Until {
			number('-', int64(before.Until-r.Until))
		}
		if r.Worker != before.Worker {
			number('@', int64(index(r.Worker)))
		}
		if r.Reason != before.Reason {
			number('!', int64(index(r.Reason)))
		}
		if !r.like(Run{Fate: Waiting}) {
			last[r.Fate] = r
		}
	}
	return to
}

// Decode reads a state, and refuses one that contradicts itself.
func Decode(value []byte) (*State, error) {
	var stored storedState
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, err
	}
	s := &State{Writer: stored.Writer, After: stored.After, tokens: stored.Tokens, tokensAt: stored.TokensAt}
	for _, sp := range stored.Parts {
		runs, err := decodeRuns(sp.Runs, stored.Texts)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", sp.Partition, err)
		}
		covered := sp.Floor
		for i := range runs {
			runs[i].From = covered
			covered = runs[i].End()
		}
		if covered != sp.Next {
			return nil, fmt.Errorf("partition %d: its runs cover [%d, %d), not up to next %d", sp.Partition, sp.Floor, covered, sp.Next)
		}
		if _, twice := s.Find(sp.Partition); twice {
			return nil, fmt.Errorf("partition %d: it has two states", sp.Partition)
		}
		p := s.Part(sp.Partition)
		p.Floor, p.Next, p.Runs = sp.Floor, sp.Next, runs
	}
	return s, nil
}

// decodeRuns reads the runs of a partition, without their offsets.
func decodeRuns(stored json.RawMessage, texts []string) ([]Run, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	if stored[0] == '[' {
		return decodeOlder(stored)
	}
	var text string
	if err := json.Unmarshal(stored, &text); err != nil {
		return nil, err
	}
	return parseRuns(text, texts)
}

var errNoRun = errors.New("it is no run")

// parseRuns is the reverse of appendRuns.
func parseRuns(text string, texts []string) (runs []Run, err error) {
	last := make(map[Fate]Run)
	for rest := text; rest != ""; {
		at := len(text) - len(rest)
		var r Run
		if r, rest, err = parseRun(rest, texts, last); err != nil {
			return nil, fmt.Errorf("run %d, at byte %d of %d: %w", len(runs), at, len(text), err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// parseRun reads the first run of a text. last has the last run of each fate.
func parseRun(text string, texts []string, last map[Fate]Run) (r Run, rest string, err error) {
	letter, rest := text[0], text[1:]
	switch letter {
	case 'd':
		r.Fate = Done
	case 's':
		r.Fate = Waiting
	case 'w':
		r = last[Waiting]
		r.Fate = Waiting
	case 'c':
		var any bool
		if r, any = last[Claimed]; !any {
			return r, rest, errNoRun
		}
	case 'C':
		if len(rest) < nonceSize {
			return r, rest, errNoRun
		}
		nonce, err := base64.RawStdEncoding.DecodeString(rest[:nonceSize])
		if err != nil {
			return r, rest, err
		}
		r = last[Claimed]
		r.Fate, r.Nonce, rest = Claimed, binary.BigEndian.Uint32(nonce), rest[nonceSize:]
	default:
		return r, rest, errNoRun
	}
	r.N = 1
	if rest != "" && isDigit(rest[0]) {
		if r.N, rest, err = parseNumber(rest, math.MaxInt64); err == nil && r.N < 1 {
			err = errNoRun
		}
	}
	if letter == 'd' || letter == 's' {
		return r, rest, err
	}
	for err == nil && rest != "" && strings.IndexByte("#+-@!", rest[0]) >= 0 {
		field := rest[0]
		most := int64(math.MaxInt64)
		switch field {
		case '#':
			most = math.MaxInt32
		case '@', '!':
			most = int64(len(texts)) - 1
		}
		var n int64
		if n, rest, err = parseNumber(rest[1:], most); err != nil {
			break
		}
		switch field {
		case '#':
			r.Attempt = int32(n)
		case '+':
			r.Until += Time(n)
		case '-':
			r.Until -= Time(n)
		case '@':
			r.Worker = texts[n]
		case '!':
			r.Reason = texts[n]
		}
	}
	last[r.Fate] = r
	return r, rest, err
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// parseNumber reads the number that a text begins with: 0 to most.
func parseNumber(text string, most int64) (n int64, rest string, err error) {
	digits := 0
	for digits < len(text) && isDigit(text[digits]) {
		digits++
	}
	n, err = strconv.ParseInt(text[:digits], 10, 64)
	if err == nil && n > most {
		err = fmt.Errorf("%d is more than %d", n, most)
	}
	return n, text[digits:], err
}

var fateNames = map[Fate]string{Done: "done", Claimed: "claimed", Waiting: "waiting"}

// String returns the fate's name, as people see it.
func (f Fate) String() string { return fateNames[f] }

// decodeOlder reads runs as older versions wrote them.
func decodeOlder(stored json.RawMessage) (runs []Run, err error) {
	fates := map[string]Fate{fateNames[Done]: Done, fateNames[Claimed]: Claimed, fateNames[Waiting]: Waiting}
	var older []storedRun
	if err := json.Unmarshal(stored, &older); err != nil {
		return nil, err
	}
	for i, r := range older {
		f, known := fates[r.Fate]
		if !known || r.N <= 0 {
			return nil, fmt.Errorf("run %d: %d messages with the fate %q", i, r.N, r.Fate)
		}
		runs = append(runs, Run{N: r.N, Fate: f, Attempt: r.Attempt, Until: r.Until, Nonce: r.Nonce, Worker: r.Worker, Reason: r.Reason})
	}
	return runs, nil
}
