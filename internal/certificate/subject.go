package certificate

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Subject returns whose certificate it is: the distinguished name in the form of RFC 2253, such as
// CN=billing,O=Example,C=DE. It is the same text as that of Java's X500Principal.getName, which
// Kafka's ACLs have: other programs disagree about the order, spaces, and the names of rare
// attributes.
func Subject(c *x509.Certificate) (string, error) {
	var all []relativeSET
	if rest, err := asn1.Unmarshal(c.RawSubject, &all); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("the subject cannot be read: %w, %d bytes left", err, len(rest))
	}
	if len(all) == 0 {
		return "", errors.New("the subject is empty")
	}
	var b strings.Builder
	for i := len(all) - 1; i >= 0; i-- { // the last one first (RFC 2253, 2.1)
		for j, a := range all[i] {
			switch {
			case j > 0:
				b.WriteByte('+')
			case b.Len() > 0:
				b.WriteByte(',')
			}
			a.write(&b)
		}
	}
	return b.String(), nil
}

// relativeSET is a relative distinguished name: nearly always one attribute. The end of its name
// tells encoding/asn1 that it is a SET.
type relativeSET []attribute

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// keywords are the attributes that RFC 2253, 2.3 writes by a name. Others are written as numbers.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}

// write writes type=value. A value that is no text, or whose type has no keyword, is written as #
// and its encoding in hexadecimal digits (RFC 2253, 2.4).
func (a attribute) write(b *strings.Builder) {
	keyword, known := keywords[a.Type.String()]
	text, is := textOf(a.Value)
	if !known {
		keyword = a.Type.String()
	}
	b.WriteString(keyword + "=")
	if !known || !is {
		b.WriteString("#" + hex.EncodeToString(a.Value.FullBytes))
		return
	}
	space := func(r rune) bool { return r == ' ' || r == '\r' }
	inner := strings.TrimFunc(text, space)
	lead := len(text) - len(strings.TrimLeftFunc(text, space))
	for i, r := range text {
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, r), i < lead, i >= lead+len(inner):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
}

// textOf returns the text of a value, if it is one in an encoding that RFC 5280, 4.1.2.4 wants in
// new certificates, or in plain ASCII. About the older ones Java's versions disagree.
func textOf(v asn1.RawValue) (text string, is bool) {
	if v.Class != asn1.ClassUniversal {
		return "", false
	}
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagGeneralString:
		return string(v.Bytes), utf8.Valid(v.Bytes)
	}
	return "", false
}
