package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/weir-log/weir/internal/judge"
)

// answer is what a broker said over HTTP. Status is 0 where no answer came.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	outcome judge.Outcome
}

// call is send for those who need neither the status nor the headers.
func (b *broker) call(ctx context.Context, method, path string, body any, header http.Header) ([]byte, judge.Outcome, error) {
	a, err := b.send(ctx, method, path, body, header)
	return a.body, a.outcome, err
}

// send is one request over HTTP: a body of bytes goes as it is, any other as JSON. The error is nil
// for 2xx.
func (b *broker) send(ctx context.Context, method, path string, body any, header http.Header) (answer, error) {
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
		return answer{outcome: judge.Unknown}, err
	}
	defer resp.Body.Close()
	a := answer{header: resp.Header, outcome: judge.Unknown}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return answer{outcome: judge.Unknown}, err
	}
	a.status = resp.StatusCode
	switch {
	case a.status < 300:
		a.outcome = judge.Done
		return a, nil
	case a.status < 500 || a.status == 503 && resp.Header.Get("Weir-Applied") == "no":
		a.outcome = judge.Refused
	}
	return a, &httpError{a.status, string(a.body)}
}

type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return strconv.Itoa(e.status) + " " + e.text }

// get reads an answer in JSON.
func (b *broker) get(ctx context.Context, path string, into any) error {
	body, _, err := b.call(ctx, "GET", path, nil, nil)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}
