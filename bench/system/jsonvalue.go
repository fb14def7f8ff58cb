package system

import "encoding/json"

// wrapped is a value that is no JSON, for systems that keep nothing else.
type wrapped struct {
	Raw []byte `json:"raw"`
}

// asJSON returns a value as JSON: what is JSON stays as it is.
func asJSON(value []byte) (string, error) {
	if len(value) > 0 && value[0] == '{' && json.Valid(value) {
		return string(value), nil
	}
	text, err := json.Marshal(wrapped{value})
	return string(text), err
}

// fromJSON returns what asJSON was given; the order of fields may be another one.
func fromJSON(text []byte) ([]byte, error) {
	var w wrapped
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, err
	}
	if w.Raw != nil {
		return w.Raw, nil
	}
	return text, nil
}
