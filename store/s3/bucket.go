package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weir-log/weir/eventlog"
)

var (
	// errMissing: there is no object with this key.
	errMissing = errors.New("no such object")
	// errExists: there is an object with this key already. This put may have written it: net/http
	// may have sent the request twice, and this is the answer to the second one.
	errExists = errors.New("the object exists already")
	// errRefused: the server understood and refused. Nothing was written.
	errRefused = errors.New("the S3 server refuses")
	// errBusy: the server asks to slow down. Nothing was written.
	errBusy = errors.New("the S3 server asks to slow down")
	// errBeyond: a read begins at or after the end of the object.
	errBeyond = errors.New("the object ends before")
)

type (
	// bucket is what the store needs of S3. An error of put that matches neither errRefused nor
	// errBusy leaves open whether the put happened.
	bucket interface {
		// put writes an object unless there is one with this key. It is tried once.
		put(ctx context.Context, key string, body []byte) (answer, error)
		// get reads size bytes from an offset on, fewer if the object ends before; all if size is
		// negative.
		get(ctx context.Context, key string, from, size int64) ([]byte, answer, error)
		// list returns, in byte order, at most limit objects whose keys begin with a prefix and are
		// greater than after.
		list(ctx context.Context, prefix, after string, limit int) ([]item, answer, error)
		remove(ctx context.Context, key string) error
		stats() Stats
		// close closes the connections that no request uses.
		close()
	}

	// answer is what the server's answer to a request says besides its content.
	answer struct {
		date time.Time // the server's clock; also with errMissing, errExists
		size int64     // the size of the whole object
	}

	item struct {
		key      string
		size     int64
		modified time.Time
	}
)

// onlyRead is a bucket of a replica. Nothing calls what it refuses; if something does by mistake,
// nothing is written all the same.
type onlyRead struct{ bucket }

func (onlyRead) put(_ context.Context, key string, _ []byte) (answer, error) {
	return answer{}, fmt.Errorf("%w: put %s", eventlog.ErrReadOnly, key)
}

func (onlyRead) remove(_ context.Context, key string) error {
	return fmt.Errorf("%w: delete %s", eventlog.ErrReadOnly, key)
}

// requests counts the requests of a store by kind.
type requests struct{ puts, gets, lists, removes atomic.Int64 }

func (r *requests) stats() Stats {
	return Stats{Puts: r.puts.Load(), Gets: r.gets.Load(), Lists: r.lists.Load(), Deletes: r.removes.Load()}
}

// remote is a bucket of an S3 server. Keys are relative to a prefix.
type remote struct {
	client      *sdk.Client
	connections connections
	place
	clock *clock
	requests
}

func dial(ctx context.Context, at place, clock *clock, logger *slog.Logger) (*remote, error) {
	cfg, err := config.LoadDefaultConfig(ctx, func(o *config.LoadOptions) error {
		o.Logger = said{logger}
		if at.region != "" {
			o.Region = at.region
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settings of AWS (environment, profile): %w", err)
	}
	if cfg.Region == "" && at.endpoint != "" {
		cfg.Region = "us-east-1" // servers other than AWS's mostly ignore it
	}
	if cfg.Region == "" {
		return nil, errors.New("no region is known: set AWS_REGION, or region=… in the URL")
	}
	if cfg.Credentials != nil {
		cfg.Credentials = credentials{cfg.Credentials}
		if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
			return nil, err
		}
	}
	transport := awshttp.NewBuildableClient().GetTransport() // the SDK's client could not close its connections
	r := &remote{place: at, clock: clock}
	r.connections.watch(transport)
	r.client = sdk.NewFromConfig(cfg, func(o *sdk.Options) {
		if at.endpoint != "" {
			o.BaseEndpoint = aws.String(at.endpoint)
		}
		o.UsePathStyle = at.pathStyle
		// Objects have checksums of their own, and requests are signed with the hash of their body.
		// Not every server knows the SDK's default, a checksum after the body.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.HTTPClient = &http.Client{Transport: progress{transport, requestMax}, CheckRedirect: onlyRepeats}
	})
	return r, nil
}

// onlyRepeats follows the redirects that repeat a request as it was, as the SDK's own client does.
// All others are answers, with a reason that the SDK reads.
func onlyRepeats(r *http.Request, via []*http.Request) error {
	const most = 3
	status := r.Response.StatusCode
	if len(via) <= most && (status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect) {
		return nil
	}
	return http.ErrUseLastResponse
}

func (r *remote) close() { r.connections.close() }

func (r *remote) put(ctx context.Context, key string, body []byte) (answer, error) {
	r.puts.Add(1)
	in := &sdk.PutObjectInput{Bucket: &r.bucketName, Key: aws.String(r.prefix + key), Body: bytes.NewReader(body), IfNoneMatch: aws.String("*")}
	if r.sse != "" {
		in.ServerSideEncryption = types.ServerSideEncryption(r.sse)
	}
	if r.class != "" {
		in.StorageClass = types.StorageClass(r.class)
	}
	asked := time.Now()
	out, err := r.client.PutObject(ctx, in, func(o *sdk.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return r.failed("put "+key, asked, err)
	}
	return r.answered(asked, out.ResultMetadata), nil
}

func (r *remote) get(ctx context.Context, key string, from, size int64) ([]byte, answer, error) {
	r.gets.Add(1)
	in := &sdk.GetObjectInput{Bucket: &r.bucketName, Key: aws.String(r.prefix + key)}
	if size >= 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", from, from+max(size, 1)-1))
	}
	asked := time.Now()
	out, err := r.client.GetObject(ctx, in)
	if err != nil {
		a, err := r.failed("get "+key, asked, err)
		return nil, a, err
	}
	a := r.answered(asked, out.ResultMetadata)
	var body bytes.Buffer
	body.Grow(int(min(aws.ToInt64(out.ContentLength), pieceMax)) + bytes.MinRead) // so that it is not copied while it grows
	_, err = body.ReadFrom(out.Body)
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return nil, a, fmt.Errorf("get %s: its bytes: %w", key, err)
	}
	a.size = int64(body.Len())
	if _, whole, found := strings.Cut(aws.ToString(out.ContentRange), "/"); found {
		if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
			a.size = n
		}
	}
	return body.Bytes(), a, nil
}

