package kafka_test

import (
	"encoding/base64"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	server "github.com/xdg-go/scram"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/user"
)

// population is a broker whose clients log in as users.
type population struct {
	*guarded
	users *user.Users
}

func populate(t *testing.T, store eventlog.Store, fake bool) *population {
	users := user.New(everystore.Direct(store), slog.New(slog.DiscardHandler))
	return &population{guard(t, store, kafka.Config{Users: users, SuperUsers: []string{"User:admin"}}, fake), users}
}

// add adds a user, or changes its password.
func (p *population) add(name, password string) {
	p.t.Helper()
	set := make(map[user.Mechanism]user.Credential)
	for _, m := range user.Mechanisms {
		c, err := user.FromPassword(m, password, user.IterationsMin)
		if err != nil {
			p.t.Fatal(err)
		}
		set[m] = c
	}
	p.change(user.Change{Name: name, Set: set})
}

func (p *population) change(c user.Change) {
	p.t.Helper()
	if err := p.users.Change(p.t.Context(), []user.Change{c})[0]; err != nil {
		p.t.Fatal(err)
	}
}

// scram logs in, with another implementation of the client's side.
func (w *wire) scram(name, password string) *kmsg.SASLAuthenticateResponse {
	w.t.Helper()
	client, err := server.SHA256.NewClient(name, password, "")
	if err != nil {
		w.t.Fatal(err)
	}
	talk := client.NewConversation()
	wantCode(w.t, "handshake", w.handshake(1, "SCRAM-SHA-256").ErrorCode, nil)
	message, _ := talk.Step("")
	first := w.authenticate(message)
	wantCode(w.t, "first message of "+name, first.ErrorCode, nil)
	if message, err = talk.Step(string(first.SASLAuthBytes)); err != nil {
		w.t.Fatal(err)
	}
	last := w.authenticate(message)
	if last.ErrorCode == 0 {
		if _, err := talk.Step(string(last.SASLAuthBytes)); err != nil {
			w.t.Errorf("the server does not show that it knows the password: %v", err)
		}
	}
	return last
}

func TestUserLogsInWithSCRAM(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		p := populate(t, open(t), false)
		defer p.stop()
		p.add("admin", "right password")
		p.add("al,ice=", "right password")
		auth := scram.Auth{User: "admin", Pass: "right password"}
		for _, m := range []kgo.Opt{kgo.SASL(auth.AsSha256Mechanism()), kgo.SASL(auth.AsSha512Mechanism())} {
			cl := p.client(kgo.SeedBrokers(p.door), m)
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("one")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			cl.Close()
		}
		w := p.knock() // a user who is no super user may do nothing
		wantCode(t, "al,ice=", w.scram("al,ice=", "right password").ErrorCode, nil)
		produced := tells[*kmsg.ProduceResponse](w, produceRequest("orders", 0, nil))
		wantCode(t, "produce of a user without rights", produced.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
		auth.Pass = "wrong password"
		if err := p.client(kgo.SeedBrokers(p.door), kgo.SASL(auth.AsSha256Mechanism())).Ping(t.Context()); err == nil {
			t.Error("a wrong password opens the door")
		}
	})
}

// An API key is no user: its name makes nobody a super user.
func TestAPIKeyWithASuperUsersNameIsLimited(t *testing.T) {
	p := populate(t, memory.New(), false)
	spec := everything("admin")
	spec.AllTopics, spec.AllGroups, spec.Topics = false, false, []string{"mine"}
	_, secret := p.key(spec)
	w := p.enter("admin", secret)
	produced := tells[*kmsg.ProduceResponse](w, produceRequest("orders", 0, nil))
	wantCode(t, "produce", produced.Topics[0].Partitions[0].ErrorCode, kerr.TopicAuthorizationFailed)
}

