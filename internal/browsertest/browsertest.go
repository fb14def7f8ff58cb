// Package browsertest gives tests a real browser.
package browsertest

import (
	"context"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/internal/proctest"
)

// A Tab is one of Chromium, which ends with its test.
type Tab struct {
	context.Context // for chromedp

	mu                   sync.Mutex // guards all below
	complaints, requests []string
}

// Chromium opens a tab. It installs the browser where it is missing.
func Chromium(t testing.TB) *Tab {
	t.Helper()
	there := func() bool { _, err := exec.LookPath("chromium"); return err == nil }
	if err := proctest.Install("chromium", there); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 900))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocator)
	t.Cleanup(cancelTab)
	tab := &Tab{Context: ctx}
	if err := chromedp.Listen(ctx, tab.hear); err != nil {
		t.Fatal(err)
	}
	return tab
}

func (t *Tab) hear(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			t.complaints = append(t.complaints, e.Entry.URL+": "+e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		t.complaints = append(t.complaints, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" {
			t.complaints = append(t.complaints, "console.error")
		}
	case *network.EventRequestWillBeSent:
		t.requests = append(t.requests, e.Request.URL)
	}
}

// Complaints returns what the tab's console complains of: scripts that fail, and what pages'
// Content-Security-Policy forbids.
func (t *Tab) Complaints() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.complaints)
}

// Requests returns the URLs that the tab asked for.
func (t *Tab) Requests() []string { t.mu.Lock(); defer t.mu.Unlock(); return slices.Clone(t.requests) }

// Do does what a person would do with the page.
func (t *Tab) Do(tb testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	tb.Helper()
	if err := chromedp.Do(t.Context, steps...); err != nil {
		tb.Fatal(err)
	}
}

// See returns what the page shows.
func See[T any](tb testing.TB, t *Tab, what chromedp.Action[T]) T {
	tb.Helper()
	seen, err := chromedp.Run(t.Context, what)
	if err != nil {
		tb.Fatal(err)
	}
	return seen
}
