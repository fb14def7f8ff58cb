package load

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// Prices are the rows that payloads have, in turn: those of a file. nil: they are made.
type Prices struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`

	rows []Price
}

// priceColumns are those of the paper's file, in its order.
var priceColumns = []string{"Time", "Tick_Volume", "Real_Volume", "High", "Low", "Open", "Close"}

// pricesMost bounds a file: its rows are kept in memory.
const pricesMost = 256 << 20

// ReadPrices reads a file such as the paper's: a line of headings and then a row in each line, of
// seven columns with tabs between.
func ReadPrices(file string) (*Prices, error) {
	info, err := os.Stat(file)
	if err == nil && info.Size() > pricesMost {
		err = fmt.Errorf("%s has %d bytes, and at most %d are read", file, info.Size(), pricesMost)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	p := &Prices{File: file, SHA256: hex.EncodeToString(sum[:])}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		row, err := parsePrice(strings.TrimRight(string(line), "\r\n"))
		switch {
		case n == 1 && err == nil:
			return nil, fmt.Errorf("%s, line 1: it is a row; headings were expected, such as %s", file, strings.Join(priceColumns, ", "))
		case n > 1 && err != nil:
			return nil, fmt.Errorf("%s, line %d: %w", file, n, err)
		case n > 1:
			p.rows = append(p.rows, row)
		}
	}
	if len(p.rows) == 0 {
		return nil, fmt.Errorf("%s has no row after its line of headings", file)
	}
	return p, nil
}

// Again reads the file once more, which must be as it was.
func (p *Prices) Again() (*Prices, error) {
	if p == nil {
		return nil, nil
	}
	again, err := ReadPrices(p.File)
	if err == nil && again.SHA256 != p.SHA256 {
		err = fmt.Errorf("%s is another file than it was: its SHA-256 is %s, and it was %s", p.File, again.SHA256, p.SHA256)
	}
	return again, err
}

func parsePrice(line string) (p Price, err error) {
	fields := strings.Split(line, "\t")
	if len(fields) != len(priceColumns) {
		return p, fmt.Errorf("it has %d columns; %d with tabs between were expected: %s", len(fields), len(priceColumns), strings.Join(priceColumns, ", "))
	}
	at, err := time.Parse("2006.01.02 15:04:05", fields[0])
	if err != nil {
		return p, fmt.Errorf("%s is %q; a time such as 2023.02.28 23:59:00 was expected", priceColumns[0], fields[0])
	}
	p.Time = at.Format("2006-01-02T15:04:05")
	for i, into := range []*int{&p.TickVolume, &p.RealVolume} {
		if *into, err = strconv.Atoi(fields[1+i]); err != nil {
			return p, fmt.Errorf("%s is %q; a whole number was expected", priceColumns[1+i], fields[1+i])
		}
	}
	for i, into := range []*float64{&p.High, &p.Low, &p.Open, &p.Close} {
		*into, err = strconv.ParseFloat(fields[3+i], 64)
		if math.IsNaN(*into) || math.IsInf(*into, 0) {
			err = errors.New("JSON has no such number")
		}
		if err != nil {
			return p, fmt.Errorf("%s is %q; a number such as 1.0579 was expected", priceColumns[3+i], fields[3+i])
		}
	}
	return p, nil
}