func TestUnknownUserIsAnsweredLikeAWrongPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := populate(t, memory.New(), true)
		defer p.stop()
		p.add("admin", "right password")
		for _, name := range []string{"admin", "nobody"} {
			w := p.knock()
			began := time.Now()
			got := w.scram(name, "wrong password")
			wantCode(t, name, got.ErrorCode, kerr.SaslAuthenticationFailed)
			if took := time.Since(began); took != 100*time.Millisecond || len(got.SASLAuthBytes) > 0 || !strings.HasPrefix(text(got.ErrorMessage), "Authentication failed: the user name") {
				t.Errorf("%s is told %q and %q after %v", name, text(got.ErrorMessage), got.SASLAuthBytes, took)
			}
			w.mustClose()
		}
	})
}

func TestForgedMessagesOfSCRAMAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := populate(t, memory.New(), true)
		defer p.stop()
		p.add("admin", "right password")
		for _, message := range []string{
			"", "n", "n,,", "n,,n=admin", "n,,r=nonce", "n,,n=,r=nonce", "n,,n=ad=min,r=nonce", "p=tls-unique,,n=admin,r=nonce", "n,a=other,n=admin,r=nonce",
			"n,,m=ext,n=admin,r=nonce", "\xff\xfe", "n,,n=\xff,r=nonce", "n,,n=a\x00b,r=nonce", "n,,n=" + strings.Repeat("u", user.NameMax+1) + ",r=nonce",
			"n,,n=admin,r=" + strings.Repeat("r", 4<<10), strings.Repeat(",", 60<<10),
		} {
			w := p.knock()
			wantCode(t, "handshake", w.handshake(1, "SCRAM-SHA-256").ErrorCode, nil)
			wantCode(t, "first message "+message[:min(len(message), 40)], w.authenticate(message).ErrorCode, kerr.SaslAuthenticationFailed)
			w.mustClose()
		}
		proof := base64.StdEncoding.EncodeToString(make([]byte, 32))
		for _, forge := range []func(nonce string) string{
			func(string) string { return "" },
			func(nonce string) string { return "c=biws,r=" + nonce },
			func(nonce string) string { return "c=biws,r=" + nonce + ",p=" },
			func(nonce string) string { return "c=biws,r=" + nonce + ",p=" + proof },
			func(nonce string) string { return "c=biws,r=" + nonce + ",p=" + proof[:8] },
			func(nonce string) string { return "c=biws,r=" + nonce[:5] + ",p=" + proof },
			func(nonce string) string { return "c=eSws,r=" + nonce + ",p=" + proof },
			func(nonce string) string { return "c=!,r=" + nonce + ",p=!" },
			func(nonce string) string { return "c=biws,r=" + nonce + ",p=" + strings.Repeat("A", 60<<10) },
		} {
			w := p.knock()
			wantCode(t, "handshake", w.handshake(1, "SCRAM-SHA-256").ErrorCode, nil)
			first := w.authenticate("n,,n=admin,r=nonce")
			wantCode(t, "first message", first.ErrorCode, nil)
			nonce, _, _ := strings.Cut(strings.TrimPrefix(string(first.SASLAuthBytes), "r="), ",")
			message := forge(nonce)
			wantCode(t, "last message "+message[:min(len(message), 40)], w.authenticate(message).ErrorCode, kerr.SaslAuthenticationFailed)
			w.mustClose()
		}
		if said := p.said.String(); strings.Contains(said, "panic") {
			t.Error(said)
		}
	})
}

func TestChangedUserEndsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := populate(t, memory.New(), true)
		defer p.stop()
		p.createTopic("t", 1, nil)
		for _, name := range []string{"admin", "deleted"} {
			p.add(name, "right password")
		}
		waiting, idle := p.knock(), p.knock()
		wantCode(t, "login", waiting.scram("admin", "right password").ErrorCode, nil)
		wantCode(t, "login", idle.scram("deleted", "right password").ErrorCode, nil)
		fetch := fetchRequest("t", 0, 0)
		fetch.MaxWaitMillis = 1000
		waiting.send(frame(fetch, 1))
		synctest.Wait()
		p.add("admin", "other password")
		p.change(user.Change{Name: "deleted", Clear: true})
		time.Sleep(3 * time.Second)
		if got := waiting.mustClose(); got != "" {
			t.Errorf("a fetch that waited while the password changed is answered with %q", got)
		}
		idle.send(frame(metadataRequest(), 1))
		if got := idle.mustClose(); got != "" {
			t.Errorf("a request of a deleted user is answered with %q", got)
		}
		wantCode(t, "the new password", p.knock().scram("admin", "other password").ErrorCode, nil)
		wantCode(t, "the old password", p.knock().scram("admin", "right password").ErrorCode, kerr.SaslAuthenticationFailed)
	})
}

