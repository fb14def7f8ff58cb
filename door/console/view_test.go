package console

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/seed"
)

// Whoever may write decides what a value is, and others look at it.
func TestNoValueIsShownMuchLargerThanItIs(t *testing.T) {
	const deep = 9000 // encoding/json refuses more than 10,000
	for what, value := range map[string]string{
		"lists in lists":          strings.Repeat("[", deep) + strings.Repeat("]", deep),
		"numbers at a depth":      strings.Repeat("[", deep) + strings.Repeat("0,", 20_000) + "0" + strings.Repeat("]", deep),
		"objects in objects":      strings.Repeat(`{"":`, deep) + "1" + strings.Repeat("}", deep),
		"a text before":           `["\"[[[\\",` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "]",
		"brackets without an end": strings.Repeat("[", shownMax),
		"the largest that fits":   "[" + strings.Repeat("1,", shownMax/2-2) + "1]",
	} {
		if shown := body(Text{Plain: &value}); len(shown.Text) > indentedMax || len(shown.Text) < len(value) {
			t.Errorf("%s: of %d bytes it shows %d", what, len(value), len(shown.Text))
		}
	}
}

func TestWhatFitsIsWhatIndentingMakes(t *testing.T) {
	rng := seed.Random(t)
	var random func(depth int) any
	random = func(depth int) any {
		list, object := make([]any, 1+rng.IntN(6)), map[string]any{}
		for i := range list {
			list[i] = strings.Repeat(`"[\{`, rng.IntN(4))
			if depth > 0 && rng.IntN(2) == 0 {
				list[i] = random(depth - 1)
			}
			object[strings.Repeat("k:", 1+i)] = list[i]
		}
		if rng.IntN(2) == 0 {
			return list
		}
		return object
	}
	for range 500 {
		value, err := json.Marshal(random(rng.IntN(7)))
		if err != nil {
			t.Fatal(err)
		}
		pretty, err := json.MarshalIndent(json.RawMessage(value), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if want := len(pretty) <= indentedMax; indentedFits(value) != want {
			t.Fatalf("%d bytes, indented %d: fits is %t", len(value), len(pretty), !want)
		}
	}
}

func TestALongTextIsCut(t *testing.T) {
	for s, want := range map[string]string{"": "", "äöü": "äöü", "äöüß": "äöü…", "abc": "abc"} {
		if got := short(3, s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestAShortenedValueIsShownAsTheWholeOne(t *testing.T) {
	for _, size := range []int{0, 1, shownMax - 1, shownMax, shownMax + 1, shownMax + 2, shownMax + 3, shownMax + 4, 1 << 20} {
		plain := strings.Repeat("x", size)
		encoded := base64.StdEncoding.EncodeToString([]byte(plain))
		for _, r := range []record{{Value: &plain}, {ValueB64: &encoded}} {
			whole := body(r.Body())
			r.shorten()
			if got := body(r.Body()); got != whole || whole.Size != size {
				t.Errorf("%d bytes: size %d, cut %d; the whole one: size %d, cut %d", size, got.Size, got.Cut, whole.Size, whole.Cut)
			}
		}
	}
}
