package tour

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/weir-log/weir/internal/proctest"
)

const securityPage = "../../docs/security.md"

// The page is typed from its first command to its last. Where it shows the settings of a client,
// Kafka's own kafka-topics.sh lists topics with them.
func TestTheSecurityPageShowsWhatHappens(t *testing.T) {
	libs, issuer := kafkaTools(t), newIssuer(t)
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	list := func(sh *shell, section, password string) {
		t.Helper()
		settings := strings.NewReplacer("weir_…", password, "…", password, "https://id.example.org", issuer).Replace(blocks(t, securityPage, section, "properties")[0])
		if err := os.WriteFile(filepath.Join(sh.dir, "client.properties"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		command := inline(t, securityPage, "kafka-topics.sh ")[0]
		if out := sh.must(strings.Replace(command, "localhost:9093", addresses[0], 1)); !strings.Contains(out, "orders") {
			t.Errorf("%s: with the page's settings %s lists %q", section, command, out)
		}
	}
	stage{
		page: securityPage, types: true, env: []string{"WEIR_LOG_LEVEL=debug"},
		samples: []string{"2026-01-31T08:00:00Z", "192.0.2.7:52144"}, taken: []string{"3k7qhd2m"},
		named: []string{"0.0.0.0:9093", addresses[0], "localhost:9093", addresses[0], "https://localhost:8080", "https://$WEIR_HTTP", "https://id.example.org", issuer},
		before: map[string]func(*shell){
			"weir acl list": func(sh *shell) {
				sh.has("openssl", "kcat")
				sh.must(`kafka-topics.sh() { java $KAFKA_OPTS -cp '` + libs + `/*' org.apache.kafka.tools.TopicCommand "$@"; }`)
				sh.hasTerminals()
				sh.must("weir serve")
				sh.must("weir acl create --principal User:alice --allow --operation write --topic orders. --prefixed")
				sh.must("weir key create shop --access write --topic orders.")
			},
			"weir audit": func(sh *shell) {
				sh.must("openssl rand -hex 16 > alice.password && weir user create alice --password-file alice.password")
				sh.must("weir acl create --principal User:alice --allow --operation alter --topic orders")
				sh.must("weir topic create orders --partitions 2")
				sh.must(`curl -sSf --retry 60 --retry-delay 1 --retry-all-errors -u alice:$(cat alice.password) -X PATCH -H 'Content-Type: application/json' $WEIR_SERVER/v1/topics/orders -d '{"partitions": 3}'`)
			},
			"weir acl create --principal 'User:*'": func(sh *shell) {
				sh.must(`openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/O=Example/OU=Finance/CN=Billing" -keyout finance.key -out finance.csr`)
				sh.must(`openssl x509 -req -in finance.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out finance.crt`)
				for name, who := range map[string]string{"finance": "User:billing", "client": "User:CN=billing"} {
					_, _ = sh.run("kcat -b " + addresses[0] + " -X security.protocol=ssl -X ssl.ca.location=ca.crt -X ssl.key.location=" + name + ".key -X ssl.certificate.location=" + name + ".crt -L")
					sh.must("grep -m 1 'principal=\"*" + who + "\\b' <(tail --pid $weir -n +1 -f weir.log)")
				}
			},
			"kcat": func(sh *shell) {
				sh.must(inline(t, securityPage, "cat client.key")[0])
				list(sh, "## Certificates", "")
			},
			"echo hello | kcat": func(sh *shell) { list(sh, "## Logging in with an API key", strings.TrimSpace(sh.must("echo $SECRET"))) },
			"weir serve --kafka sasl_ssl://0.0.0.0:9093 --tls-cert weir.crt --tls-key weir.key --super-users": func(sh *shell) {
				if got := sh.must("weir consume orders.eu"); got != "hello\nhello\n\n" {
					t.Errorf("kcat and weir have produced %q", got)
				}
			},
			"weir serve --kafka sasl_ssl://0.0.0.0:9093 --tls-cert weir.crt --tls-key weir.key --store": func(sh *shell) {
				list(sh, "### Settings of clients", strings.TrimSpace(sh.must("cat admin.password")))
			},
			"weir user create alice": func(sh *shell) {
				sh.must("export " + strings.Replace(inline(t, securityPage, "KAFKA_OPTS=")[0], "https://id.example.org", issuer, 1))
				list(sh, "## OAuth tokens", "secret")
				sh.must("weir user delete alice --yes")
			},
		},
	}.replay(t)
}

// kafkaTools returns the directory of Kafka's own tools.
func kafkaTools(t *testing.T) string {
	t.Helper()
	return language{
		name: "Kafka's tools", libraries: "java-kafka-tools-4.1.0",
		fetch: func(dir string) (all [][]string) {
			for _, artifact := range []string{
				"org.apache.kafka:kafka-clients:4.1.0", "org.apache.kafka:kafka-tools:4.1.0", "org.apache.kafka:kafka-server-common:4.1.0", "org.apache.kafka:kafka-storage:4.1.0",
				"com.fasterxml.jackson.core:jackson-databind:2.19.0", "com.fasterxml.jackson.core:jackson-core:2.19.0", "com.fasterxml.jackson.core:jackson-annotations:2.19.0",
				"net.sf.jopt-simple:jopt-simple:5.0.4", "org.bitbucket.b_c:jose4j:0.9.6", "org.slf4j:slf4j-api:1.7.36",
			} {
				all = append(all, []string{"mvn", "-q", "-B", "dependency:copy", "-DoutputDirectory=" + dir, "-Dartifact=" + artifact})
			}
			return all
		},
	}.have(t)
}

// newIssuer returns the address of an issuer of tokens: whoever asks gets one for User:billing.
func newIssuer(t *testing.T) (address string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{KeyID: "1", Key: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const realm = "/realms/shop"
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc(realm+"/protocol/openid-connect/certs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "1", Key: key.Public()}}})
	})
	mux.HandleFunc(realm+"/protocol/openid-connect/token", func(w http.ResponseWriter, _ *http.Request) {
		token, err := jwt.Signed(signer).Claims(map[string]any{"iss": server.URL + realm, "aud": "weir", "sub": "billing", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	})
	return server.URL
}
