package httpapi_test

import (
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/user"
)

// On every store a user publishes and reads what a stored rule allows, through every process on it,
// and nothing else; and it stays so when the process starts again.
func TestUsersAndRulesOnEveryStore(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		quiet := slog.New(slog.DiscardHandler)
		opened := store()
		users, acls := user.New(everystore.Direct(opened), quiet), acl.New(everystore.Direct(opened), quiet)
		c, err := user.FromPassword(user.SHA512, "a long password", user.IterationsMin)
		if err != nil {
			t.Fatal(err)
		}
		if err := users.Change(t.Context(), []user.Change{{Name: "alice", Set: map[user.Mechanism]user.Credential{user.SHA512: c}}})[0]; err != nil {
			t.Fatal(err)
		}
		may := func(op acl.Operation, name string) acl.Binding {
			return acl.Binding{Principal: "User:alice", Host: acl.Everywhere, Rule: acl.Rule{Kind: acl.Topic, Name: name, Prefixed: true, Operation: op}}
		}
		for _, err := range acls.Create(t.Context(), []acl.Binding{may(acl.Write, "orders."), may(acl.Read, "orders.")}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		alice := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("alice:a long password"))
		for _, process := range []string{"one", "two"} {
			opened := store()
			d := openOn(t, opened, httpapi.Config{Keys: apikey.New(everystore.Direct(opened), quiet), Users: user.New(everystore.Direct(opened), quiet), ACLs: acl.New(everystore.Direct(opened), quiet)})
			d.topic("orders."+process, 1)
			d.topic("invoices."+process, 1)
			d.do("POST", "/v1/topics/orders."+process+"/events", "one", alice).want(200, `{"partition":0,"offset":0}`)
			d.get("/v1/topics/orders."+process+"/partitions/0/events", alice).contains(200, `"value":"one"`)
			d.do("POST", "/v1/topics/invoices."+process+"/events", "one", alice).refused(403, "forbidden", "WRITE", "invoices."+process)
			d.get("/v1/topics/orders."+process+"/partitions/0/events", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("alice:another password"))).refused(401, "unauthorized")
			d.get("/v1/topics").refused(401, "unauthorized")
			d.stop()
		}
	})
}

// contains sees that an answer has a text in it.
func (a answer) contains(status int, text string) {
	a.t.Helper()
	if a.status != status || !strings.Contains(a.body, text) {
		a.t.Errorf("%d %s\nwant %d and %s", a.status, a.body, status, text)
	}
}
