package main

import (
	"io"
	"log"
	"net"
	netmail "net/mail"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
)

// The steps of a conversation at which the server may say no.
const (
	hello = "EHLO"
	rcpt  = "RCPT TO"
	data  = "DATA"
)

// smtpd is a real SMTP server, which says yes or no as the test wants.
type smtpd struct {
	address string
	says    answers

	mu    sync.Mutex // guards what follows
	asked map[string]int
	taken map[string][]*netmail.Message // the mails that it said yes to, by recipient
	open  int                           // conversations
}

// answers says yes with nil. nth counts, from 1, how often this step was done for this recipient,
// who is "" for hello. It may block, and a DATA is taken as soon as it returns nil.
type answers func(step, to string, nth int) error

func newSMTPD(t *testing.T, says answers) *smtpd {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &smtpd{address: listener.Addr().String(), says: says, asked: make(map[string]int), taken: make(map[string][]*netmail.Message)}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		if err := d.ask(hello, ""); err != nil {
			return nil, err
		}
		d.count(1)
		return &conversation{server: d}, nil
	}))
	server.ErrorLog = log.New(io.Discard, "", 0) // processes are killed in the middle of what they say
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // it ends with Close
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return d
}

// no is a refusal.
func no(code int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: text}
}

func (d *smtpd) ask(step, to string) error {
	d.mu.Lock()
	d.asked[step+to]++
	nth := d.asked[step+to]
	d.mu.Unlock()
	return d.says(step, to, nth)
}

func (d *smtpd) count(more int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += more
}

// idle tells whether no conversation is open. A client that is gone has then got all its answers,
// or never will.
func (d *smtpd) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open == 0
}

// mails are those that the server said yes to for a recipient.
func (d *smtpd) mails(to string) []*netmail.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken[to]
}

// counts says how many mails the server said yes to, by recipient.
func (d *smtpd) counts() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := make(map[string]int)
	for to, mails := range d.taken {
		n[to] = len(mails)
	}
	return n
}

// conversation is what one client says. A mail has one recipient.
type conversation struct {
	server *smtpd
	to     string
}

func (c *conversation) Mail(string, *smtp.MailOptions) error { return nil }
func (c *conversation) Reset()                               { c.to = "" }

func (c *conversation) Logout() error {
	c.server.count(-1)
	return nil
}

func (c *conversation) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.to = to
	return c.server.ask(rcpt, to)
}

func (c *conversation) Data(r io.Reader) error {
	message, err := netmail.ReadMessage(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, message.Body); err != nil {
		return err // the client was gone before the end
	}
	if err := c.server.ask(data, c.to); err != nil {
		return err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.taken[c.to] = append(c.server.taken[c.to], message)
	return nil
}
