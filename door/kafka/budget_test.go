package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/seed"
)

// eachVersion runs f for every key and version that is served.
func eachVersion(t *testing.T, f func(t *testing.T, a *api, version int16)) {
	for _, a := range apis() {
		a.prepare()
		for v := a.min; v <= a.max; v++ {
			t.Run(a.key.Name()+"/v"+string('0'+rune(v/10))+string('0'+rune(v%10)), func(t *testing.T) { f(t, &a, v) })
		}
	}
}

// fill makes every field of a request random: lists of some elements, strings of some letters, no
// nulls.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" && name != "UnknownTags" {
				fill(r, v.Field(i))
			}
		}
	case reflect.Slice:
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat("x", r.IntN(200)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(256)))
	default:
		v.SetInt(int64(r.IntN(1 << 7)))
	}
}

func TestTheWalkSeesRequestsAsTheyAre(t *testing.T) {
	r := seed.Random(t)
	eachVersion(t, func(t *testing.T, a *api, version int16) {
		for range 50 {
			req := a.key.Request()
			fill(r, reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			raw := req.AppendTo(nil)
			w := wire{buf: raw, flexible: req.IsFlexible(), budget: math.MaxInt}
			w.walk(a.shape(version))
			if w.err != nil || len(w.buf) != 0 {
				t.Fatalf("the walk leaves %d of %d bytes and says %v, of %+v", len(w.buf), len(raw), w.err, req)
			}
			if len(raw) > 0 {
				w := wire{buf: raw[:len(raw)-1], flexible: req.IsFlexible(), budget: math.MaxInt}
				if w.walk(a.shape(version)); w.err == nil {
					t.Fatalf("the walk is content with one byte too few of %d, of %+v", len(raw), req)
				}
			}
		}
	})
}

// hostile is a body that claims as many elements as it can wherever the shape has an array: it goes
// down the path of arrays chosen by pick, and fills the rest of the frame with elements, or claims
// to.
func hostile(s *shape, flexible, honest bool, size int, pick func(n int) int) []byte {
	h := hostileBody{flexible: flexible, honest: honest, size: size, pick: pick}
	if cap(hostileSpace) < size+1024 {
		hostileSpace = make([]byte, 0, size+1024)
	}
	h.b = hostileSpace
	h.write(s)
	rest := h.b[min(len(h.b), size):size]
	clear(rest)
	return h.b[:size]
}

// hostileSpace is used again and again: the race detector makes fresh memory dear.
var hostileSpace []byte

type hostileBody struct {
	b        []byte
	flexible bool
	honest   bool // the elements claimed are there
	size     int
	pick     func(n int) int
	done     bool
}

func (h *hostileBody) length(n int) {
	if h.flexible {
		h.b = binary.AppendUvarint(h.b, uint64(n+1))
	} else {
		h.b = binary.BigEndian.AppendUint32(h.b, uint32(n))
	}
}

func (h *hostileBody) least(s *shape) {
	for i := range s.fields {
		f := &s.fields[i]
		switch {
		case f.kind == fixed:
			h.b = append(h.b, make([]byte, f.size)...)
		case f.kind == inlined:
			h.least(f.elem)
		case f.kind == optional:
			h.b = append(h.b, 0xff)
		case h.flexible:
			h.b = append(h.b, 1)
		case f.kind == text:
			h.b = append(h.b, 0, 0)
		default:
			h.b = append(h.b, 0, 0, 0, 0)
		}
	}
	if s.tagged {
		h.b = append(h.b, 0)
	}
}

func (h *hostileBody) write(s *shape) {
	var arrays []int
	for i, f := range s.fields {
		if f.kind == array {
			arrays = append(arrays, i)
		}
	}
	chosen := -1
	if len(arrays) > 0 {
		chosen = arrays[h.pick(len(arrays))]
	}
	for i := range s.fields {
		if h.done {
			return
		}
		if i != chosen {
			h.least(&shape{fields: s.fields[i : i+1]})
			continue
		}
		elem := s.fields[i].elem
		deeper := false
		for _, f := range elem.fields {
			deeper = deeper || f.kind == array
		}
		if deeper && h.pick(2) == 0 {
			h.length(1)
			h.write(elem)
			continue
		}
		room := h.size - len(h.b) - 8
		if !h.honest {
			h.length(room)
			h.done = true
			return
		}
		one := hostileBody{flexible: h.flexible}
		one.least(elem)
		n := room / len(one.b)
		h.length(n)
		h.b = append(h.b, bytes.Repeat(one.b, n)...)
		h.done = true
	}
}

var frameSpace []byte

// decodeCost is the memory that a decode takes from the allocator.
func decodeCost(a *api, version int16, body []byte) (allocated uint64, err error) {
	frame := append(frameSpace[:0], 0xff, 0xff) // no client id
	if a.shape(version).tagged {
		frame = append(frame, 0)
	}
	frame = append(frame, body...)
	frameSpace = frame
	c := call{api: a, request: request{header: header{length: len(frame) + headerMin, key: int16(a.key), version: version}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var w walked
	if w, err = c.walk(frame); err == nil {
		err = c.decode(w)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func TestHostileCountsCostAtMostEightTimesTheFrame(t *testing.T) {
	eachVersion(t, func(t *testing.T, a *api, version int16) {
		size := smallFrameMax
		if a.large {
			size = 16 << 20
		}
		if version < a.max {
			size /= 16 // the bound is a ratio; the newest version shows it at full size
		}
		flexible := a.shape(version).tagged
		seen := make(map[string]bool)
		for path := range 8 { // which array, and how deep
			for _, honest := range []bool{false, true} {
				bits, taken := path, fmt.Sprint(honest)
				pick := func(n int) int {
					k := bits % n
					bits /= n
					taken += fmt.Sprint("/", k, " of ", n)
					return k
				}
				size := size
				if honest {
					size = min(size, 256<<10) // the bound is a ratio, and a million elements take their time
				}
				body := hostile(a.shape(version), flexible, honest, size, pick)
				if seen[taken] {
					continue
				}
				seen[taken] = true
				cost, err := decodeCost(a, version, body)
				if limit := uint64(decodeFactor*size+decodeSlack) * arrayCopies; cost > limit {
					t.Errorf("path %d, honest %v: %d bytes cost %d, the limit is %d (%v)", path, honest, size, cost, limit, err)
				}
			}
		}
	})
}

func TestHostileTagsAreRefusedAtOnce(t *testing.T) {
	eachVersion(t, func(t *testing.T, a *api, version int16) {
		if !a.shape(version).tagged {
			return
		}
		h := hostileBody{flexible: true}
		h.least(a.shape(version))
		body := h.b[:len(h.b)-1] // without its tags
		for name, tags := range map[string][]byte{
			"2^28 tags":               binary.AppendUvarint(nil, 1<<28),
			"2^32-1 tags":             binary.AppendUvarint(nil, math.MaxUint32),
			"65 tags":                 append(binary.AppendUvarint(nil, 65), make([]byte, 130)...),
			"a tag larger than it is": {1, 99, 0xff, 0xff, 0x03, 1},
			"a tag twice":             {2, 99, 0, 99, 0},
			"tags out of order":       {2, 99, 0, 98, 0},
			"tags that are not there": {3, 99, 0},
			"a count without end":     {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		} {
			cost, err := decodeCost(a, version, append(body[:len(body):len(body)], tags...))
			if err == nil {
				t.Errorf("%s: accepted", name)
			}
			if cost > decodeSlack {
				t.Errorf("%s: cost %d bytes", name, cost)
			}
		}
		if _, err := decodeCost(a, version, append(body[:len(body):len(body)], 1, 99, 2, 'h', 'i')); err != nil {
			t.Errorf("an unknown tag, as later versions may send: %v", err)
		}
	})
}

func TestLengthsPastTheEndAreRefused(t *testing.T) {
	for name, body := range map[string][]byte{
		"name past the end":        {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 'a', 0, 0, 0},
		"null name":                {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"varint of six bytes":      {0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"varint past 32 bits":      {0xff, 0xff, 0xff, 0xff, 0x7f},
		"count of 2^31-1":          {0x80, 0x80, 0x80, 0x80, 0x08},
		"as many as bytes":         append([]byte{200, 1}, make([]byte, 199)...),
		"nothing":                  {},
		"flags missing":            {1},
		"count without its second": {0x80},
	} {
		a := findAPI(t, kmsg.Metadata)
		if _, err := decodeCost(a, 12, body); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	a := findAPI(t, kmsg.Metadata)
	for name, body := range map[string][]byte{
		"count of -2":       {0xff, 0xff, 0xff, 0xfe, 1, 1, 1},
		"count of 2^31-1":   {0x7f, 0xff, 0xff, 0xff, 1, 1, 1},
		"name of length -2": {0, 0, 0, 1, 0xff, 0xfe, 1, 1, 1},
		"null name":         {0, 0, 0, 1, 0xff, 0xff, 1, 1, 1},
	} {
		if _, err := decodeCost(a, 8, body); err == nil {
			t.Errorf("version 8, %s: accepted", name)
		}
	}
}

func TestTrailingBytesAreIgnored(t *testing.T) {
	eachVersion(t, func(t *testing.T, a *api, version int16) {
		h := hostileBody{flexible: a.shape(version).tagged}
		h.least(a.shape(version))
		if _, err := decodeCost(a, version, append(h.b, "more"...)); err != nil {
			t.Error(err)
		}
	})
}

func findAPI(t testing.TB, key kmsg.Key) *api {
	for _, a := range apis() {
		if a.key == key {
			a.prepare()
			return &a
		}
	}
	t.Fatalf("%v is not served", key)
	return nil
}
