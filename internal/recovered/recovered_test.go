package recovered

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func fails(how string) error {
	switch how {
	case "value":
		panic("no such key")
	case "error":
		panic(errBroken)
	case "index":
		var none []int
		_ = none[len(how)]
	case "nil":
		var e *Error
		_ = e.At
	case "deep":
		return deep(10_000)
	}
	return nil
}

var errBroken = errors.New("broken")

func deep(n int) error {
	if n == 0 {
		panic("at the bottom")
	}
	return deep(n - 1)
}

// The text of a panic is one line that names the place; the stack has a bound.
func TestAPanicIsOneLine(t *testing.T) {
	for how, want := range map[string]string{
		"value": "panic: no such key, at github.com/weir-log/weir/internal/recovered.fails (recovered_test.go:",
		"error": "panic: broken, at github.com/weir-log/weir/internal/recovered.fails (recovered_test.go:",
		"index": "recovered.fails (recovered_test.go:",
		"nil":   "recovered.fails (recovered_test.go:",
		"deep":  "panic: at the bottom, at github.com/weir-log/weir/internal/recovered.deep (recovered_test.go:",
	} {
		err := Do(func() error { return fails(how) })
		var panicked *Error
		if !errors.As(err, &panicked) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", how, err)
			continue
		}
		if n := len(panicked.Stack); n < 100 || n > stackMax {
			t.Errorf("%s: the stack has %d bytes", how, n)
		}
		if wrapped := fmt.Errorf("a task: %w", err); len(Logged(wrapped)) != 2 || errors.Is(wrapped, errBroken) != (how == "error") {
			t.Errorf("%s: %v", how, Logged(wrapped))
		}
	}
	if err := Do(func() error { return errBroken }); err != errBroken || Logged(err) != nil {
		t.Error(err)
	}
	if err := Do(func() error { return fails("") }); err != nil {
		t.Error(err)
	}
}
