package load

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/internal/ledger"
)

// Price is what the paper's client posts: a minute of a currency pair.
type Price struct {
	Time       string  `json:"time"`
	TickVolume int     `json:"tickVolume"`
	RealVolume int     `json:"realVolume"`
	High       float64 `json:"high"`
	Low        float64 `json:"low"`
	Open       float64 `json:"open"`
	Close      float64 `json:"close"`
}

var newest = time.Date(2023, 2, 28, 23, 59, 0, 0, time.UTC)

// made returns row n of those that are made, because the paper's file is not to be had: newest
// first, and the first two are those that the paper prints.
func made(n uint64) Price {
	p := Price{Time: newest.Add(-time.Duration(n) * time.Minute).Format("2006-01-02T15:04:05")}
	switch n {
	case 0:
		p.TickVolume, p.High, p.Low, p.Open, p.Close = 2, 1.058, 1.0579, 1.0579, 1.058
		return p
	case 1:
		p.TickVolume, p.High, p.Low, p.Open, p.Close = 1, 1.0579, 1.0579, 1.0579, 1.0579
		return p
	}
	random := rand.New(rand.NewPCG(1, n))
	round := func(x float64) float64 { return math.Round(x*1e5) / 1e5 }
	p.TickVolume = 1 + random.IntN(200)
	p.Open = round(1.0579 + 0.02*math.Sin(float64(n)/5000) + random.Float64()/1000)
	p.Close = round(p.Open + (random.Float64()-0.5)/1000)
	p.High, p.Low = round(max(p.Open, p.Close)+random.Float64()/5000), round(min(p.Open, p.Close)-random.Float64()/5000)
	return p
}

// stamped is a price with its stamp, as it is sent; a service may add fields of its own.
type stamped struct {
	Price
	Stamp []byte `json:"_b"`
}

// madeRows is how many rows are made before they begin again.
const madeRows = 500_000

// at returns row n; after the last one they begin again.
func (p *Prices) at(n uint64) Price {
	if p == nil {
		return made(n % madeRows)
	}
	return p.rows[n%uint64(len(p.rows))]
}

// Payload returns a price as JSON, with the stamp in a field of its own. The stamp covers the
// price, too.
func (p *Prices) Payload(s ledger.Stamp) []byte {
	row := p.at(s.Seq + uint64(s.Writer)*7919)
	body, err := json.Marshal(stamped{row, header(s, row.sum())})
	if err != nil {
		panic(err) // its fields can be encoded
	}
	return body
}

func (p Price) sum() uint32 {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return ledger.Checksum(text)
}

// header is a stamp of ledger.StampSize bytes that ends with a checksum of what belongs to it, and
// begins with one of itself.
func header(s ledger.Stamp, sum uint32) []byte {
	b := make([]byte, ledger.StampSize)
	s.Put(b)
	binary.BigEndian.PutUint32(b[ledger.StampSize-4:], sum)
	binary.BigEndian.PutUint32(b, ledger.Checksum(b[4:]))
	return b
}

// Read returns the stamp of a payload, also of one that is a price, or ledger.ErrCorrupt.
func Read(b []byte) (ledger.Stamp, error) {
	if s, err := ledger.Read(b); err == nil || !isJSON(b) {
		return s, err
	}
	return readPrice(b)
}

// Deliver notes in a ledger what a group got. It returns the payload's stamp; ok is false for what
// is not of the ledger's run.
func Deliver(book *ledger.Ledger, group string, payload []byte) (s ledger.Stamp, ok bool) {
	s, err := Read(payload)
	if err != nil {
		book.Damaged(group, len(payload))
		return s, false
	}
	return s, book.Delivered(group, s)
}

// readPrice returns the stamp of a price, wherever its fields are in the JSON.
func readPrice(text []byte) (ledger.Stamp, error) {
	var p stamped
	if json.Unmarshal(text, &p) != nil || len(p.Stamp) != ledger.StampSize {
		return ledger.Stamp{}, ledger.ErrCorrupt
	}
	b := p.Stamp
	if binary.BigEndian.Uint32(b) != ledger.Checksum(b[4:]) || binary.BigEndian.Uint32(b[ledger.StampSize-4:]) != p.sum() {
		return ledger.Stamp{}, ledger.ErrCorrupt
	}
	return ledger.StampIn(b), nil
}

func isJSON(b []byte) bool { return bytes.HasPrefix(b, []byte("{")) }
