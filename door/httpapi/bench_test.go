package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
)

// BenchmarkPublish publishes one event of 130 bytes a request, over many connections. The client
// allocates nothing, so what -benchmem counts is the server's, from socket to store in memory and
// back.
func BenchmarkPublish(b *testing.B) {
	d := open(b, httpapi.Config{})
	d.topic("orders", 4)
	request := []byte("POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nWeir-Key: customer-7\r\nContent-Length: 130\r\n\r\n" + strings.Repeat("x", 130))
	b.SetParallelism(50)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			if err := skipAnswer(in); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// skipAnswer reads one answer, without keeping any of it.
func skipAnswer(in *bufio.Reader) error {
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			for _, digit := range bytes.TrimSpace(rest) {
				length = 10*length + int(digit-'0')
			}
		}
		if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(line[9:], []byte("200")) {
			return fmt.Errorf("%s", line)
		}
		if len(line) == 2 {
			_, err := in.Discard(length)
			return err
		}
	}
}
