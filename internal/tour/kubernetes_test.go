package tour

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/certtest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

// kubectl stands for a cluster of one pod: Secrets are directories, and what a manifest starts is a
// process with the manifest's arguments.
const kubectl = `
docker() { [ "$1" = push ] || [ -f ` + "$root/$3" + ` ]; }
pod() {
	export WEIR_STORE="$(cat secrets/weir/store)" WEIR_PROTOCOL=sasl_ssl WEIR_TLS_CA=secrets/weir-tls/ca.crt
	weir $(cat $1.args)
}
kubectl() {
	case "$*" in
	"create namespace events") ;;
	"apply -f -") cat > /dev/null ;;
	"-n events create secret generic "*)
		mkdir -p secrets/$6; of=${7#--from-*=}
		case $7 in
		--from-file=*) cp "${of#*=}" "secrets/$6/${of%%=*}" ;;
		--from-literal=*) printf %s "${of#*=}" > "secrets/$6/${of%%=*}" ;;
		esac ;;
	"-n events create -f "*|"-n events apply -f "*) grep -q 'image: registry.example.org/weir:1' $5; pod $5 ;;
	"-n events rollout status statefulset/weir") curl -sSf --cacert $WEIR_TLS_CA https://$WEIR_HTTP/readyz ;;
	"-n events exec -i weir-0 -- /weir "*) shift 7; weir "$@" ;;
	"-n events scale statefulset/weir --replicas=0") kill $weir; wait $weir || true ;;
	"-n events scale statefulset/weir --replicas=2") pod postgres-tls.yaml ;;
	*) false ;;
	esac
}`

// The page is typed from its first command to its last. The cluster is another.
func TestTheStartOnKubernetesShowsWhatHappens(t *testing.T) {
	const page, manifests = "../../docs/start-kubernetes.md", "../../deploy/kubernetes/"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := proctest.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	kafka, http, outside := addresses[0], addresses[1], addresses[2]
	server, authority := encrypted(t)
	sql(t, server.Admin(), strings.Split(strings.TrimSpace(blocks(t, page, "## Image, database, certificate", "sql")[0]), "\n")...)
	sql(t, server.Admin(), `CREATE DATABASE restored OWNER weir`)
	inPod := strings.NewReplacer("0.0.0.0:9093", kafka, "0.0.0.0:8443", http, "$(POD).weir-brokers.$(NAMESPACE).svc:9093", kafka, "0.0.0.0:9094", outside, "$(POD).example.org:9094", outside,
		"/tls/", "secrets/weir-tls/", "/users/", "secrets/weir-users/")
	arguments := regexp.MustCompile(`(?m)^ *- (--\S+|serve|user|create|admin)(?: #.*)?$`)
	argsOf := func(yaml string) (args []string) {
		for _, m := range arguments.FindAllStringSubmatch(yaml, -1) {
			args = append(args, inPod.Replace(m[1]))
		}
		return args
	}
	tables := func(database string) string {
		u := parsed(t, server.Admin())
		u.Path = database
		return pgtest.Value(t, u.String(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'weir'`)
	}
	sh := stage{
		page: page, types: true, env: []string{"root=" + root, "WEIR_KAFKA=" + kafka, "WEIR_HTTP=" + http, "WEIR_BOOTSTRAP=" + kafka},
		named: []string{"@db-1,db-2/", "@" + byName(t, server) + "/", "/db/ca.crt", "secrets/weir-db/ca.crt", "/users/", "secrets/weir-users/", "../prometheus", root + "/deploy/prometheus",
			"weir-2026-01-31.dump", "backup/*.dump"},
		before: map[string]func(*shell){
			"docker": func(sh *shell) {
				sh.has("openssl", "pg_dump", "pg_restore")
				sh.hasTerminals()
				sh.must(kubectl)
				signer := certtest.New(t)
				cert, key := signer.Issue(t, "weir", time.Hour)
				sh.must("mkdir -p secrets/weir-tls backup")
				files := map[string]string{"db-ca.crt": string(authority), "secrets/weir-tls/tls.crt": string(cert), "secrets/weir-tls/tls.key": string(key), "secrets/weir-tls/ca.crt": string(signer.PEM())}
				for _, name := range []string{"first-user.yaml", "postgres-tls.yaml"} {
					text, err := os.ReadFile(manifests + name)
					if err != nil {
						t.Fatal(err)
					}
					files[name], files[name+".args"] = string(text), strings.Join(argsOf(string(text)), "\n")
				}
				for name, text := range files {
					if err := os.WriteFile(filepath.Join(sh.dir, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
			"kubectl -n events scale": func(sh *shell) {
				script := regexp.MustCompile(`'(.*)'`).FindStringSubmatch(blocks(t, page, "## Backup", "yaml")[0])[1]
				sh.must("export STORE=$WEIR_STORE; " + strings.Replace(script, "/backup/", "backup/", 1))
				sh.must(`STORE="${STORE/\/weir\?/\/restored?}"`)
			},
		},
	}.replay(t)
	if was, is := tables("/weir"), tables("/restored"); was != is || is == "0" {
		t.Errorf("weir had %s tables, and the restored database has %s", was, is)
	}

	// The second listener takes the place of what the manifest has.
	args, err := os.ReadFile(filepath.Join(sh.dir, "postgres-tls.yaml.args"))
	if err != nil {
		t.Fatal(err)
	}
	more := argsOf(blocks(t, page, "## Clients", "yaml")[0])
	for arg := range strings.FieldsSeq(string(args)) {
		if !strings.HasPrefix(arg, "--kafka=") && !strings.HasPrefix(arg, "--advertise=") {
			more = append(more, arg)
		}
	}
	sh.must("weir serve " + strings.Replace(strings.Join(more, " "), " serve ", " ", 1))
	if got := sh.must("weir consume try --bootstrap " + outside + " --user admin --password-file secrets/weir-users/admin"); !strings.Contains(got, "hello") {
		t.Errorf("from outside the topic has %q", got)
	}
}
