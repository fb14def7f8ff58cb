package s3

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	form    = "s3://bucket/prefix"
	options = "endpoint, region, path_style, linger, poll, verify, flush_bytes, alone, read_only, sse, storage_class and grace"
)

// place is a bucket, a prefix in it, and how to use them: what a URL says.
type place struct {
	bucketName string
	prefix     string // empty, or ends with a slash
	endpoint   string
	region     string
	pathStyle  bool
	sse        string
	class      string

	linger  time.Duration // at least this long from one put to the next
	poll    time.Duration // Changes asks the server at most this often
	flush   int           // most bytes of batches in one commit
	verify  time.Duration // how often the newest known commit is read again, to notice that the bucket was rewound
	grace   time.Duration // how long objects stay that are no longer named
	alone   bool          // no other process writes
	replica bool          // this process only reads: it sends no request that writes

	every int64 // a snapshot after so many commits; 0: snapshotEvery
}

// graceMin is the shortest grace: a process may be slow by a quarter of grace. S3 takes a request
// up to 15 minutes after its signature (docs.aws.amazon.com, "Authenticating Requests"), so a put
// may arrive after grace. That does no harm: a late commit lies where nobody looks, and names of
// other objects are used once.
const graceMin = 10 * time.Minute

func parse(address string) (place, error) {
	at := place{linger: 250 * time.Millisecond, flush: flushBytes, poll: time.Second, verify: 10 * time.Second, grace: time.Hour}
	u, err := url.Parse(address)
	if err != nil {
		return at, fmt.Errorf("the URL cannot be parsed; it must have the form %s", form)
	}
	if u.User != nil {
		return at, fmt.Errorf("the URL holds credentials: weir takes them from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from a profile; the URL must have the form %s", form)
	}
	at.bucketName = u.Host
	if at.bucketName == "" {
		return at, fmt.Errorf("the URL names no bucket; it must have the form %s", form)
	}
	if at.prefix = strings.Trim(u.Path, "/"); at.prefix != "" {
		at.prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return at, fmt.Errorf("the options of the URL cannot be parsed: %w", err)
	}
	for name, values := range query {
		value := values[len(values)-1]
		var err error
		switch name {
		case "endpoint":
			e, bad := url.Parse(value)
			if bad != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil {
				err = fmt.Errorf("it must be http://host:port or https://host:port")
			}
			at.endpoint = value
		case "region":
			at.region = value
		case "path_style":
			at.pathStyle, err = strconv.ParseBool(value)
		case "alone":
			at.alone, err = strconv.ParseBool(value)
		case "read_only":
			at.replica, err = strconv.ParseBool(value)
		case "linger":
			at.linger, err = duration(value, 0, time.Minute)
		case "poll":
			at.poll, err = duration(value, 0, time.Minute)
		case "verify":
			at.verify, err = duration(value, 0, time.Hour)
		case "flush_bytes":
			at.flush, err = strconv.Atoi(value)
			if err != nil || at.flush < flushMin || at.flush > commitMax {
				err = fmt.Errorf("it must be a number of bytes from %d to %d", flushMin, commitMax)
			}
		case "grace":
			at.grace, err = duration(value, graceMin, 30*24*time.Hour)
		case "sse":
			if at.sse = value; value != "AES256" && value != "aws:kms" {
				err = fmt.Errorf("it must be AES256 or aws:kms")
			}
		case "storage_class":
			if at.class = value; value == "GLACIER" || value == "DEEP_ARCHIVE" {
				err = fmt.Errorf("objects in an archive cannot be read at once")
			}
		default:
			return at, fmt.Errorf("the URL has the unknown option %q; there are %s", name, options)
		}
		if err != nil {
			return at, fmt.Errorf("%s=%s in the URL: %w", name, value, err)
		}
	}
	if at.alone && at.replica {
		return at, errors.New("the URL has alone=true and read_only=true: a process that is alone never looks for what others wrote, and one that only reads would see nothing new: leave one of them out")
	}
	return at, nil
}

// rights names the rights that a process needs for a bucket, for messages.
func (p place) rights() string {
	if p.replica {
		return "s3:GetObject and s3:ListBucket, as it only reads"
	}
	return "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket; with --read-only it only reads, and the first and the last are enough"
}

func duration(value string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("it must be a duration from %v to %v, such as 10ms", least, most)
	}
	return d, nil
}

// name names the place without options, for messages.
func (p place) name() string {
	name := "s3://" + p.bucketName + "/" + p.prefix
	if p.endpoint != "" {
		name += " at " + p.endpoint
	}
	return name
}
