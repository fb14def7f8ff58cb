package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	netmail "net/mail"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-log/weir"
)

const (
	orderBytes = 64 << 10 // of a request
	itemMax    = 200      // characters
	emailMax   = 254      // bytes, as in RFC 5321
)

// order is what a client asks for.
type order struct {
	Number string `json:"number"`
	Item   string `json:"item"`
	Email  string `json:"email"`
}

// state is an order and what became of its mail.
type state struct {
	order
	Mail struct {
		Status   string  `json:"status"` // scheduled, sent, failed or expired
		Attempts int     `json:"attempts"`
		Error    *string `json:"error,omitempty"`
	} `json:"mail"`
}

// routes are what the mailer answers over HTTP.
func (m *mailer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /orders/{number}", m.traced(m.put))
	mux.HandleFunc("GET /orders/{number}", m.traced(m.get))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.log.Healthy(); err != nil {
			answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return mux
}

// traced gives a request a span, within the client's trace if it names one.
func (m *mailer) traced(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := m.tracer.Start(ctx, r.Pattern, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		handle(w, r.WithContext(ctx))
	}
}

// put writes an order and schedules its mail. The same request again changes nothing.
func (m *mailer) put(w http.ResponseWriter, r *http.Request) {
	o, err := readOrder(w, r)
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	placed, err := m.place(r.Context(), o)
	if err != nil {
		unavailable(w, r, fmt.Errorf("write order %s: %w", o.Number, err), "It may have been written. Repeat the request: an order is written once.")
		return
	}
	s, err := m.state(r.Context(), o.Number)
	switch {
	case err != nil:
		unavailable(w, r, err, "Repeat the request.")
	case s.order != o:
		answer(w, http.StatusConflict, map[string]string{"error": fmt.Sprintf("order %s exists already, with another item or email", o.Number)})
	case placed:
		slog.Info("order written, mail scheduled", "order", o.Number)
		answer(w, http.StatusCreated, s)
	default:
		answer(w, http.StatusOK, s)
	}
}

func (m *mailer) get(w http.ResponseWriter, r *http.Request) {
	number := r.PathValue("number")
	if !isNumber.MatchString(number) {
		answer(w, http.StatusNotFound, map[string]string{"error": "the order does not exist"})
		return
	}
	s, err := m.state(r.Context(), number)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		answer(w, http.StatusNotFound, map[string]string{"error": "the order does not exist"})
	case err != nil:
		unavailable(w, r, err, "Repeat the request.")
	default:
		answer(w, http.StatusOK, s)
	}
}

// place writes an order, its mail, and the message that has the mail sent: all of them or none. It
// reports false if the order was there.
func (m *mailer) place(ctx context.Context, o order) (placed bool, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO mailer.orders (number, item, email) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, o.Number, o.Item, o.Email)
		if placed = tag.RowsAffected() == 1; err != nil || !placed {
			return err
		}
		var mail int64
		if err := tx.QueryRow(ctx, `INSERT INTO mailer.mails (order_number, recipient, subject, body) VALUES ($1, $2, $3, $4) RETURNING id`,
			o.Number, o.Email, "Your order "+o.Number, "Thank you. We are packing this for you: "+o.Item+"\n").Scan(&mail); err != nil {
			return err
		}
		return m.log.EnqueueTx(ctx, tx, queue, weir.NewMessage{Value: strconv.AppendInt(nil, mail, 10)})
	})
	return placed, err
}

// state reads an order and its mail. pgx.ErrNoRows: the order does not exist.
func (m *mailer) state(ctx context.Context, number string) (s state, err error) {
	err = m.pool.QueryRow(ctx, `
		SELECT o.number, o.item, o.email, m.status, m.attempts, m.error
		FROM mailer.orders o JOIN mailer.mails m ON m.order_number = o.number
		WHERE o.number = $1`, number).Scan(&s.Number, &s.Item, &s.Email, &s.Mail.Status, &s.Mail.Attempts, &s.Mail.Error)
	if err != nil {
		return s, fmt.Errorf("read order %s: %w", number, err)
	}
	return s, nil
}

var isNumber = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// readOrder reads the order of a request, and says what is wrong with it.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, orderBytes)).Decode(&o); err != nil {
		return o, fmt.Errorf(`the body must be {"item": "…", "email": "…"}: %w`, err)
	}
	o.Number = r.PathValue("number")
	address, err := netmail.ParseAddress(o.Email)
	switch {
	case !isNumber.MatchString(o.Number):
		return o, fmt.Errorf("the order's number must be 1 to 64 letters, digits, dots, hyphens or underscores")
	case o.Item == "" || len([]rune(o.Item)) > itemMax || strings.ContainsFunc(o.Item, unicode.IsControl):
		return o, fmt.Errorf("the item must be 1 to %d characters, none of them a control character", itemMax)
	case err != nil || address.Address != o.Email || len(o.Email) > emailMax:
		return o, fmt.Errorf("the email must be an address such as a@example.org, of at most %d bytes", emailMax)
	}
	return o, nil
}

// unavailable answers a request that failed for reasons of ours.
func unavailable(w http.ResponseWriter, r *http.Request, err error, advice string) {
	slog.Error("a request failed", "err", err)
	trace.SpanFromContext(r.Context()).SetStatus(codes.Error, err.Error())
	answer(w, http.StatusServiceUnavailable, map[string]string{"error": "The database did not accept it. " + advice})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone hears nothing
}
