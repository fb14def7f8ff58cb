package load

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"time"
)

// Price is what the paper's client posts: a minute of a currency pair. Its file of such rows is not
// to be had, so these are made: newest first, and the first two are those that the paper prints.
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

// PriceAt returns row n.
func PriceAt(n uint64) Price {
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

// priceRows is how many rows there are before they begin again.
const priceRows = 500_000

// PricePayload returns a price as JSON, with the stamp in a field of its own. The stamp covers the
// price, too.
func PricePayload(s Stamp) []byte {
	row := PriceAt((s.Seq + uint64(s.Writer)*7919) % priceRows)
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
	return crc32.Checksum(text, castagnoli)
}

// header is a stamp of StampSize bytes that ends with a checksum of what belongs to it, and begins
// with one of itself.
func header(s Stamp, sum uint32) []byte {
	b := make([]byte, StampSize)
	put(b, s)
	binary.BigEndian.PutUint32(b[StampSize-4:], sum)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
	return b
}

// readPrice returns the stamp of a price, wherever its fields are in the JSON.
func readPrice(text []byte) (Stamp, error) {
	var p stamped
	if json.Unmarshal(text, &p) != nil || len(p.Stamp) != StampSize {
		return Stamp{}, ErrCorrupt
	}
	b := p.Stamp
	if binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:], castagnoli) || binary.BigEndian.Uint32(b[StampSize-4:]) != p.sum() {
		return Stamp{}, ErrCorrupt
	}
	return get(b), nil
}

func isJSON(b []byte) bool { return bytes.HasPrefix(b, []byte("{")) }
