package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// jsonRecord is one record as a line of JSON: what `weir consume --output json` prints is what
// `weir produce --input json` takes. Bytes that are not UTF-8 are in the field with _b64 in its
// name instead. If both fields are missing or null, the key or value is null.
type jsonRecord struct {
	Topic     string       `json:"topic,omitempty"`
	Partition *int32       `json:"partition,omitempty"`
	Offset    *int64       `json:"offset,omitempty"`
	Timestamp *timestamp   `json:"timestamp,omitempty"`
	Key       *string      `json:"key,omitempty"`
	KeyB64    *string      `json:"key_b64,omitempty"`
	Value     *string      `json:"value,omitempty"`
	ValueB64  *string      `json:"value_b64,omitempty"`
	Headers   []jsonHeader `json:"headers,omitempty"`
}

// jsonHeader is one header. Headers are a list: their order matters, and a name may come twice.
type jsonHeader struct {
	Name     *string `json:"name,omitempty"`
	NameB64  *string `json:"name_b64,omitempty"`
	Value    *string `json:"value,omitempty"`
	ValueB64 *string `json:"value_b64,omitempty"`
}

// timestamp is written as RFC 3339 with milliseconds, and read as that or as milliseconds since the
// Unix epoch.
type timestamp time.Time

// MarshalJSON writes RFC 3339 in UTC, and milliseconds for years that have more than four digits.
func (t timestamp) MarshalJSON() ([]byte, error) {
	at := time.Time(t).UTC()
	if at.Year() > 9999 {
		return json.Marshal(at.UnixMilli())
	}
	return json.Marshal(at.Format("2006-01-02T15:04:05.000Z07:00"))
}

// UnmarshalJSON reads either form.
func (t *timestamp) UnmarshalJSON(text []byte) error {
	var millis int64
	if err := json.Unmarshal(text, &millis); err == nil && millis >= 0 {
		*t = timestamp(time.UnixMilli(millis))
		return nil
	}
	var at time.Time
	if err := json.Unmarshal(text, &at); err != nil {
		return fmt.Errorf("timestamp %s is not valid: write it as in RFC 3339, or as milliseconds since 1970", text)
	}
	if at.UnixMilli() < -1 { // -1 is a record without a timestamp
		return fmt.Errorf("timestamp %s is before 1970", text)
	}
	*t = timestamp(at)
	return nil
}

// timeOf returns when a record that was consumed was made. kgo multiplies the milliseconds by 1e6
// in an int64 (source.go, timeFromMillis), so times after the year 2262 come out 2^64 ns too early,
// once for each 584 years. Only the right time is a whole number of milliseconds: up to the year
// 9999 there is no second one.
func timeOf(r *kgo.Record) time.Time {
	for at := r.Timestamp; at.Year() <= 9999; {
		if at.Nanosecond()%int(time.Millisecond) == 0 {
			return at
		}
		for range 4 {
			at = at.Add(1 << 62)
		}
	}
	return r.Timestamp
}

// encodeRecord returns a record as one line of JSON, its end included.
func encodeRecord(r *kgo.Record) ([]byte, error) {
	at := timestamp(timeOf(r))
	line := jsonRecord{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, Timestamp: &at}
	line.Key, line.KeyB64 = encodeBytes(r.Key)
	line.Value, line.ValueB64 = encodeBytes(r.Value)
	for _, h := range r.Headers {
		var header jsonHeader
		header.Name, header.NameB64 = encodeBytes([]byte(h.Key))
		header.Value, header.ValueB64 = encodeBytes(h.Value)
		line.Headers = append(line.Headers, header)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // the output is not for web pages, and < reads better than \u003c
	if err := encoder.Encode(line); err != nil {
		return nil, fmt.Errorf("encode the record at %s/%d offset %d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return append(printableJSON(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), '\n'), nil
}

// decodeRecord reads one line of JSON. Topic and offset may say where the record came from, and are
// ignored.
func decodeRecord(line []byte) (*kgo.Record, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("it is not UTF-8: put binary data into key_b64, value_b64 or name_b64")
	}
	var in jsonRecord
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the JSON value is incomplete")
		}
		return nil, fmt.Errorf("it is not a JSON record: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("there is more after the record: write one record on each line")
	}
	key, err := decodeBytes("key", in.Key, in.KeyB64)
	if err != nil {
		return nil, err
	}
	value, err := decodeBytes("value", in.Value, in.ValueB64)
	if err != nil {
		return nil, err
	}
	record := &kgo.Record{Key: key, Value: value, Partition: anyPartition}
	if in.Partition != nil {
		if *in.Partition < 0 {
			return nil, fmt.Errorf("partition %d is negative", *in.Partition)
		}
		record.Partition = *in.Partition
	}
	if in.Timestamp != nil {
		record.Timestamp = time.Time(*in.Timestamp)
	}
	for _, h := range in.Headers {
		name, err := decodeBytes("a header's name", h.Name, h.NameB64)
		if err != nil {
			return nil, err
		}
		value, err := decodeBytes("header "+string(name), h.Value, h.ValueB64)
		if err != nil {
			return nil, err
		}
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: string(name), Value: value})
	}
	return record, nil
}

func encodeBytes(b []byte) (text, base *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

func decodeBytes(name string, text, base *string) ([]byte, error) {
	switch {
	case text != nil && base != nil:
		return nil, fmt.Errorf("%s and %s_b64 are both given; give one of them", name, name)
	case text != nil:
		return []byte(*text), nil
	case base != nil:
		b, err := base64.StdEncoding.DecodeString(*base)
		if err != nil {
			return nil, fmt.Errorf("%s_b64: %w", name, err)
		}
		return b, nil
	}
	return nil, nil
}
