package tour

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/s3test"
)

const brokersPage = "../../docs/kafka.md"

// Each line with which a page starts weir starts one, on a store of that kind, and what was
// published is read there.
func TestTheStartsOfThePagesStart(t *testing.T) {
	bucket := s3test.URL(t)
	server := parsed(t, bucket)
	sh, there, _ := stage{named: []string{
		"s3://my-bucket/weir?endpoint=http://minio.internal:9000", "s3://" + server.Host + server.Path + "?endpoint=" + server.Query().Get("endpoint"), "s3://my-bucket/weir", "'" + bucket + "'",
		"mysql://weir:secret@db.internal:3306/weir", mytest.URL(t), "postgres://weir@db.internal/weir", pgtest.URL(t), "/var/cache/weir", "cache",
		"postgres://weir@db1/weir", pgtest.URL(t), "postgres://weir@db2/weir", pgtest.URL(t), "postgres://weir@db3/weir", pgtest.URL(t),
	}}.start(t)
	for _, c := range []struct{ page, section string }{
		{s3Page, "# S3"}, {s3Page, "## Read-only replicas"}, {"../../docs/mysql.md", "# MariaDB and MySQL"},
		{"../../docs/cache.md", "# A cache for readers of history"}, {shardsPage, "# Several stores as one"},
	} {
		for _, f := range fencesOf(t, c.page, c.section) {
			for line := range strings.Lines(f.text) {
				sh.must(there.Replace(strings.TrimSpace(line)) + " > weir.log 2>&1 & weir=$!")
				sh.must(isReady)
				if !strings.Contains(line, "--read-only") {
					sh.must("echo " + c.section[2:] + " | weir produce orders")
				}
				if got := sh.must("weir consume orders"); !strings.Contains(got, "S3") && !strings.Contains(got, c.section[2:]) {
					t.Errorf("%s line %d: the log has %q", c.page, f.line, got)
				}
				sh.must(stopWeir)
			}
		}
	}
}

// The two lines start brokers that name each other, with certificates as the start page makes them.
func TestTheBrokersOfThePageFindEachOther(t *testing.T) {
	addresses, err := proctest.FreeAddresses(4)
	if err != nil {
		t.Fatal(err)
	}
	sh, there, _ := stage{named: []string{"postgres://weir@db.internal/weir", pgtest.URL(t), "DNS:$host", "IP:127.0.0.1"}}.start(t)
	sh.has("openssl")
	certificates := fencesOf(t, kafkaPage, "## 2. Certificates")
	sh.must(certificates[0].text)
	for i, line := range strings.Split(strings.TrimSpace(fencesOf(t, brokersPage, "## Several brokers")[0].text), "\n") {
		sh.must(there.Replace(certificates[1].text) + fmt.Sprintf("mv weir.crt weir-%d.crt && mv weir.key weir-%[1]d.key", i+1))
		name := fmt.Sprintf("broker-%d.example.org:9093", i+1)
		line = strings.NewReplacer("0.0.0.0:9093", addresses[i], name, addresses[i]).Replace(there.Replace(line))
		sh.must("WEIR_HTTP=" + addresses[i+2] + " " + line + fmt.Sprintf(" > broker-%d.log 2>&1 &", i+1))
	}
	for _, log := range []string{"broker-1.log", "broker-2.log"} {
		sh.must(`grep -m 1 'brokers="\[1 2\]"' <(tail -n +1 -f ` + log + `)`)
	}
}

// The commands of the pages about topics and rules are typed in.
func TestTheCommandsForTopicsAndRulesWork(t *testing.T) {
	for page, sections := range map[string][]string{
		s3Page: {"### Topics that may wait"}, brokersPage: {"## Compacted topics", "### Move a sink of Kafka Connect"},
	} {
		for _, section := range sections {
			stage{page: page, section: section, env: []string{"WEIR_STORE=sqlite:weir.db"}, types: true, before: map[string]func(*shell){"weir": (*shell).starts}}.replay(t)
		}
	}
}
