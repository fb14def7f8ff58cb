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
