package tour

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// row says which tests run blocks of a page, or compare them with what they quote: those of a
// section, or of all if none is named, and only of these kinds. "-" is a block without a kind. A
// test of another package has the package's directory before its name.
type row struct{ page, section, kinds, tests string }

var replayed = []row{
	{"README.md", "", "console sh", "TestTheReadmeShowsWhatHappens"},
	{"README.md", "## Install", "ini", "TestTheReadmeShowsWhatHappens"},
	{"README.md", "### Go, without a server", "go", "TestTheReadmesProgram"},
	{"bench-adapter.md", "# An adapter for weir-bench", "sh", "bench/cmd/weir-bench/TestTheCommandsOfThePagesCanBeGiven"},
	{"bench-adapter.md", "", "-", "bench/cmd/weir-bench/TestAnAdapterAnswersAsOnThePage"},
	{"bench.md", "", "sh", "bench/cmd/weir-bench/TestTheCommandsOfThePagesCanBeGiven"},
	{"bench.md", "## Workloads", "yaml", "bench/cmd/weir-bench/TestTheWorkloadOfThePageCanBeMeasured"},
	{"cache.md", "# A cache for readers of history", "sh", "TestTheStartsOfThePagesStart"},
	{"clients.md", "### What they need", "sh", "TestTheProgramsOfAllLanguages"},
	{"clients.md", "", "python ts java go", "TestTheProgramsOfAllLanguages"},
	{"cost.md", "", "sh console json", "TestTheCostPageShowsWhatHappens"},
	{"from-kafka.md", "## Copy with MirrorMaker", "-", "TestTheFileForMirrorMakerHasTheLinesThatChangeInAPod"},
	{"from-kafka.md", "## The way back", "-", "TestTheWayBackCopiesWhatCameSince"},
	{"http.md", "", "console json", "TestTheHTTPPageShowsWhatHappens"},
	{"http.md", "## Behind a proxy", "caddyfile nginx", "TestWeirIsBehindAProxyAsThePageSays"},
	{"kafka.md", "## Several brokers", "sh", "TestTheBrokersOfThePageFindEachOther"},
	{"kafka.md", "## Compacted topics", "console", "TestTheCommandsForTopicsAndRulesWork"},
	{"kafka.md", "### MirrorMaker 2", "-", "TestTheRulesForMirrorMakerAreRules"},
	{"kafka.md", "### MirrorMaker in a pod", "-", "TestTheFileForMirrorMakerHasTheLinesThatChangeInAPod"},
	{"kafka.md", "### Move a sink of Kafka Connect", "sh", "TestTheCommandsForTopicsAndRulesWork"},
	{"moving.md", "## In three steps", "-", "TestTheThreeStepsOfAMoveWork"},
	{"moving.md", "## An example", "console", "TestTheMoveToAnotherStoreShowsWhatHappens"},
	{"mysql.md", "# MariaDB and MySQL", "sh", "TestTheStartsOfThePagesStart"},
	{"mysql.md", "## The user", "sql", "TestAMariaDBDumpIsRestoredAsThePageSays"},
	{"operations.md", "## Start and stop", "sh ini", "TestWeirStartsAsTheOperationsPageSays"},
	{"operations.md", "## API keys", "-", "TestTheCommandsOfTheOperationsPageWork"},
	{"operations.md", "### Backup: SQLite", "console", "TestASQLiteBackupIsPutBackAsThePageSays"},
	{"operations.md", "### Backup: MariaDB and MySQL", "console", "TestAMariaDBDumpIsRestoredAsThePageSays"},
	{"operations.md", "### Backup: PostgreSQL", "console", "TestAPostgresDumpIsRestoredAsThePageSays"},
	{"operations.md", "### Backup: a database that has your tables, too", "console", "TestADatabaseWithAProgramsTablesIsRestoredAsThePageSays"},
	{"operations.md", "### Failovers: PostgreSQL", "console", "TestAFailoverIsMadeAsThePageSays"},
	{"operations.md", "## Upgrades", "console", "TestAnUpgradeIsMadeAsThePageSays"},
	{"queue-production.md", "", "sh", "TestAQueueGoesIntoProductionAsThePageSays"},
	{"queue.md", "", "console", "TestTheQueueWalkShowsWhatHappens"},
	{"queue.md", "## How to use it", "sh sql", "TestTheQueuePagesCommandsAndStatementsWork"},
	{"queue.md", "## How to use it", "go", "TestThePiecesOfGoOfThePagesCompile"},
	{"queue.md", "### In your tests", "sql", "TestTheQueuePagesCommandsAndStatementsWork"},
	{"queue.md", "## A walk through", "sh", "TestTheWalksBuildTheProgramsThatTheyUse"},
	{"queue.md", "## Schedules", "sh", "TestTheQueuePagesCommandsAndStatementsWork"},
	{"queue.md", "## Schedules", "go", "TestThePiecesOfGoOfThePagesCompile"},
	{"queue.md", "### Enqueue", "go", "TestTheQueuePageShowsTheExample"},
	{"s3-format.md", "## Frames", "-", "TestAnObjectHasTheFrameOfThePage"},
	{"s3.md", "# S3", "sh", "TestTheStartsOfThePagesStart"},
	{"s3.md", "## Try it on this machine", "console", "TestABucketIsTriedAsThePageSays"},
	{"s3.md", "## Rights", "json", "TestThePolicyHasTheRightsThatWeirUses"},
	{"s3.md", "## Kafka clients, too", "sh python", "TestTwoServersShareABucketAsThePageSays"},
	{"s3.md", "## Two servers at AWS", "sh python", "TestTwoServersShareABucketAsThePageSays"},
	{"s3.md", "## Read-only replicas", "sh", "TestTheStartsOfThePagesStart"},
	{"s3.md", "### Topics that may wait", "console", "TestTheCommandsForTopicsAndRulesWork"},
	{"s3.md", "## When somebody deleted objects", "sh", "TestDeletedObjectsComeBackAsThePageSays TestTwoServersShareABucketAsThePageSays"},
	{"security.md", "", "console sh properties", "TestTheSecurityPageShowsWhatHappens"},
	{"shards.md", "# Several stores as one", "sh", "TestTheStartsOfThePagesStart"},
	{"shards.md", "## Moving partitions", "sh", "TestPartitionsMoveAsThePageSays"},
	{"sql.md", "", "sql console", "TestTheSQLOfThePageIsRunAsItStands"},
	{"start-events-postgres.md", "", "go sql", "TestTheStartWithEventsOnPostgresShowsTheExample"},
	{"start-events-postgres.md", "## Deploy, back up, upgrade", "sh", "TestSettingsThatPagesShareAreTheSame"},
	{"start-events.md", "# Event sourcing in Go, from nothing", "sh", "TestTheWalksBuildTheProgramsThatTheyUse"},
	{"start-events.md", "", "console", "TestTheStartWithEventsShowsWhatHappens"},
	{"start-events.md", "", "go sql", "TestTheStartWithEventsShowsTheExample"},
	{"start-kafka.md", "", "sql sh ini console", "TestTheStartInPlaceOfKafkaShowsWhatHappens"},
	{"start-kafka.md", "## 5. Start, and try it", "properties", "TestSettingsThatPagesShareAreTheSame"},
	{"start-kubernetes.md", "## Clients", "properties", "TestSettingsThatPagesShareAreTheSame"},
	{"start-kubernetes.md", "", "sh", "TestTheStartOnKubernetesShowsWhatHappens"},
	{"start-kubernetes.md", "## Image, database, certificate", "sql", "TestTheStartOnKubernetesShowsWhatHappens"},
	{"start-kubernetes.md", "## Clients", "yaml", "TestTheStartOnKubernetesShowsWhatHappens"},
	{"start-kubernetes.md", "## Backup", "yaml", "TestTheStartOnKubernetesShowsWhatHappens"},
	{"start-kubernetes.md", "## Metrics and alerts", "sh", "TestTheStartOnKubernetesShowsWhatHappens deploy/TestThePagesMakeAPrometheusRuleOfTheRules"},
	{"start-queue.md", "", "console python", "TestTheStartWithAQueueShowsWhatHappens"},
	{"start-s3.md", "", "console sh python", "TestTheStartWithABucketShowsWhatHappens"},
	{"start-s3.md", "## The bucket", "ini", "TestTheStartWithABucketShowsWhatHappens"},
	{"start-s3.md", "## From other machines", "caddyfile", "TestSettingsThatPagesShareAreTheSame"},
	{"start-s3.md", "## A backup", "sh", "TestACopyOfABucketIsRestoredAsThePageSays"},
	{"streams.md", "", "console", "TestTheStreamWalkShowsWhatHappens"},
	{"streams.md", "## In Go", "go", "TestTheStreamsPageShowsTheLibrarysCalls"},
	{"streams.md", "## Forget a person", "go", "TestTheStreamsPageForgetsAPersonAsTheExampleDoes"},
	{"streams.md", "## A walk through", "sh", "TestTheWalksBuildTheProgramsThatTheyUse"},
	{"streams.md", "## Snapshots", "go", "TestThePiecesOfGoOfThePagesCompile"},
	{"streams.md", "## When events change", "go", "TestThePiecesOfGoOfThePagesCompile"},
	{"streams.md", "## Projections", "go", "TestTheStreamsPageShowsTheFieldsOfAProjection"},
	{"streams.md", "### A new shape", "sql", "TestTheStatementsOfTheStreamsPageWork"},
	{"streams.md", "## In SQL", "sql", "TestTheStatementsOfTheStreamsPageWork"},
	{"streams.md", "### A transfer", "go", "TestTheStreamsPageReactsAsTheExampleDoes"},
	{"tour.md", "# A tour in one shell", "sh", "TestTheWalksBuildTheProgramsThatTheyUse"},
	{"tour.md", "", "console", "TestTheTourShowsWhatHappens"},
	{"troubleshooting.md", "", "-", "TestTroublesAreQuotedWordForWord"},
	{"verify.md", "", "console", "TestTheVerifyPageShowsWhatHappens"},
}