// Whoever guesses passwords holds up nobody.
func TestThousandWrongPasswordsASecondDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := populate(t, memory.New(), true)
		defer p.stop()
		p.add("admin", "right password")
		good := p.knock()
		wantCode(t, "login", good.scram("admin", "right password").ErrorCode, nil)
		var guessing sync.WaitGroup
		for range 100 {
			guessing.Go(func() {
				for end := time.Now().Add(time.Second); time.Now().Before(end); {
					w := p.knock()
					w.handshake(1, "SCRAM-SHA-256")
					first := w.authenticate("n,,n=admin,r=nonce")
					nonce, _, _ := strings.Cut(string(first.SASLAuthBytes), ",")
					w.authenticate("c=biws," + nonce + ",p=" + base64.StdEncoding.EncodeToString(make([]byte, 32)))
					_, _ = io.Copy(io.Discard, w.nc)
					w.nc.Close()
				}
			})
		}
		for range 10 {
			began := time.Now()
			tells[*kmsg.MetadataResponse](good, metadataRequest())
			if took := time.Since(began); took > 0 {
				t.Errorf("a client that is logged in waits %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		guessing.Wait()
	})
}

// alterUsers is a request that sets one credential.
func alterUsers(name string, mechanism int8, iterations int32) *kmsg.AlterUserSCRAMCredentialsRequest {
	req, set := kmsg.NewPtrAlterUserSCRAMCredentialsRequest(), kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	set.Name, set.Mechanism, set.Iterations, set.Salt = name, mechanism, iterations, []byte("0123456789")
	set.SaltedPassword = make([]byte, map[int8]int{1: 32, 2: 64}[mechanism])
	req.Upsertions = append(req.Upsertions, set)
	return req
}

func deleteUser(req *kmsg.AlterUserSCRAMCredentialsRequest, name string, mechanism int8) *kmsg.AlterUserSCRAMCredentialsRequest {
	gone := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
	gone.Name, gone.Mechanism = name, mechanism
	req.Deletions = append(req.Deletions, gone)
	return req
}

// KIP-554, with kadm as a client: a user that was made over Kafka can log in, until it is deleted
// over Kafka.
func TestUsersAreAlteredOverKafka(t *testing.T) {
	p := populate(t, memory.New(), false)
	defer p.stop()
	admin := kadm.NewClient(p.client())
	_, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: "admin", Mechanism: kadm.ScramSha256, Iterations: 8192, Password: "right password"}, {User: "admin", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "right password"},
		{User: "bob", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "right password"},
	})
	if err != nil {
		t.Fatal(err)
	}
	auth := scram.Auth{User: "admin", Pass: "right password"}
	for _, m := range []kgo.Opt{kgo.SASL(auth.AsSha256Mechanism()), kgo.SASL(auth.AsSha512Mechanism())} {
		cl := p.client(kgo.SeedBrokers(p.door), m)
		if err := cl.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
	all, err := admin.DescribeUserSCRAMs(t.Context())
	if err != nil || len(all) != 2 || len(all["admin"].CredInfos) != 2 || all["admin"].CredInfos[0].Iterations != 8192 || all["admin"].CredInfos[1].Iterations != 4096 {
		t.Errorf("described are %+v: %v", all, err)
	}
	gone, err := admin.AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "admin", Mechanism: kadm.ScramSha256}, {User: "bob", Mechanism: kadm.ScramSha512}}, nil)
	if err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	if all, err := admin.DescribeUserSCRAMs(t.Context()); err != nil || len(all) != 1 || len(all["admin"].CredInfos) != 1 {
		t.Errorf("described are %+v: %v", all, err)
	}
}

