package console_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/internal/proctest"
)

// chromium returns a tab of a real browser, and what its console complains of: scripts that fail,
// and what the pages' Content-Security-Policy forbids.
func chromium(t *testing.T) (context.Context, func() []string) {
	t.Helper()
	there := func() bool { _, err := exec.LookPath("chromium"); return err == nil }
	if err := proctest.Install("chromium", there); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 900))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	tab, cancelTab := chromedp.NewContext(allocator)
	t.Cleanup(cancelTab)
	var mu sync.Mutex
	var complaints []string
	listening := chromedp.Listen(tab, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				complaints = append(complaints, e.Entry.URL+": "+e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" {
				complaints = append(complaints, "console.error")
			}
		}
	})
	if listening != nil {
		t.Fatal(listening)
	}
	return tab, func() []string { mu.Lock(); defer mu.Unlock(); return complaints }
}

// screenshot writes a picture of the page to the directory WEIR_SCREENSHOTS, if that is set.
func screenshot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture := see(t, tab, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// do does what a person would do with the page.
func do(t *testing.T, tab context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		t.Fatal(err)
	}
}

// see returns what the page shows.
func see[T any](t *testing.T, tab context.Context, what chromedp.Action[T]) T {
	t.Helper()
	seen, err := chromedp.Run(tab, what)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestChromiumShowsEachPageWithoutComplaint(t *testing.T) {
	s := serve(t)
	s.fill()
	s.plot()
	tab, complaints := chromium(t)
	for _, width := range []int64{2560, 400, 1280} {
		do(t, tab, chromedp.EmulateViewport(width, 900))
		for _, path := range all {
			do(t, tab, chromedp.Navigate(s.at+path), chromedp.WaitReady("footer"))
			title, wide := see(t, tab, chromedp.Title()), see(t, tab, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`))
			if !strings.HasSuffix(title, "· weir") || strings.HasPrefix(title, "Problem") {
				t.Errorf("%s has the title %q", path, title)
			}
			if wide {
				t.Errorf("%s is wider than a window of %d pixels", path, width)
			}
			if width == 1280 {
				name := strings.Trim(strings.NewReplacer("/console", "", "/", "-", "?", "-", "=", "-", ":", "-").Replace(path), "-")
				if name == "" {
					name = "overview"
				}
				screenshot(t, tab, name)
			}
		}
	}
	for _, c := range complaints() {
		t.Error(c)
	}
}

func TestChromiumDrawsThePlots(t *testing.T) {
	s := serve(t)
	s.fill()
	s.plot()
	tab, complaints := chromium(t)
	do(t, tab, chromedp.Navigate(s.at), chromedp.WaitVisible(`[data-series="records"] canvas`), chromedp.WaitVisible(`[data-series="flush"] canvas`))
	for _, c := range complaints() {
		t.Error(c)
	}
}

// A failing message is found, read, edited and redriven in five clicks, from the overview.
func TestAFailingMessageIsRedrivenInFiveClicks(t *testing.T) {
	s := serve(t)
	s.fill()
	tab, complaints := chromium(t)
	letters := s.letters()
	do(t, tab, chromedp.Navigate(s.at),
		chromedp.Click(`a.bad[href="/console/queues/mails/dead"]`), // 1: its dead letters
		chromedp.Click(`a[href$="letter=`+letters[0]+`"]`),         // 2: this one, which shows the error and the value
		chromedp.WaitVisible(`textarea[name="value"]`),
		chromedp.SetValue(`textarea[name="value"]`, `{"to": "right@example.org"}`),
		chromedp.Click(`form[action$="/edit"] button`), // 3: enqueue the edited message
		chromedp.WaitVisible(`.flash`))
	said := see(t, tab, chromedp.Text(`.flash`))
	if !strings.Contains(said, "enqueued") || len(s.letters()) != 1 {
		t.Errorf("the page says %q, and %d letters are left", said, len(s.letters()))
	}
	if ready := s.api("GET", "/v1/queues/mails/messages?state=ready", ""); !strings.Contains(ready, "right@example.org") {
		t.Errorf("the queue has %s", ready)
	}
	for _, c := range complaints() {
		t.Error(c)
	}
}

func TestChromiumFollowsNewEvents(t *testing.T) {
	s := serve(t)
	s.fill()
	tab, complaints := chromium(t)
	do(t, tab, chromedp.Navigate(s.at+"/console/topics/orders/messages"), chromedp.Click(`[data-live]`))
	// The stream begins at some time after the click, so events are published until the page shows
	// one: now and then, because a browser that gets thousands a second shows nothing.
	shown := make(chan error, 1)
	go func() { shown <- chromedp.Do(tab, chromedp.WaitVisible(`#tail tr`)) }()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		s.api("POST", "/v1/topics/orders/batch", `{"events": [{"key": "new", "value": "<b>live</b>"}]}`)
		select {
		case err := <-shown:
			if err != nil {
				t.Fatal(err)
			}
			if text := see(t, tab, chromedp.Text(`#tail tr td:last-child`)); text != "<b>live</b>" {
				t.Errorf("the page shows %q", text)
			}
			for _, c := range complaints() {
				t.Error(c)
			}
			return
		case <-again.C:
		}
	}
}
