package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-log/weir"
)

// exampleCategory opens a store in memory with a category. Examples leave errors out where a
// program handles them.
func exampleCategory(ctx context.Context) (*weir.Log, *weir.Category) {
	log, err := weir.Open(ctx, "memory:", weir.Options{})
	if err != nil {
		panic(err)
	}
	accounts, err := log.EnsureCategory(ctx, weir.CategorySpec{Name: "account"})
	if err != nil {
		panic(err)
	}
	return log, accounts
}

func ExampleCategory_Append() {
	ctx := context.Background()
	log, accounts := exampleCategory(ctx)
	defer log.Close(ctx)

	done, err := accounts.Append(ctx, "4711", weir.NoStream,
		weir.NewStreamEvent{Type: "Opened"}, weir.NewStreamEvent{Type: "Deposited", Data: []byte("100")})
	fmt.Println(done.Version, err)

	_, err = accounts.Append(ctx, "4711", 1, weir.NewStreamEvent{Type: "Closed"})
	var conflict *weir.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("it is at version", conflict.Actual)
	}
	for e, err := range accounts.Events(ctx, "4711", weir.StreamRange{}) {
		fmt.Println(e.Version, e.Type, string(e.Data), err)
	}
	// Output:
	// 2 <nil>
	// it is at version 2
	// 0 Opened  <nil>
	// 1 Deposited 100 <nil>
}

func ExampleCategory_ForgetSubject() {
	ctx := context.Background()
	log, category := exampleCategory(ctx)
	defer log.Close(ctx)

	opened := weir.NewStreamEvent{Type: "Opened", Data: []byte(`{"name": "Ann"}`), Subject: "customer-17"}
	_, err := category.Append(ctx, "account-7", weir.NoStream, opened)
	fmt.Println(err)
	err = category.ForgetSubject(ctx, "customer-17") // or: weir stream forget account customer-17
	fmt.Println(err)
	for e, err := range category.Events(ctx, "account-7", weir.StreamRange{}) {
		fmt.Println(e.Version, e.Type, e.Erased, e.Data == nil, err) // 0 Opened true true <nil>
	}
	// Output:
	// <nil>
	// <nil>
	// 0 Opened true true <nil>
}

func ExampleAggregate() {
	ctx := context.Background()
	log, accounts := exampleCategory(ctx)
	defer log.Close(ctx)

	balance := weir.Aggregate[int]{
		Category: accounts,
		Apply: func(sum int, e weir.StreamEvent) (int, error) {
			n, err := strconv.Atoi(string(e.Data))
			return sum + n, err
		},
	}
	withdraw := func(n int) func(int) ([]weir.NewStreamEvent, error) {
		return func(sum int) ([]weir.NewStreamEvent, error) {
			if sum < n {
				return nil, fmt.Errorf("%d is less than %d", sum, n)
			}
			return []weir.NewStreamEvent{{Type: "Changed", Data: []byte(strconv.Itoa(-n))}}, nil
		}
	}
	_, err := accounts.Append(ctx, "4711", weir.NoStream, weir.NewStreamEvent{Type: "Changed", Data: []byte("100")})
	fmt.Println(err)
	done, err := balance.Do(ctx, "4711", withdraw(30))
	fmt.Println(done.State, done.Version, err)
	_, err = balance.Do(ctx, "4711", withdraw(500))
	fmt.Println(err)
	// Output:
	// <nil>
	// 70 2 <nil>
	// decide on stream "4711" of category "account": 70 is less than 500
}

func ExampleLog_Project() {
	ctx := context.Background()
	log, accounts := exampleCategory(ctx)
	defer log.Close(ctx)

	opened := make(map[string]bool) // a program has a table for each run
	projector, err := log.Project(ctx, weir.Projection{
		Name: "opened", Categories: []string{"account"}, Concurrency: 1,
		Handler: func(_ context.Context, e weir.ProjectedEvent) error {
			opened[e.Stream] = e.Type == "Opened"
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	_, err = accounts.Append(ctx, "4711", weir.NoStream, weir.NewStreamEvent{Type: "Opened"})
	fmt.Println(err)
	fmt.Println(log.AwaitProjection(ctx, "opened", "account", "4711")) // now readers see it
	fmt.Println(projector.Close(ctx), opened)
	// Output:
	// <nil>
	// <nil>
	// <nil> map[4711:true]
}

// A seat may be taken once, whoever's booking it is: the decision rests on all events that have the
// seat's tag.
func ExampleCategory_AppendWithin() {
	ctx := context.Background()
	log, bookings := exampleCategory(ctx)
	defer log.Close(ctx)

	book := func(booking, seat string) error {
		taken, boundary, err := bookings.Tagged(ctx, "seat:"+seat)
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return fmt.Errorf("seat %s is taken", seat)
		}
		_, err = bookings.AppendWithin(ctx, boundary, booking, weir.NoStream, weir.NewStreamEvent{Type: "Booked", Tags: []string{"seat:" + seat}})
		return err // ErrBoundary: another booking was first, so decide again
	}
	fmt.Println(book("anne", "12A"))
	fmt.Println(book("bob", "12A"))
	// Output:
	// <nil>
	// seat 12A is taken
}

// A transfer that was begun debits one account and credits the other.
func ExampleLog_Manage() {
	ctx := context.Background()
	log, accounts := exampleCategory(ctx)
	defer log.Close(ctx)
	transfers, err := log.EnsureCategory(ctx, weir.CategorySpec{Name: "transfer"})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	manager, err := log.Manage(ctx, weir.ProcessManager{
		Name: "transfers", Categories: []string{"transfer", "account"},
		React: func(_ context.Context, e weir.CategoryEvent) ([]weir.StreamPart, error) {
			if e.Category == "account" {
				close(done)
				return nil, nil
			}
			return []weir.StreamPart{{
				Category: accounts, Stream: string(e.Data), Expected: weir.AnyVersion,
				Events: []weir.NewStreamEvent{{Type: "Credited", Metadata: []weir.Header{{Key: weir.EventCausationID, Value: []byte(e.ID)}}}},
			}}, nil
		},
	})
	if err != nil {
		panic(err)
	}
	_, err = transfers.Append(ctx, "t1", weir.NoStream, weir.NewStreamEvent{ID: "e1", Type: "Begun", Data: []byte("4711")})
	fmt.Println(err)
	<-done
	for e, err := range accounts.Events(ctx, "4711", weir.StreamRange{}) {
		fmt.Println(e.Type, "because of", string(e.Metadata[0].Value), err)
	}
	fmt.Println(manager.Close(ctx))
	// Output:
	// <nil>
	// Credited because of e1 <nil>
	// <nil>
}
