package s3test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Counts are the requests that a server was sent since it was launched, as providers price them.
// Deletions are free.
type Counts struct{ Puts, Gets, Lists int64 }

// Counts counts them, also those that were refused. Only a server of LaunchCounting knows them.
func (s *Server) Counts() (n Counts, err error) {
	log, err := os.Open(s.accesses())
	if err != nil {
		return n, err
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		_, after, is := strings.Cut(lines.Text(), " s3_") // owner, bucket, time, address, user, identity of the request
		if !is {
			continue // the log's beginning
		}
		operation, _, _ := strings.Cut(after, " ")
		switch {
		case strings.HasPrefix(operation, "Delete"):
		case strings.HasPrefix(operation, "List"):
			n.Lists++
		case strings.HasPrefix(operation, "Get"), strings.HasPrefix(operation, "Head"):
			n.Gets++
		default: // whatever writes is priced as a PUT
			n.Puts++
		}
	}
	if err := lines.Err(); err != nil {
		return n, fmt.Errorf("read the log of the S3 server: %w", err)
	}
	return n, nil
}

// accesses is the log of the requests, in the format of S3's server access logs.
func (s *Server) accesses() string { return filepath.Join(s.dir, "accesses") }