// listed are the blocks that no test runs, and why.
var listed = []struct{ page, section, kinds, reason string }{
	{"README.md", "# weir", "-", "a drawing"},
	{"queue-production.md", "# A queue in production", "ini", "a setting of systemd, which a test has not"},
	{"start-kafka.md", "## 3. Settings", "-", "makes a group of the machine, and a setting of systemd"},
	{"start-kubernetes.md", "## Image, database, certificate", "yaml", "a resource of cert-manager, which needs a cluster"},
	{"start-kubernetes.md", "## Metrics and alerts", "yaml", "settings of Prometheus for pods of a cluster"},
	{"kafka.md", "### MirrorMaker in a pod", "yaml sh", "needs a cluster, and an image with MirrorMaker"},
	{"clients.md", "### C#", "csharp", "needs .NET, which the machines of the tests do not have"},
}

func TestEveryBlockOfTheDocsIsRunByATestOrListed(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{} // and a page that has it
	of := func(page, section, kind string) string { return page + " " + section + " " + kind }
	rows := map[string]bool{} // and whether they have a block
	for _, r := range replayed {
		for kind := range strings.FieldsSeq(r.kinds) {
			rows[of(r.page, r.section, kind)] = false
			for test := range strings.FieldsSeq(r.tests) {
				tests[test] = r.page
			}
		}
	}
	for _, l := range listed {
		for kind := range strings.FieldsSeq(l.kinds) {
			key := of(l.page, l.section, kind)
			if _, both := rows[key]; both {
				t.Errorf("%s is listed, and has a test", key)
			}
			rows[key] = false
		}
	}
	for _, page := range append(pages, readme) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(page)
		for _, f := range fencesIn(string(text)) {
			if f.kind == "" {
				f.kind = "-"
			}
			found := false
			for _, key := range []string{of(name, f.section, f.kind), of(name, "", f.kind)} {
				if _, is := rows[key]; is && !found {
					rows[key], found = true, true
				}
			}
			if !found {
				t.Errorf("%s line %d: no test runs this block of kind %s (%s), nor compares it with anything. Let a test do so, and add a row", page, f.line, f.kind, f.section)
			}
		}
	}
	for key, used := range rows {
		if !used {
			t.Errorf("no block belongs to the row %s", key)
		}
	}
	for test, page := range tests {
		dir, name := filepath.Split(test)
		if dir == "" {
			dir = "internal/tour"
		}
		if !hasTest(t, filepath.Join("../..", dir), name) {
			t.Errorf("%s has a row with the test %s, which is not there", page, test)
		}
	}
}

// hasTest tells whether a package has a test.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && regexp.MustCompile(`(?m)^func `+name+`\(t `).Match(text)
	})
}
