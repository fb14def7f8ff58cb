package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-log/weir"
)

const (
	dialWithin = 10 * time.Second
	// sendWithin bounds the conversation with the SMTP server about one mail. RFC 5321 asks for so
	// much patience: a server whose yes comes late has the mail, and would get it again.
	sendWithin = 10 * time.Minute
)

// relay is the SMTP server that takes the mails.
type relay struct {
	address string // host:port
	from    string // the sender
}

// mail is a mail to be sent.
type mail struct {
	id                       int64
	recipient, subject, body string
}

// send gives a mail to the SMTP server. If the error is nil the server took it. A Permanent error
// says that the server refused this mail for good.
//
// hangUp ends the conversation. The caller calls it after it has written that the mail was sent:
// the server may take its time to say goodbye.
func (m *mailer) send(ctx context.Context, toSend mail) (hangUp func(), err error) {
	ctx, span := m.tracer.Start(ctx, "send mail", trace.WithSpanKind(trace.SpanKindClient))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	client, hangUp, err := m.relay.dial(ctx)
	if err == nil {
		err = m.relay.transfer(client, toSend)
	}
	if err != nil && ctx.Err() != nil { // which says more than that the connection is closed
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return hangUp, err
}

// dial connects to the server. The connection is cut when ctx ends, and after sendWithin.
func (r relay) dial(ctx context.Context) (client *smtp.Client, hangUp func(), err error) {
	dialer := net.Dialer{Timeout: dialWithin}
	conn, err := dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return nil, func() {}, err
	}
	forget := context.AfterFunc(ctx, func() { conn.Close() })
	cut := func() {
		forget()
		conn.Close()
	}
	host, _, _ := net.SplitHostPort(r.address) // DialContext has split it
	_, domain, _ := strings.Cut(r.from, "@")
	err = conn.SetDeadline(time.Now().Add(sendWithin))
	if err == nil {
		client, err = smtp.NewClient(conn, host)
	}
	if err == nil {
		err = client.Hello(domain)
	}
	if err != nil {
		return nil, cut, named("connect to "+r.address, err)
	}
	return client, func() {
		_ = client.Quit() // it is over, whatever the server says to that
		cut()
	}, nil
}

// transfer hands a mail over. The server has it if the error is nil.
func (r relay) transfer(client *smtp.Client, toSend mail) error {
	if err := client.Mail(r.from); err != nil {
		return refusal("MAIL FROM", err)
	}
	if err := client.Rcpt(toSend.recipient); err != nil {
		return refusal("RCPT TO", err)
	}
	data, err := client.Data()
	if err == nil {
		_, err = data.Write(r.compose(toSend))
	}
	if err == nil {
		err = data.Close() // here the server says whether it takes the mail
	}
	if err != nil {
		return refusal("DATA", err)
	}
	return nil
}

// refusal is the error of a step of transfer. A 5xx there is about this mail, and is final. One in
// dial is about us, and passes.
func refusal(step string, err error) error {
	var said *textproto.Error
	if errors.As(err, &said) && said.Code >= 500 {
		return weir.Permanent(named(step, err))
	}
	return named(step, err)
}

// named says at which step the server said no, in its own words on one line.
func named(step string, err error) error {
	var said *textproto.Error
	if errors.As(err, &said) {
		return fmt.Errorf("%s: %d %s", step, said.Code, strings.ReplaceAll(said.Msg, "\n", " "))
	}
	return fmt.Errorf("%s: %w", step, err)
}

// compose writes a mail as RFC 5322 has it. The Message-ID is that of the mail, the same at each
// attempt: who gets it twice can tell.
func (r relay) compose(m mail) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(r.from, "@")
	for _, h := range [][2]string{
		{"From", (&netmail.Address{Address: r.from}).String()},
		{"To", (&netmail.Address{Address: m.recipient}).String()},
		{"Subject", mime.QEncoding.Encode("utf-8", m.subject)},
		{"Date", time.Now().Format(time.RFC1123Z)},
		{"Message-ID", fmt.Sprintf("<mail-%d@%s>", m.id, domain)},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(m.body)) // a Buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