func TestBadChangesOfUsersAreRefused(t *testing.T) {
	p := populate(t, memory.New(), false)
	defer p.stop()
	alter := func(req *kmsg.AlterUserSCRAMCredentialsRequest) int16 {
		t.Helper()
		results := ask[*kmsg.AlterUserSCRAMCredentialsResponse](p.broker, req).Results
		if len(results) != 1 {
			t.Fatalf("results are %+v", results)
		}
		return results[0].ErrorCode
	}
	salted := alterUsers("alice", 1, 4096)
	salted.Upsertions[0].SaltedPassword = make([]byte, 31)
	for name, c := range map[string]struct {
		req  *kmsg.AlterUserSCRAMCredentialsRequest
		want *kerr.Error
	}{
		"no name":               {alterUsers("", 1, 4096), kerr.UnacceptableCredential},
		"a long name":           {alterUsers(strings.Repeat("u", user.NameMax+1), 1, 4096), kerr.UnacceptableCredential},
		"too few iterations":    {alterUsers("alice", 1, 4095), kerr.UnacceptableCredential},
		"too many iterations":   {alterUsers("alice", 1, 16385), kerr.UnacceptableCredential},
		"another hash":          {salted, kerr.UnacceptableCredential},
		"an unknown mechanism":  {alterUsers("alice", 3, 4096), kerr.UnsupportedSaslMechanism},
		"twice":                 {deleteUser(alterUsers("alice", 1, 4096), "alice", 1), kerr.DuplicateResource},
		"deleting nobody":       {deleteUser(kmsg.NewPtrAlterUserSCRAMCredentialsRequest(), "alice", 1), kerr.ResourceNotFound},
		"setting and no delete": {deleteUser(alterUsers("alice", 1, 4096), "alice", 2), kerr.ResourceNotFound},
	} {
		wantCode(t, name, alter(c.req), c.want)
	}
	if list, err := p.users.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("users are %+v: %v", list, err)
	}
	wantCode(t, "a good one", alter(alterUsers("alice", 1, 16384)), nil)
	describe := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	for _, name := range []string{"alice", "bob", "bob", "carol"} {
		u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
		u.Name = name
		describe.Users = append(describe.Users, u)
	}
	results := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](p.broker, describe).Results
	if len(results) != 3 {
		t.Fatalf("described are %+v", results)
	}
	wantCode(t, "alice", results[0].ErrorCode, nil)
	wantCode(t, "bob, twice", results[1].ErrorCode, kerr.DuplicateResource)
	wantCode(t, "carol, who is unknown", results[2].ErrorCode, kerr.ResourceNotFound)
}

// Users without rights can neither list nor change users.
func TestOnlyAdministratorsAlterUsers(t *testing.T) {
	p := populate(t, memory.New(), false)
	defer p.stop()
	p.add("alice", "right password")
	w := p.knock()
	wantCode(t, "login", w.scram("alice", "right password").ErrorCode, nil)
	wantCode(t, "alter", tells[*kmsg.AlterUserSCRAMCredentialsResponse](w, alterUsers("alice", 1, 4096)).Results[0].ErrorCode, kerr.ClusterAuthorizationFailed)
	wantCode(t, "describe", tells[*kmsg.DescribeUserSCRAMCredentialsResponse](w, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()).ErrorCode, kerr.ClusterAuthorizationFailed)
	for _, queues := range [][]string{nil, {"mail"}} { // without queues, the key is for all of them
		var want *kerr.Error
		spec := everything("ops")
		if spec.Queues = queues; queues != nil {
			want = kerr.ClusterAuthorizationFailed // a user may be given rights to other queues
		}
		_, secret := p.key(spec)
		w := p.enter("ops", secret)
		wantCode(t, "alter, with a key", tells[*kmsg.AlterUserSCRAMCredentialsResponse](w, alterUsers("alice", 1, 4096)).Results[0].ErrorCode, want)
		wantCode(t, "describe, with a key", tells[*kmsg.DescribeUserSCRAMCredentialsResponse](w, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()).ErrorCode, want)
	}
}