func (r *remote) list(ctx context.Context, prefix, after string, limit int) ([]item, answer, error) {
	r.lists.Add(1)
	in := &sdk.ListObjectsV2Input{Bucket: &r.bucketName, Prefix: aws.String(r.prefix + prefix), MaxKeys: aws.Int32(int32(limit))}
	if after != "" {
		in.StartAfter = aws.String(r.prefix + after)
	}
	asked := time.Now()
	out, err := r.client.ListObjectsV2(ctx, in)
	if err != nil {
		a, err := r.failed("list "+prefix, asked, err)
		return nil, a, err
	}
	var items []item
	for _, o := range out.Contents {
		items = append(items, item{strings.TrimPrefix(aws.ToString(o.Key), r.prefix), aws.ToInt64(o.Size), aws.ToTime(o.LastModified)})
	}
	return items, r.answered(asked, out.ResultMetadata), nil
}

func (r *remote) remove(ctx context.Context, key string) error {
	r.removes.Add(1)
	asked := time.Now()
	if _, err := r.client.DeleteObject(ctx, &sdk.DeleteObjectInput{Bucket: &r.bucketName, Key: aws.String(r.prefix + key)}); err != nil {
		_, err = r.failed("delete "+key, asked, err)
		return err
	}
	return nil
}

func (r *remote) answered(asked time.Time, m middleware.Metadata) (a answer) {
	if raw, is := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response); is {
		a.date = r.dated(asked, raw.Header)
	}
	return a
}

func (r *remote) dated(asked time.Time, header http.Header) time.Time {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	r.clock.observe(date, asked, time.Now(), lagOf(header))
	return date
}

// failed says what an error means, and what to do about it.
func (r *remote) failed(what string, asked time.Time, err error) (a answer, _ error) {
	status, code := 0, ""
	if e, is := errors.AsType[*smithyhttp.ResponseError](err); is && e.Response != nil {
		status = e.HTTPStatusCode()
		a.date = r.dated(asked, e.Response.Header)
	}
	if e, is := errors.AsType[smithy.APIError](err); is {
		code = e.ErrorCode()
	}
	kind := error(nil)
	switch {
	case errors.Is(err, errNoCredentials):
		return a, fmt.Errorf("%s in bucket %q: %w", what, r.bucketName, err)
	case status == http.StatusPreconditionFailed:
		kind = errExists
	case code == "NoSuchKey":
		kind = errMissing
	case status == http.StatusNotFound && code != "NoSuchBucket":
		// unclear: anybody on the way may answer so, and it does not say that the object is gone
	case status == http.StatusRequestedRangeNotSatisfiable:
		kind = errBeyond
	case code == "SlowDown", status == http.StatusTooManyRequests:
		kind = errBusy
	case status == http.StatusConflict, status == http.StatusRequestTimeout, status == 0, status >= 500:
		// unclear
	case status == http.StatusRequestEntityTooLarge, code == "EntityTooLarge":
		kind = fmt.Errorf("%w: %w", eventlog.ErrTooLarge, errRefused)
	case status >= 300:
		kind = errRefused
	}
	if kind == nil {
		return a, fmt.Errorf("%s in bucket %q: %w", what, r.bucketName, err)
	}
	advice := map[string]string{
		"NoSuchBucket":                 "the bucket does not exist: create it, or correct the URL",
		"AccessDenied":                 "the credentials lack rights: weir needs " + r.rights() + " (see docs/s3.md)",
		"InvalidAccessKeyId":           "the access key is unknown to this server: check the credentials and the endpoint",
		"SignatureDoesNotMatch":        "the secret key is wrong",
		"RequestTimeTooSkewed":         "this machine's clock differs too much from the server's: set it, for example with NTP",
		"PermanentRedirect":            "the bucket is in another region: set region=… in the URL",
		"AuthorizationHeaderMalformed": "the region is wrong: set region=… in the URL",
		"InvalidObjectState":           "an object was moved to an archive: remove the bucket's lifecycle rules for this prefix",
	}[code]
	if advice != "" {
		advice = ": " + advice
	}
	return a, fmt.Errorf("%w: %s in bucket %q%s: %w", kind, what, r.bucketName, advice, err)
}
