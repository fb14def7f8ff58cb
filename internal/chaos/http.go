package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// call is one request over HTTP: a body of bytes goes as it is, any other as JSON. The error is nil for 2xx.
func (b *broker) call(ctx context.Context, method, path string, body any, header http.Header) (answer []byte, o outcome, err error) {
	var text io.Reader
	if body != nil {
		encoded, is := body.([]byte)
		if !is {
			var err error
			if encoded, err = json.Marshal(body); err != nil {
				panic(err)
			}
		}
		text = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+b.http+path, text)
	if err != nil {
		panic(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, unknown, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode < 300 && err == nil:
		return answer, done, nil
	case err != nil:
		return nil, unknown, err
	case resp.StatusCode < 500 || resp.StatusCode == 503 && resp.Header.Get("Weir-Applied") == "no":
		o = refused
	default:
		o = unknown
	}
	return answer, o, &httpError{resp.StatusCode, string(answer)}
}

type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return strconv.Itoa(e.status) + " " + e.text }

// get reads an answer in JSON.
func (b *broker) get(ctx context.Context, path string, answer any) error {
	body, _, err := b.call(ctx, "GET", path, nil, nil)
	if err == nil {
		err = json.Unmarshal(body, answer)
	}
	return err
}
