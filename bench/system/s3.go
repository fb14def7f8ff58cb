package system

import (
	"net/url"
	"time"

	"github.com/weir-log/weir/internal/s3test"
)

// needsS3 is what systems on S3 need.
const needsS3 = "versitygw, which is built when it is not there"

// bucket is an S3 server with a bucket that a system keeps its data in.
type bucket struct {
	database
	url    string
	server *s3test.Server
}

// startS3 starts a server that counts requests. linger is that of the store's URL; 0: its default.
func startS3(place Place, linger time.Duration) (string, database, error) {
	server, err := s3test.LaunchCounting(place.Dir)
	if err != nil {
		return "", nil, err
	}
	address, err := server.Bucket()
	if err != nil {
		return "", server, err
	}
	address, err = asOurs(address, linger)
	return address, &bucket{place.ending(server, "s3"), address, server}, err
}

// asOurs is the URL of a test's bucket without the settings with which tests have no time to lose:
// weir's defaults are measured.
func asOurs(address string, linger time.Duration) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	options := u.Query()
	options.Del("linger")
	options.Del("poll")
	if linger > 0 {
		options.Set("linger", linger.String())
	}
	u.RawQuery = options.Encode()
	return u.String(), nil
}

// requests are those to a bucket; false: it is none.
func requests(db database) (n Requests, has bool, err error) {
	b, is := db.(*bucket)
	if !is {
		return n, false, nil
	}
	n, err = b.server.Counts()
	return n, true, err
}
