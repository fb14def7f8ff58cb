package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-log/weir/bench/system"
)

// client is a system behind its API.
type client struct {
	base    string
	http    *http.Client
	process *system.Process
	about   about
}

// following is a client of an API that has a projection.
type following struct{ *client }

// connect asks the API what its system is.
func connect(ctx context.Context, name, address string, p *system.Process) (*client, error) {
	c := &client{base: "http://" + address + "/api/" + name + "/", process: p,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	_, err := c.ask(ctx, "GET", "about", nil, &c.about, &c.about)
	return c, err
}

func (c *client) Target() any   { return c }
func (f following) Target() any { return f }
func (c *client) Close() error  { c.http.CloseIdleConnections(); return c.process.Stop() }

// Described is what the system behind the API says. Nothing is asked of the order of a log there.
func (c *client) Described() (system.Settings, bool) { return c.about.Settings, false }

func (c *client) Elsewhere() bool { return c.about.Elsewhere }

func (*client) CreateStreams(context.Context) error { return nil } // the API did it

// ask sends a request, and decodes the answer by its status.
func (c *client) ask(ctx context.Context, method, path string, body []byte, ok, conflict any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", system.ErrUnsure, err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", system.ErrUnsure, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.StatusCode, json.Unmarshal(said, ok)
	case http.StatusConflict:
		return resp.StatusCode, json.Unmarshal(said, conflict)
	case http.StatusInternalServerError:
		return resp.StatusCode, fmt.Errorf("%w: %s", system.ErrUnsure, said)
	}
	return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, said)
}

// Append sends one command for each value.
func (c *client) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	after, _, err := c.append(ctx, stream, expected, values)
	return after, err
}

// AppendLatest appends at the version that the service knows of, and also returns how many
// conflicts that had.
func (c *client) AppendLatest(ctx context.Context, stream string, values [][]byte) (after int64, conflicts int, err error) {
	return c.append(ctx, stream, Latest, values)
}

func (c *client) append(ctx context.Context, stream string, expected int64, values [][]byte) (after int64, conflicts int, err error) {
	for i, v := range values {
		at := "latest"
		switch {
		case expected == system.AnyVersion:
			at = "any"
		case expected >= 0:
			at = strconv.FormatInt(expected+int64(i), 10)
		}
		var done appended
		var no refused
		status, err := c.ask(ctx, "POST", url.PathEscape(stream)+"?expected="+at, v, &done, &no)
		switch {
		case err != nil:
			return 0, conflicts, err
		case status == http.StatusConflict:
			return 0, conflicts, &system.Conflict{Actual: no.Actual}
		}
		after, conflicts = done.Version, conflicts+done.Conflicts
	}
	return after, conflicts, nil
}

func (c *client) ReadStream(ctx context.Context, stream string, from int64, most int) ([]int64, [][]byte, error) {
	var p page
	_, err := c.ask(ctx, "GET", fmt.Sprintf("%s?from=%d&most=%d", url.PathEscape(stream), from, most), nil, &p, &p)
	return p.Versions, p.Values, err
}

// lookEvery is how often a client asks what the projection had. The times are the projection's own.
const lookEvery = 200 * time.Millisecond

// Follow tells what the projection in the API's memory had.
func (f following) Follow(ctx context.Context, deliver func(system.Followed)) error {
	for from := 0; ctx.Err() == nil; {
		var some []system.Followed
		if _, err := f.ask(ctx, "GET", fmt.Sprintf("projected?from=%d", from), nil, &some, &some); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for _, e := range some {
			deliver(e)
		}
		from += len(some)
		if len(some) < eventsMost {
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
