package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request is walked before kmsg decodes it: kmsg trusts every count it reads, and allocates that
// many elements before it reads them. The walk allocates nothing. It checks every length and count,
// and adds up the memory that the decoded request will need.
//
// The wire format is not written down a second time here: shapeOf finds it out, once per key and
// version, by having kmsg encode requests that differ in one field.
const (
	decodeFactor = 8        // bytes that a decoded request may need for each byte of its frame
	decodeSlack  = 64 << 10 // bytes that a decoded request may need on top, so that small requests fit
	decodeMax    = 32 << 20 // most bytes that a decoded request may need
	tagsMax      = 64       // most tags in one struct
	tagsCost     = 512      // bytes of the map that a struct with tags needs
	tagCost      = 96       // bytes of a tag in that map
	stringCost   = 16       // bytes of a string or a pointer, without what it points to

	elementsMax = 200_000 // limit for the elements of all arrays of a request together, because almost every element gets its own answer
	answerEach  = 256     // estimated bytes of the answer to one element, in memory and encoded
)

func budgetFor(frame int) int {
	return min(decodeFactor*frame+decodeSlack, decodeMax)
}

type fieldKind int

const (
	fixed    fieldKind = iota // a value of size bytes
	text                      // a string
	blob                      // bytes, which the decoded request shares with the frame
	array                     // an array of elem
	optional                  // a byte that says whether elem follows
	inlined                   // a struct without a length: elem
)

type field struct {
	kind fieldKind
	size int  // fixed: bytes on the wire; array and optional: bytes of one decoded element in memory
	null bool // text, blob, array: may be null
	elem *shape
}

// shape is the wire format of a struct, or of an array's element, in one version.
type shape struct {
	fields []field
	tagged bool // tags follow: a struct of a flexible version
	least  int  // its minimum size in bytes
}

// wire is a walk over the bytes of one request. After the first failure err is set, and every
// method returns zero.
type wire struct {
	buf      []byte
	flexible bool
	budget   int
	cost     int
	elements int // the elements of all arrays so far
	err      error
}

var errShort = errors.New("the request ends before its last field")

func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.buf = nil
}

func (w *wire) take(n int) []byte {
	if n < 0 || n > len(w.buf) {
		w.fail(errShort)
		return nil
	}
	b := w.buf[:n]
	w.buf = w.buf[n:]
	return b
}

func (w *wire) uvarint() int {
	var v uint64
	for i := range 5 {
		b := w.take(1)
		if b == nil {
			return 0
		}
		v |= uint64(b[0]&0x7f) << (7 * i)
		if b[0] < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return int(v)
		}
	}
	w.fail(errors.New("a varint is longer than 32 bits"))
	return 0
}

// length reads a length or count: a varint in flexible versions, otherwise a number of the given
// size. -1 is null.
func (w *wire) length(size int, null bool) int {
	n := 0
	switch {
	case w.flexible:
		n = w.uvarint() - 1
	case size == 2:
		if b := w.take(2); b != nil {
			n = int(int16(binary.BigEndian.Uint16(b)))
		}
	default:
		if b := w.take(4); b != nil {
			n = int(int32(binary.BigEndian.Uint32(b)))
		}
	}
	if w.err == nil && (n < -1 || n == -1 && !null) {
		w.fail(fmt.Errorf("a length field is %d", n))
	}
	return n
}

func (w *wire) charge(n int) {
	if w.cost += n; w.cost > w.budget {
		w.fail(fmt.Errorf("the decoded request would take more than %d bytes of memory, the limit", w.budget))
	}
}

// clientID reads the client id and the tags, which are between the header and the body.
func (w *wire) clientID() string {
	id := ""
	if b := w.take(2); b != nil {
		if n := int(int16(binary.BigEndian.Uint16(b))); n >= 0 { // the client id is never compact
			id = string(w.take(n))
		}
	}
	if w.flexible {
		w.tags()
	}
	return id
}

func (w *wire) walk(s *shape) {
	for i := range s.fields {
		if w.err != nil {
			return
		}
		w.field(&s.fields[i])
	}
	if s.tagged {
		w.tags()
	}
}

func (w *wire) field(f *field) {
	switch f.kind {
	case fixed:
		w.take(f.size)
	case text:
		if n := w.length(2, f.null); n > 0 {
			w.take(n)
			w.charge(n)
		}
		w.charge(stringCost)
	case blob:
		if n := w.length(4, f.null); n > 0 {
			w.take(n)
		}
	case array:
		n := w.length(4, f.null)
		if n > 0 && n*f.elem.least > len(w.buf) {
			w.fail(fmt.Errorf("an array says that it has %d elements, but only %d bytes follow", n, len(w.buf)))
		}
		w.charge(max(n, 0) * f.size)
		if w.elements += max(n, 0); w.elements > elementsMax {
			w.fail(fmt.Errorf("the request has more than %d array elements, the limit; send several requests", elementsMax))
		}
		for range n {
			if w.err != nil {
				return
			}
			w.walk(f.elem)
		}
	case optional:
		if b := w.take(1); b != nil && int8(b[0]) >= 0 {
			w.charge(f.size)
			w.walk(f.elem)
		}
	case inlined:
		w.walk(f.elem)
	}
}

