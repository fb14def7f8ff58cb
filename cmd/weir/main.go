// Command weir is an event log over SQLite, PostgreSQL, MariaDB, MySQL and S3 that speaks the Kafka
// protocol.
package main

import (
	"os"
	_ "time/tzdata" // schedules have time zones, and the container has no files of them

	"github.com/weir-log/weir/door/cli"
)

// version is set when the binary is built: go build -ldflags '-X main.version=…'.
var version = "unknown"

func main() {
	os.Exit(cli.Main(version, os.Args[1:]))
}
