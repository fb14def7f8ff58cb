package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// ParseHeaders reads the headers of an event that was published with SQL: a JSON object, whose
// order they keep. A value is a string or null; of any other value its JSON is taken.
// *eventlog.InvalidError if it is no object; nil: there are no headers.
func ParseHeaders(object []byte) (headers []batch.RecordHeader, err error) {
	if object == nil {
		return nil, nil
	}
	invalid := func(err error) error {
		return &eventlog.InvalidError{What: "headers", Value: fmt.Sprintf("%.100q", object), Why: fmt.Sprintf("it is not a JSON object: %v", err)}
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, invalid(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, invalid(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, invalid(err)
		}
		var value *string
		h := batch.RecordHeader{Key: key.(string)}
		switch err := json.Unmarshal(raw, &value); {
		case err != nil:
			h.Value = raw
		case value != nil:
			h.Value = []byte(*value)
		}
		headers = append(headers, h)
	}
	if _, err := d.Token(); err != nil {
		return nil, invalid(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid(errors.New("something follows it"))
	}
	return headers, nil
}
