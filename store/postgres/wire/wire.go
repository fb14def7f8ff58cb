// Package wire writes and reads PostgreSQL's binary formats for the few types that travel in bulk.
// The driver's codecs could do that, too, but this way the bytes of batches are copied only once.
package wire

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	oidBool = 16
	oidInt8 = 20
	oidInt4 = 23
	oidText = 25
)

// Statement is a statement whose parameters and results are binary.
type Statement struct{ Name, SQL string }

// Run makes one round trip. Through a pooler nothing is prepared: the server makes a plan each
// time.
func (s Statement) Run(ctx context.Context, conn *pgconn.PgConn, pooled bool, params ...[]byte) *pgconn.ResultReader {
	if pooled {
		return conn.ExecParams(ctx, s.SQL, params, nil, binaryFormat, binaryFormat)
	}
	return conn.ExecPrepared(ctx, s.Name, params, binaryFormat, binaryFormat)
}

var binaryFormat = []int16{1}

// An array is a header of five numbers (dimensions, has nulls, type, length, lower bound), then the
// elements, each after its length.
const arrayHeader = 20

func appendArrayHeader(b []byte, oid uint32, n int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, oid)
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1)
}

// Int4Array writes an array of int4.
func Int4Array[T ~int32 | ~int](values []T) []byte {
	b := appendArrayHeader(make([]byte, 0, arrayHeader+8*len(values)), oidInt4, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// Int8Array writes an array of int8.
func Int8Array[T ~int64](values []T) []byte {
	b := appendArrayHeader(make([]byte, 0, arrayHeader+12*len(values)), oidInt8, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// BoolArray writes an array of boolean.
func BoolArray(values []bool) []byte {
	b := appendArrayHeader(make([]byte, 0, arrayHeader+5*len(values)), oidBool, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, 1)
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// TextArray writes an array of text.
func TextArray(values []string) []byte {
	size := arrayHeader
	for _, v := range values {
		size += 4 + len(v)
	}
	b := appendArrayHeader(make([]byte, 0, size), oidText, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// Numbers reads an array of int4 or int8. A null element reads as 0, and a null array as no
// numbers.
func Numbers(b []byte) []int64 {
	if len(b) < arrayHeader {
		return nil
	}
	values := make([]int64, binary.BigEndian.Uint32(b[12:]))
	b = b[arrayHeader:]
	for i := range values {
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		switch size {
		case -1:
			continue
		case 4:
			values[i] = int64(int32(binary.BigEndian.Uint32(b)))
		case 8:
			values[i] = int64(binary.BigEndian.Uint64(b))
		default:
			panic(fmt.Sprintf("wire: an array element of %d bytes where a number should be", size))
		}
		b = b[size:]
	}
	return values
}

// Int4 and Int8 write one number; Integer and Bigint read one.
func Int4(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func Int8(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func Integer(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
func Bigint(b []byte) int64  { return int64(binary.BigEndian.Uint64(b)) }
