package certificate

import (
	"crypto/x509"
	"encoding/asn1"
	"strings"
	"testing"
)

// one is a relative distinguished name of one attribute.
func one(oid asn1.ObjectIdentifier, tag int, text string) relativeSET {
	return relativeSET{{oid, asn1.RawValue{Tag: tag, Bytes: []byte(text)}}}
}

var (
	cn, c, l, st, street, o, ou = asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 6}, asn1.ObjectIdentifier{2, 5, 4, 7}, asn1.ObjectIdentifier{2, 5, 4, 8},
		asn1.ObjectIdentifier{2, 5, 4, 9}, asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 11}
	dc, uid       = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}
	email, serial = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, asn1.ObjectIdentifier{2, 5, 4, 5}
)

const (
	utf8String = asn1.TagUTF8String
	printable  = asn1.TagPrintableString
	ia5        = asn1.TagIA5String
)

// The expected texts are what X500Principal.getName of Java 17.0.15 returned for the same bytes.
func TestSubjectsAreWrittenAsJavaDoes(t *testing.T) {
	for want, subject := range map[string][]relativeSET{
		"CN=billing,O=Example,C=DE":   {one(c, printable, "DE"), one(o, utf8String, "Example"), one(cn, utf8String, "billing")},
		"UID=alice,DC=example,DC=org": {one(dc, ia5, "org"), one(dc, ia5, "example"), one(uid, utf8String, "alice")},
		`CN=x,OU=a\"b\\c\<d\>e\;f\=g\#h,O=A\, B \+ C,STREET=Ring 1,L=München,ST=Bayern,C=DE`: {one(c, printable, "DE"), one(st, utf8String, "Bayern"), one(l, utf8String, "München"),
			one(street, utf8String, "Ring 1"), one(o, utf8String, "A, B + C"), one(ou, utf8String, `a"b\c<d>e;f=g#h`), one(cn, utf8String, "x")},
		`L=,OU=\ ,O=\#first,CN=\ \ two\ \ `:                                           {one(cn, utf8String, "  two  "), one(o, utf8String, "#first"), one(ou, utf8String, " "), one(l, utf8String, "")},
		"CN=x,2.5.4.5=#13023137,1.2.840.113549.1.9.1=#160d61406578616d706c652e6f7267": {one(email, ia5, "a@example.org"), one(serial, printable, "17"), one(cn, utf8String, "x")},
		"O=c,CN=a+OU=b":                      {append(one(cn, utf8String, "a"), one(ou, utf8String, "b")...), one(o, utf8String, "c")},
		"L=#12023132,OU=general":             {one(ou, asn1.TagGeneralString, "general"), one(l, asn1.TagNumericString, "12")},
		"OU=😀,O=日本 语,CN=a\\00b\rc\nd\re\\\r": {one(cn, utf8String, "a\x00b\rc\nd\re\r"), one(o, utf8String, "日本 语"), one(ou, utf8String, "😀")},
	} {
		der, err := asn1.Marshal(subject)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Subject(&x509.Certificate{RawSubject: der}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	for said, der := range map[string][]byte{"is empty": {0x30, 0}, "cannot be read": {0x30, 5, 1}, "bytes left": {0x30, 0, 0}} {
		if got, err := Subject(&x509.Certificate{RawSubject: der}); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%x: %q, %v; want a word of %q", der, got, err, said)
		}
	}
}
