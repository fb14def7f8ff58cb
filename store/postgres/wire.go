package postgres

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// The flush travels in PostgreSQL's binary formats, written and read here rather than by the driver's codecs: these are
// a handful of shapes, and this way the bytes of batches are copied once.

const (
	oidInt8 = 20
	oidInt4 = 23
	oidText = 25
)

// statement is one that goes and comes in binary.
type statement struct{ name, sql string }

// run makes one trip. Behind a pooler it also makes a plan, each time.
func (s statement) run(ctx context.Context, conn *pgconn.PgConn, pooled bool, params ...[]byte) *pgconn.ResultReader {
	if pooled {
		return conn.ExecParams(ctx, s.sql, params, nil, binaryFormat, binaryFormat)
	}
	return conn.ExecPrepared(ctx, s.name, params, binaryFormat, binaryFormat)
}

var binaryFormat = []int16{1}

// An array is a header of five numbers (dimensions, has nulls, type, length, lower bound), then the elements, each after its length.
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

func int4Array[T ~int32 | ~int](values []T) []byte {
	b := appendArrayHeader(make([]byte, 0, arrayHeader+8*len(values)), oidInt4, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func int8Array[T ~int64](values []T) []byte {
	b := appendArrayHeader(make([]byte, 0, arrayHeader+12*len(values)), oidInt8, len(values))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func textArray(values []string) []byte {
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

// numbers reads an array of int4 or int8. A null reads as 0, and so does a null array as no numbers.
func numbers(b []byte) []int64 {
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
			panic(fmt.Sprintf("postgres: an array element of %d bytes where a number should be", size))
		}
		b = b[size:]
	}
	return values
}

func int4Value(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func int8Value(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func integer(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
func bigint(b []byte) int64  { return int64(binary.BigEndian.Uint64(b)) }