// tags walks over the tags of a struct, not into them: no tag of a request that we serve contains
// an array.
func (w *wire) tags() {
	n := w.uvarint()
	if n > tagsMax {
		w.fail(fmt.Errorf("a struct has %d tagged fields; the limit is %d", n, tagsMax))
	}
	if n > 0 {
		w.charge(tagsCost + n*tagCost)
	}
	last := -1
	for range n {
		tag := w.uvarint()
		if w.err == nil && tag <= last {
			w.fail(fmt.Errorf("tagged field %d comes after tagged field %d; they must be in ascending order", tag, last))
		}
		last = tag
		w.take(w.uvarint())
		if w.err != nil {
			return
		}
	}
}

// shapeOf finds the shape of a key's requests in one version.
func shapeOf(key kmsg.Key, version int16) *shape {
	req := key.Request()
	req.SetVersion(version)
	p := prober{req}
	return p.shape(reflect.ValueOf(req).Elem())
}

// prober changes one field of a request at a time and compares kmsg's encodings.
type prober struct{ req kmsg.Request }

func (p prober) encode() []byte { return p.req.AppendTo(nil) }

// shape probes a struct, or the single element of an array, that the request holds.
func (p prober) shape(v reflect.Value) *shape {
	s := new(shape)
	if v.Kind() != reflect.Struct {
		s.add(p.field(v))
		return s
	}
	setDefaults(v)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Version" && name != "UnknownTags" {
			s.add(p.field(v.Field(i)))
		}
	}
	s.tagged = p.req.IsFlexible()
	if s.tagged {
		s.least++
	}
	return s
}

func (s *shape) add(f field, there bool) {
	if !there {
		return
	}
	s.fields = append(s.fields, f)
	switch f.kind {
	case fixed:
		s.least += f.size
	case inlined:
		s.least += f.elem.least
	default:
		s.least++ // a length takes one byte or more
	}
}

// field probes one field. It returns there=false if this version does not have the field, or has it
// as a tag.
func (p prober) field(v reflect.Value) (f field, there bool) {
	before := reflect.ValueOf(v.Interface())
	defer v.Set(before)
	// grew sets the field to the value from, and then to the value of the parameter to. It returns
	// by how many bytes the encoded request grew, and whether its bytes changed.
	grew := func(from, to reflect.Value) (int, bool) {
		v.Set(from)
		a := p.encode()
		v.Set(to)
		b := p.encode()
		return len(b) - len(a), !bytes.Equal(a, b)
	}
	zero := reflect.Zero(v.Type())
	switch v.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Array:
		n, changed := grew(before, other(before))
		return field{kind: fixed, size: int(v.Type().Size())}, changed && n == 0
	case reflect.String:
		n, _ := grew(zero, reflect.ValueOf("x").Convert(v.Type()))
		return field{kind: text}, n == 1
	case reflect.Slice:
		none, one, two := reflect.MakeSlice(v.Type(), 0, 0), reflect.MakeSlice(v.Type(), 1, 1), reflect.MakeSlice(v.Type(), 2, 2)
		_, null := grew(zero, none)
		n, _ := grew(none, one)
		n2, _ := grew(one, two)
		if n == 0 || n != n2 {
			return field{}, false
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return field{kind: blob, null: null}, true
		}
		v.Set(one)
		return field{kind: array, null: null, size: int(v.Type().Elem().Size()), elem: p.shape(v.Index(0))}, true
	case reflect.Pointer:
		present := reflect.New(v.Type().Elem())
		if v.Type().Elem().Kind() == reflect.String {
			x := reflect.New(v.Type().Elem())
			x.Elem().SetString("x")
			_, null := grew(zero, present)
			n, _ := grew(zero, x)
			return field{kind: text, null: null}, n == 1
		}
		if n, _ := grew(zero, present); n == 0 {
			return field{}, false
		}
		return field{kind: optional, size: int(v.Type().Elem().Size()), elem: p.shape(v.Elem())}, true
	case reflect.Struct:
		f = field{kind: inlined, elem: p.shape(v)}
		return f, len(f.elem.fields) > 0
	}
	panic(fmt.Sprintf("kmsg has a field of type %v in %T", v.Type(), p.req))
}

// other returns a value of v's type that differs from v.
func other(v reflect.Value) reflect.Value {
	o := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Bool:
		o.SetBool(!v.Bool())
	case reflect.Float64:
		o.SetFloat(v.Float() + 1)
	case reflect.Array:
		o.Set(v)
		o.Index(0).SetUint(o.Index(0).Uint() + 1)
	default:
		o.SetInt(v.Int() + 1)
	}
	return o
}

func setDefaults(v reflect.Value) {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
}
