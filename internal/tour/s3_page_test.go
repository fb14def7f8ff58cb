package tour

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/s3test"
)

// gateway puts the S3 server of the page into the shell's PATH.
func (s *shell) gateway() {
	s.t.Helper()
	path, err := s3test.Program()
	if err != nil {
		s.t.Fatal(err)
	}
	s.must(`PATH="$PATH:` + filepath.Dir(path) + `"`)
}

func TestABucketIsTriedAsThePageSays(t *testing.T) {
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	const gateway, example = "127.0.0.1:7070", "go run ./examples/handler"
	sh := stage{
		page: s3Page, section: "## Try it on this machine", examples: []string{"handler"}, env: []string{"TMPDIR=" + t.TempDir()},
		named:   []string{gateway, addresses[0]},
		samples: []string{"} 2", "} 49", "} 3", "} 11"},
		before: map[string]func(*shell){
			"mkdir": (*shell).gateway,
			"weir serve": func(sh *shell) {
				sh.must("curl -s --retry 60 --retry-delay 1 --retry-connrefused http://" + addresses[0])
			},
		},
	}.replay(t)
	command := strings.NewReplacer(gateway, addresses[0], example, "handler").Replace(inline(t, s3Page, example)[0])
	if got := sh.must(command); strings.Count(got, "one")+strings.Count(got, "two")+strings.Count(got, "three") != 3 {
		t.Errorf("$ %s\n%s", command, got)
	}
}

