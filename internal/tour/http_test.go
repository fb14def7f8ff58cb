package tour

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/proctest"
)

const httpPage = "../../docs/http.md"

// ofHTTP is what the page shows as an example: times; and the ids and receipts of weir.
var (
	timesOfHTTP = []string{"1763718000000", "1763718030000", "1763718300000", "1767225600000"}
	namesOfHTTP = []string{"3f2a91c0", "peer-7XQ…", "12-0", "13-0", "9f…", "14-3", "3k7qhd2m", "k2v6m0xa"}
)

func TestTheHTTPPageShowsWhatHappens(t *testing.T) {
	stage{
		page: httpPage, env: []string{"WEIR_STORE=sqlite:weir.db"}, saves: true, samples: timesOfHTTP, taken: namesOfHTTP,
		named: []string{
			"curl -N ", "stream ", // which has no end
			"curl ", "curl -sS ", // in a terminal it does not show how far it is
		},
		before: map[string]func(*shell){
			"curl http://127.0.0.1:8080/v1/topics": func(sh *shell) { sh.starts() },
			"curl -N":                              func(sh *shell) { sh.must(`stream() { sed '/a boat/q' <(curl -sSN "$@"); }`) },
			"curl http://127.0.0.1:8080/v1/keys": func(sh *shell) {
				sh.must("ADMIN=$(weir key create ops --access admin --all-topics --all-groups --output json | jq -r .secret)")
				sh.must(`curl -sSf -o keys.json --retry 60 --retry-delay 1 --retry-all-errors -H "Authorization: Bearer $ADMIN" $WEIR_SERVER/v1/keys`)
			},
		},
	}.replay(t)
}

// Both proxies have the page's settings, without TLS. What they have to let through is an event of
// a stream at once, a body of more than 1 MiB, and what tells weir that the client is elsewhere.
func TestWeirIsBehindAProxyAsThePageSays(t *testing.T) {
	dir := language{
		name: "proxies", libraries: "debian-nginx-caddy",
		fetch: func(dir string) [][]string {
			return [][]string{{"sh", "-ec", `cd "$0"; apt-get download nginx caddy; for p in *.deb; do dpkg -x $p .; done`, dir}}
		},
	}.have(t)
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	shown := fencesOf(t, httpPage, "## Behind a proxy")
	if len(shown) != 2 {
		t.Fatalf("the page has %d proxies", len(shown))
	}
	sh, there, _ := stage{env: []string{"WEIR_STORE=sqlite:weir.db", "HOME=" + t.TempDir()}, named: []string{"events.example.org", "http://" + addresses[0]}}.start(t)
	sh.starts()
	sh.must(`weir topic create orders && head -c 600000 /dev/zero | tr '\0' x | sed 's/.*/{"value":"&"}\n{"value":"&"}\n/' > large.ndjson`)
	sh.must("KEY=$(weir key create ops --access admin --all-topics --all-groups --output json | jq -r .secret)")
	sh.must(`ask() { curl -sSfN -H "Authorization: Bearer $KEY" "$@"; }`)
	sh.must("ask -o topics.json --retry 60 --retry-delay 1 --retry-all-errors $WEIR_SERVER/v1/topics")
	for _, c := range []struct{ file, text, run, address string }{
		{"Caddyfile", "{\n\tadmin off\n}\n" + shown[0].text, dir + "/usr/bin/caddy run --adapter caddyfile --config Caddyfile", addresses[0]},
		{
			"nginx.conf", "daemon off; user root; pid nginx.pid; events {}\nhttp { access_log off;" +
				"client_body_temp_path c; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n" +
				"server { listen " + addresses[1] + ";\n" + shown[1].text + "} }\n",
			dir + "/usr/sbin/nginx -e stderr -p . -c nginx.conf", addresses[1],
		},
	} {
		if err := os.WriteFile(filepath.Join(sh.dir, c.file), []byte(there.Replace(c.text)), 0o600); err != nil {
			t.Fatal(err)
		}
		sh.must(c.run + " > " + c.file + ".log 2>&1 &")
		sh.must(strings.Replace(isReady, "$WEIR_SERVER", c.address, 1))
		sh.must("ask -o large.json -H 'Content-Type: application/x-ndjson' --data-binary @large.ndjson " + c.address + "/v1/topics/orders/batch")
		sh.must("exec 3< <(ask -H 'Accept: application/x-ndjson' '" + c.address + "/v1/topics/orders/events?from=earliest')")
		sh.must("ask " + c.address + "/v1/topics/orders/events -d through-" + c.file)
		if code := sh.must("curl -s -o refused.json -w '%{http_code}' " + c.address + "/v1/topics"); strings.TrimSpace(code) != "401" {
			t.Errorf("a client of the proxy without a key gets %s", code)
		}
		if got := sh.must("grep -m 1 through-" + c.file + " <&3"); !strings.Contains(got, "through-"+c.file) {
			t.Errorf("a stream through the proxy has %q", got)
		}
	}
}
