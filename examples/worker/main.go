// Command worker enqueues its arguments as messages. Without arguments it works the queue: it runs
// ./deliver for each message.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/weir-log/weir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := weir.Open(ctx, os.Getenv("DATABASE"), weir.Options{})
	check(err)
	if len(os.Args) > 1 {
		var messages []weir.NewMessage
		for _, text := range os.Args[1:] {
			messages = append(messages, weir.NewMessage{Value: []byte(text)})
		}
		_, err = w.Enqueue(ctx, "mail", messages...)
		check(err)
		fmt.Println(len(messages), "enqueued")
	} else {
		_, err = w.Work(ctx, weir.WorkOptions{Queue: "mail", Concurrency: 1, Handler: deliver})
		check(err)
		<-ctx.Done()
	}
	check(w.Close(context.WithoutCancel(ctx))) // a handler that runs is waited for, and its message is acknowledged
}

// deliver handles a message. If it returns nil the message is acknowledged, else it comes again
// later.
func deliver(ctx context.Context, j weir.Job) error {
	command := exec.CommandContext(ctx, "./deliver", "go")
	command.Stdin = bytes.NewReader(j.Value)
	return command.Run()
}

func check(err error) {
	if err != nil {
		log.Fatalln("worker:", err)
	}
}