// Two servers share a bucket as the page says: one has its settings of two servers, the other those
// for Kafka clients. systemd, and the names of machines, are others.
func TestTwoServersShareABucketAsThePageSays(t *testing.T) {
	libs := languages(t)[0].have(t)
	addresses, err := proctest.FreeAddresses(4)
	if err != nil {
		t.Fatal(err)
	}
	kafka, http := addresses[:2], addresses[2:]
	sh := startShell(t, nil, "PYTHONPATH="+libs, "CURL_CA_BUNDLE=ca.crt", "WEIR_TLS_CA=ca.crt", "BUCKET="+s3test.URL(t))
	t.Cleanup(func() {
		if t.Failed() {
			sh.logFiles()
		}
	})
	sh.has("openssl")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(sh.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range fencesOf(t, kafkaPage, "## 2. Certificates") {
		sh.must(strings.Replace(f.text, "DNS:$host", "DNS:localhost,IP:127.0.0.1", 1))
	}
	sh.must("mkdir etc && cp weir.crt weir.key etc")
	settings := func(i int, block string) string {
		return strings.NewReplacer("'s3://my-bucket/weir?region=eu-central-1&linger=2s'", `"$BUCKET"`, "/etc/weir", sh.dir+"/etc", "0.0.0.0:9093", kafka[i], "0.0.0.0:8443", http[i],
			"weir-1.example.org:9093", kafka[i], "events.example.org:9093", kafka[i]).Replace(block)
	}
	clients, servers := fencesOf(t, s3Page, "## Kafka clients, too"), fencesOf(t, s3Page, "## Two servers at AWS")
	write("weir-1", settings(0, servers[0].text))
	write("weir-2", `WEIR_STORE="$BUCKET"`+"\n"+settings(1, clients[0].text))
	ready := ""
	for _, address := range http {
		ready += "\ncurl -sSf --retry 60 --retry-delay 1 --retry-connrefused https://" + address + "/readyz"
	}
	there := strings.NewReplacer("/etc/default/weir", "./weir-1", "weir-1.example.org:8443", http[0], "weir-1.example.org:9093", kafka[0], "weir-2.example.org:9093", kafka[1], "events.example.org:9093", kafka[1],
		"systemctl enable --now weir", "weir serve > weir-1.log 2>&1 & (set -a; . ./weir-2; exec weir serve) > weir-2.log 2>&1 &"+ready+"\n")
	said := sh.must("set -e\n" + there.Replace(servers[2].text) + "export WEIR_API_KEY; set +e")
	secrets := regexp.MustCompile(`weir_\w+`).FindAllString(said, -1)
	if len(secrets) != 3 || regexp.MustCompile(`(?m)^bad`).MatchString(said) {
		t.Fatalf("three keys are made, and nothing is bad, but it says\n%s", said)
	}
	sh.must("curl -sSf -H 'Authorization: Bearer " + secrets[1] + "' -d 'of a device' https://" + http[0] + "/v1/topics/events/events")
	run := func(program, secret, rest string) string {
		t.Helper()
		write("program.py", strings.NewReplacer("its secret", secret, "the secret that weir key create showed", secret, `"security.protocol"`, `"ssl.ca.location": "ca.crt", "security.protocol"`).Replace(there.Replace(program))+rest)
		return strings.TrimSpace(sh.must("python3 program.py"))
	}
	const print = "while (message := consumer.poll(1)) is None:\n    pass\nprint(message.value().decode())\nconsumer.commit(message, asynchronous=False)\nconsumer.close()\n"
	if got := run(servers[3].text, secrets[2], print); got != "of a device" {
		t.Errorf("the consumer has %q", got)
	}
	sh.must(`curl -sSf -H "Authorization: Bearer $WEIR_API_KEY" -H 'Content-Type: application/json' https://` + http[0] + `/v1/topics -d '{"name": "garden"}'`)
	run(clients[1].text, regexp.MustCompile(`weir_\w+`).FindString(sh.must("weir key create sensors --access write --topic-name garden")), "")
	if got := sh.must(`curl -sSf -H "Authorization: Bearer $WEIR_API_KEY" https://` + http[0] + "/v1/topics/garden/partitions/0/events"); !strings.Contains(got, `"21.5"`) {
		t.Errorf("the garden has %s", got)
	}
	broken := fencesOf(t, s3Page, "## When somebody deleted objects")
	sh.must(strings.TrimSpace(there.Replace(broken[len(broken)-1].text)) + " --yes") // which a terminal is asked
	if got := run(servers[3].text, secrets[2], print); got != "of a device" {
		t.Errorf("after the reset the consumer has %q", got)
	}
}

// All objects of a log are deleted, and come back by the page's commands. The server has no rules
// for the age of versions: AWS's own program checks the page's.
func TestDeletedObjectsComeBackAsThePageSays(t *testing.T) {
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	sh, there, _ := stage{
		env: []string{
			"AWS_ACCESS_KEY_ID=me", "AWS_SECRET_ACCESS_KEY=my-secret", "AWS_REGION=us-east-1",
			"WEIR_STORE=s3://my-bucket/weir?endpoint=http://" + addresses[0] + "&path_style=true&linger=0s",
		},
		named: []string{"put-bucket-lifecycle-configuration", "put-bucket-lifecycle-configuration --generate-cli-skeleton output", "2026-01-31T08:00:00 ", "2000-01-01T00:00:00 "},
	}.start(t)
	sh.gateway()
	sh.must("mkdir -p buckets/my-bucket versions iam")
	sh.must("versitygw --port " + addresses[0] + ` --access me --secret my-secret --quiet --iam-dir "$PWD/iam" posix --versioning-dir "$PWD/versions" "$PWD/buckets" > versitygw.log 2>&1 &`)
	sh.must("curl -s --retry 60 --retry-delay 1 --retry-connrefused http://" + addresses[0])
	sh.aws("--region us-east-1 --endpoint-url http://" + addresses[0])
	steps := fencesOf(t, s3Page, "## When somebody deleted objects")
	sh.must("set -e\n" + there.Replace(steps[0].text) + "set +e")
	sh.begins()
	sh.publishes("two")
	sh.must(stopWeir)
	sh.must("aws s3 rm --quiet --recursive s3://my-bucket/weir")
	if left := sh.must("aws s3api list-objects-v2 --bucket my-bucket --output text --query Contents"); strings.TrimSpace(left) != "None" {
		t.Fatalf("not all is deleted: %s", left)
	}
	if twice := strings.TrimSpace(sh.must(there.Replace(steps[1].text))); twice != "" {
		t.Errorf("what was made anew is\n%s", twice)
	}
	if said := sh.must(steps[2].text); strings.Contains(said, "Errors") { // this server also prints what went well
		t.Errorf("$ %s\n%s", steps[2].text, said)
	}
	sh.starts()
	sh.holds("one", "two")
}

// The policy allows what weir asks of a bucket, and nothing else.
func TestThePolicyHasTheRightsThatWeirUses(t *testing.T) {
	var policy struct {
		Statement []struct{ Action any }
	}
	if err := json.Unmarshal([]byte(fencesOf(t, s3Page, "## Rights")[0].text), &policy); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, s := range policy.Statement {
		allowed = append(allowed, strings.Fields(strings.Trim(fmt.Sprint(s.Action), "[]"))...)
	}
	files, err := filepath.Glob("../../store/s3/*.go")
	if err != nil {
		t.Fatal(err)
	}
	right := map[string]string{"GetObject": "s3:GetObject", "PutObject": "s3:PutObject", "DeleteObject": "s3:DeleteObject", "ListObjectsV2": "s3:ListBucket"}
	var used []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`sdk\.(\w+)Input\{`).FindAllStringSubmatch(string(source), -1) {
			used = append(used, cmp.Or(right[call[1]], call[1]))
		}
	}
	slices.Sort(used)
	slices.Sort(allowed)
	if used = slices.Compact(used); !slices.Equal(used, allowed) {
		t.Errorf("weir needs %v, and the policy allows %v", used, allowed)
	}
}

// An object of a bucket begins with a frame as the page draws it.
func TestAnObjectHasTheFrameOfThePage(t *testing.T) {
	const frame = "magic 8 bytes | length of the head, 4 bytes big-endian | CRC-32C of the head, 4 bytes big-endian | head | batches\n"
	const page = "../../docs/s3-format.md"
	if shown := fencesOf(t, page, "## Frames")[0].text; shown != frame {
		t.Fatalf("%s draws another frame: %s", page, shown)
	}
	server := s3test.Start(t)
	bucket := server.URL()
	sh, _, _ := stage{env: []string{"WEIR_STORE=" + bucket}}.start(t)
	sh.begins()
	object, err := os.ReadFile(filepath.Join(server.Directory(bucket), "log", "format"))
	if err != nil {
		t.Fatal(err)
	}
	length := int(binary.BigEndian.Uint32(object[8:]))
	if head := object[16:]; string(object[:8]) != "weirS3F1" || len(head) != length || binary.BigEndian.Uint32(object[12:]) != crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)) {
		t.Errorf("the object is %q", object)
	}
}
