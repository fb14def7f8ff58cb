package s3test_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weir-log/weir/internal/s3test"
)

// client is a client of one bucket that tries each request once.
type client struct {
	t      *testing.T
	bucket string
	*sdk.Client
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, u.Host, sdk.New(sdk.Options{
		Region: "us-east-1", UsePathStyle: true, BaseEndpoint: aws.String(u.Query().Get("endpoint")), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired, ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})}
}

func (c *client) create(ctx context.Context, key, body string) error {
	_, err := c.PutObject(ctx, &sdk.PutObjectInput{Bucket: &c.bucket, Key: &key, Body: strings.NewReader(body), IfNoneMatch: aws.String("*")})
	return err
}

// read reads an object, or a range of it.
func (c *client) read(key, span string) (string, error) {
	in := &sdk.GetObjectInput{Bucket: &c.bucket, Key: &key}
	if span != "" {
		in.Range = &span
	}
	out, err := c.GetObject(c.t.Context(), in)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(out.Body)
	return string(body), errors.Join(err, out.Body.Close())
}

func (c *client) expect(key, want string) {
	c.t.Helper()
	if got, err := c.read(key, ""); err != nil || got != want {
		c.t.Errorf("%s holds %q (%v), want %q", key, got, err, want)
	}
}

// status returns the status of the answer that an error is about. 0: there was no answer.
func status(err error) int {
	if e, is := errors.AsType[*smithyhttp.ResponseError](err); is && e.Response != nil {
		return e.HTTPStatusCode()
	}
	return 0
}

func TestOneOfParallelCreationsSucceeds(t *testing.T) {
	c := dial(t, s3test.URL(t))
	for round := range 20 {
		key := fmt.Sprintf("commit/%d", round)
		var won atomic.Int32
		var winner atomic.Value
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				body := strings.Repeat(fmt.Sprint(n), 10_000)
				err := c.create(t.Context(), key, body)
				if err == nil {
					won.Add(1)
					winner.Store(body)
				} else if s := status(err); s != http.StatusPreconditionFailed && s != http.StatusConflict {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d of 8 succeeded, want 1", round, won.Load())
		}
		c.expect(key, winner.Load().(string))
	}
}

func TestARangeIsRead(t *testing.T) {
	c := dial(t, s3test.URL(t))
	if err := c.create(t.Context(), "a/b", "0123456789"); err != nil {
		t.Fatal(err)
	}
	for span, want := range map[string]string{"bytes=2-4": "234", "bytes=8-100": "89", "bytes=0-0": "0"} {
		if got, err := c.read("a/b", span); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", span, got, err, want)
		}
	}
	if _, err := c.read("a/b", "bytes=10-12"); status(err) != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("a range after the end: %v", err)
	}
}

func TestEveryTestHasABucketOfItsOwn(t *testing.T) {
	a, b := dial(t, s3test.URL(t)), dial(t, s3test.URL(t))
	if err := a.create(t.Context(), "x", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.read("x", ""); status(err) != http.StatusNotFound {
		t.Errorf("the other bucket: %v", err)
	}
}

func TestAServerKeepsWhatWasWrittenWhenItIsKilled(t *testing.T) {
	s := s3test.Start(t)
	address := s.URL()
	c := dial(t, address)
	if err := c.create(t.Context(), "log/x", "1"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := c.create(t.Context(), "log/y", "1"); err == nil || status(err) != 0 {
		t.Errorf("a killed server answers: %v", err)
	}
	s.Resume()
	c.expect("log/x", "1")
	if err := c.create(t.Context(), "log/x", "2"); status(err) != http.StatusPreconditionFailed {
		t.Errorf("after the restart it is created again: %v", err)
	}
	if body, err := os.ReadFile(filepath.Join(s.Directory(address), "log", "x")); err != nil || !bytes.Equal(body, []byte("1")) {
		t.Errorf("its file holds %q (%v)", body, err)
	}
}

func (c *client) remove(key string) {
	c.t.Helper()
	if _, err := c.DeleteObject(c.t.Context(), &sdk.DeleteObjectInput{Bucket: &c.bucket, Key: &key}); err != nil {
		c.t.Fatal(err)
	}
}

// What was written after a copy is gone once the copy is put back, what was there is there, and the
// server goes on: keys that are gone can be created again, once.
func TestACopyIsPutBackUnderTheServer(t *testing.T) {
	s := s3test.Start(t)
	address := s.URL()
	c := dial(t, address)
	create := func(key, body string) {
		t.Helper()
		if err := c.create(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	create("commit/1", "kept")
	putBack, err := s.Copy(address)
	if err != nil {
		t.Fatal(err)
	}
	create("commit/2", "lost")
	create("segment/1", "lost, too")
	if err := putBack(); err != nil {
		t.Fatal(err)
	}
	c.expect("commit/1", "kept")
	for _, key := range []string{"commit/2", "segment/1"} {
		if _, err := c.read(key, ""); status(err) != http.StatusNotFound {
			t.Errorf("%s after the copy was put back: %v", key, err)
		}
	}
	create("commit/2", "new")
	c.expect("commit/2", "new")
	if err := c.create(t.Context(), "commit/2", "again"); status(err) != http.StatusPreconditionFailed {
		t.Errorf("a key is created twice: %v", err)
	}
}

// A request counts whatever is answered; deletions are free.
func TestRequestsAreCounted(t *testing.T) {
	s, err := s3test.LaunchCounting(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address, err := s.Bucket()
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Counts()
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, address)
	for _, key := range []string{"a", "b", "a"} {
		_ = c.create(t.Context(), key, "text") // the third is refused
	}
	for _, key := range []string{"a", "none"} {
		_, _ = c.read(key, "")
	}
	if _, err := c.ListObjectsV2(t.Context(), &sdk.ListObjectsV2Input{Bucket: &c.bucket}); err != nil {
		t.Fatal(err)
	}
	key := "a"
	if _, err := c.DeleteObject(t.Context(), &sdk.DeleteObjectInput{Bucket: &c.bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Counts()
	if want := (s3test.Counts{Puts: 3, Gets: 2, Lists: 1}); err != nil || before != (s3test.Counts{}) || got != want {
		t.Errorf("%+v were counted before, and then %+v, %v; %+v were made", before, got, err, want)
	}
}
