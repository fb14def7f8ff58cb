package kafka

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// unwritable is an answer that cannot be encoded.
type unwritable struct{ kmsg.Response }

func (unwritable) AppendTo([]byte) []byte { panic("a bug") }

// A panic while a request is read or its answer is sent ends its connection, as one while it is
// carried out does, and not the process.
func TestAPanicAroundARequestEndsItsConnectionAlone(t *testing.T) {
	for what, put := range map[string]func(*api){
		"while the request is read": func(a *api) {
			a.shapes[0] = func() *shape { panic("a bug") }
		},
		"while the answer is sent": func(a *api) {
			a.answer = func(_ *Server, _ context.Context, r *request) kmsg.Response { return unwritable{r.body.ResponseKind()} }
		},
	} {
		t.Run(what, func(t *testing.T) {
			log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			s := New(log, nil, Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			put(s.apis[kmsg.ListGroups.Int16()])
			ask := func(req kmsg.Request) (answer []byte, err error) {
				client, server := net.Pipe()
				defer client.Close()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					newConn(s, Listener{}, server).serve(t.Context(), t.Context())
				}()
				client.SetDeadline(time.Now().Add(20 * time.Second))
				frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
				go client.Write(frame)
				answer = make([]byte, 8)
				_, err = io.ReadFull(client, answer)
				client.Close()
				<-ended
				return answer, err
			}
			if answer, err := ask(kmsg.NewPtrListGroupsRequest()); err != io.EOF {
				t.Errorf("the connection is not closed: %v, %v", answer, err)
			}
			if !strings.Contains(said.String(), "a request panicked") || !strings.Contains(said.String(), "request=ListGroups") {
				t.Errorf("the log says %s", &said)
			}
			if answer, err := ask(kmsg.NewPtrApiVersionsRequest()); err != nil || answer[7] != 1 {
				t.Errorf("another connection gets %v, %v", answer, err)
			}
			if !s.frames.Idle() {
				t.Error("memory is claimed for requests that are over")
			}
		})
	}
}
