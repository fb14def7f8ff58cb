package queue

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
// then what is not as in the last run before it that has the same letter, in this order:
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
// again. textOmitted stands for those beyond.
const (
	textsMax    = 16 << 10
	textOmitted = "(not kept: there are too many different ones)"
)

// runSize is about what a run takes in a stored state, in bytes.
const runSize = 12

// nonceText is a nonce in a stored state.
func nonceText(nonce uint32) string {
	return base64.RawStdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, nonce))
}

// nonceSize is the length of nonceText.
var nonceSize = base64.RawStdEncoding.EncodedLen(4)

// mentions returns what a stored state has if a message is claimed with a nonce: by this version of
// weir, and by older ones.
func mentions(nonce uint32) (texts [2][]byte) {
	return [2][]byte{[]byte("C" + nonceText(nonce)), fmt.Appendf(nil, `"nonce":%d`, nonce)}
}

func (s *state) encode() []byte {
	stored := storedState{Writer: s.writer, After: s.after, Tokens: s.tokens, TokensAt: s.tokensAt, Parts: make([]storedPart, len(s.parts))}
	indexes, bytes := make(map[string]int), 0
	index := func(text string) int {
		i, there := indexes[text]
		if !there && bytes+len(text) > textsMax {
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
	for i, p := range s.parts {
		sp := storedPart{Partition: p.partition, Floor: p.floor, Next: p.next}
		if len(p.runs) > 0 {
			sp.Runs = append(appendRuns([]byte{'"'}, p.runs, index), '"')
		}
		stored.Parts[i] = sp
	}
	value, err := json.Marshal(stored)
	if err != nil {
		panic(fmt.Sprintf("queue: encode state: %v", err)) // JSON can encode all its fields
	}
	return value
}

// appendRuns appends the text of runs. index returns the index of a text.
func appendRuns(to []byte, runs []run, index func(string) int) []byte {
	last := make(map[fate]run)
	number := func(letter byte, n int64) { to = strconv.AppendInt(append(to, letter), n, 10) }
	for _, r := range runs {
		before, any := last[r.fate]
		switch {
		case r.fate == done:
			to, before = append(to, 'd'), r
		case r.like(run{fate: waiting}):
			to, before = append(to, 's'), r
		case r.fate == waiting:
			to = append(to, 'w')
		case any && r.nonce == before.nonce:
			to = append(to, 'c')
		default:
			to = append(append(to, 'C'), nonceText(r.nonce)...)
		}
		if r.n != 1 {
			to = strconv.AppendInt(to, r.n, 10)
		}
		if r.attempt != before.attempt {
			number('#', int64(r.attempt))
		}
		if r.until > before.until {
			number('+', int64(r.until-before.until))
		} else if r.until < before.until {
			number('-', int64(before.until-r.until))
		}
		if r.worker != before.worker {
			number('@', int64(index(r.worker)))
		}
		if r.reason != before.reason {
			number('!', int64(index(r.reason)))
		}
		if !r.like(run{fate: waiting}) {
			last[r.fate] = r
		}
	}
	return to
}

// decode reads a state, and refuses one that contradicts itself.
func decode(value []byte) (*state, error) {
	var stored storedState
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, err
	}
	s := &state{writer: stored.Writer, after: stored.After, tokens: stored.Tokens, tokensAt: stored.TokensAt}
	for _, sp := range stored.Parts {
		runs, err := decodeRuns(sp.Runs, stored.Texts)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", sp.Partition, err)
		}
		covered := sp.Floor
		for i := range runs {
			runs[i].from = covered
			covered = runs[i].end()
		}
		if covered != sp.Next {
			return nil, fmt.Errorf("partition %d: its runs cover [%d, %d), not up to next %d", sp.Partition, sp.Floor, covered, sp.Next)
		}
		p := s.part(sp.Partition)
		p.floor, p.next, p.runs = sp.Floor, sp.Next, runs
	}
	return s, nil
}

// decodeRuns reads the runs of a partition, without their offsets.
func decodeRuns(stored json.RawMessage, texts []string) ([]run, error) {
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
func parseRuns(text string, texts []string) (runs []run, err error) {
	last := make(map[fate]run)
	for rest := text; rest != ""; {
		at := len(text) - len(rest)
		var r run
		if r, rest, err = parseRun(rest, texts, last); err != nil {
			return nil, fmt.Errorf("run %d, at byte %d of %d: %w", len(runs), at, len(text), err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// parseRun reads the first run of a text. last has the last run of each fate.
func parseRun(text string, texts []string, last map[fate]run) (r run, rest string, err error) {
	letter, rest := text[0], text[1:]
	switch letter {
	case 'd':
		r.fate = done
	case 's':
		r.fate = waiting
	case 'w':
		r = last[waiting]
		r.fate = waiting
	case 'c':
		var any bool
		if r, any = last[claimed]; !any {
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
		r = last[claimed]
		r.fate, r.nonce, rest = claimed, binary.BigEndian.Uint32(nonce), rest[nonceSize:]
	default:
		return r, rest, errNoRun
	}
	r.n = 1
	if rest != "" && isDigit(rest[0]) {
		if r.n, rest, err = parseNumber(rest, math.MaxInt64); err == nil && r.n < 1 {
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
			r.attempt = int32(n)
		case '+':
			r.until += Time(n)
		case '-':
			r.until -= Time(n)
		case '@':
			r.worker = texts[n]
		case '!':
			r.reason = texts[n]
		}
	}
	last[r.fate] = r
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

var fateNames = map[fate]string{done: "done", claimed: "claimed", waiting: "waiting"}

// decodeOlder reads runs as older versions wrote them.
func decodeOlder(stored json.RawMessage) (runs []run, err error) {
	fates := map[string]fate{fateNames[done]: done, fateNames[claimed]: claimed, fateNames[waiting]: waiting}
	var older []storedRun
	if err := json.Unmarshal(stored, &older); err != nil {
		return nil, err
	}
	for i, r := range older {
		f, known := fates[r.Fate]
		if !known || r.N <= 0 {
			return nil, fmt.Errorf("run %d: %d messages with the fate %q", i, r.N, r.Fate)
		}
		runs = append(runs, run{n: r.N, fate: f, attempt: r.Attempt, until: r.Until, nonce: r.Nonce, worker: r.Worker, reason: r.Reason})
	}
	return runs, nil
}
