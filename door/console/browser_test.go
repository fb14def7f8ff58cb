package console_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/internal/browsertest"
)

// screenshot writes a picture of the page to the directory WEIR_SCREENSHOTS, if that is set.
func screenshot(t *testing.T, tab *browsertest.Tab, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture := browsertest.See(t, tab, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// withoutComplaint checks that the browser complained of nothing, such as what the policy forbids.
func withoutComplaint(t *testing.T, tab *browsertest.Tab) {
	t.Helper()
	for _, c := range tab.Complaints() {
		t.Error(c)
	}
}

// usable checks that nothing keeps people from using the page that the tab shows, light and dark.
func usable(t *testing.T, tab *browsertest.Tab, page string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		wish := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, wish); err != nil {
			t.Fatal(err)
		}
		for _, b := range tab.Barriers(t) {
			for _, n := range b.Nodes {
				t.Errorf("%s, %s, %s: %s (%s): %s", page, scheme, b.Impact, b.Help, b.ID, n.HTML)
			}
		}
	}
}

func TestChromiumShowsEachPageWithoutComplaint(t *testing.T) {
	s := serve(t)
	s.fill()
	s.plot()
	tab := browsertest.Chromium(t)
	for _, width := range []int64{2560, 400, 1280} {
		tab.Do(t, chromedp.EmulateViewport(width, 900))
		for _, path := range append(slices.Clone(all), "/console/queues/mails/dead/one?letter="+s.letters()[0]) {
			tab.Do(t, chromedp.Navigate(s.at+path), chromedp.WaitReady("footer"))
			title, wide := browsertest.See(t, tab, chromedp.Title()), browsertest.See(t, tab, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > window.innerWidth`))
			if !strings.HasSuffix(title, "· weir") || strings.HasPrefix(title, "Problem") {
				t.Errorf("%s has the title %q", path, title)
			}
			if wide {
				t.Errorf("%s is wider than a window of %d pixels", path, width)
			}
			usable(t, tab, fmt.Sprintf("%s at %d pixels", path, width))
			if width == 1280 {
				path, _, _ = strings.Cut(path, "?letter")
				name := strings.Trim(strings.NewReplacer("/console", "", "/", "-", "?", "-", "=", "-", ":", "-").Replace(path), "-")
				screenshot(t, tab, cmp.Or(name, "overview"))
			}
		}
	}
	withoutComplaint(t, tab)
}

func TestChromiumDrawsThePlots(t *testing.T) {
	s := serve(t)
	s.fill()
	s.plot()
	tab := browsertest.Chromium(t)
	tab.Do(t, chromedp.Navigate(s.at), chromedp.WaitVisible(`[data-series="records"] canvas`), chromedp.WaitVisible(`[data-series="flush,deliver"] canvas`))
	withoutComplaint(t, tab)
}

// Times are in the reader's zone or in UTC, and stay so on the next page.
func TestChromiumShowsTimesInUTC(t *testing.T) {
	s := serve(t)
	s.fill()
	tab := browsertest.Chromium(t)
	utc := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC$`)
	at := s.at + "/console/topics/orders/messages"
	tab.Do(t, chromedp.Navigate(at), chromedp.WaitVisible(`td time`))
	if before := browsertest.See(t, tab, chromedp.Text(`td time`)); utc.MatchString(before) {
		t.Errorf("at first the time is %q", before)
	}
	tab.Do(t, chromedp.Click(`#zone`))
	clicked := browsertest.See(t, tab, chromedp.Text(`td time`))
	tab.Do(t, chromedp.Navigate(at), chromedp.WaitVisible(`td time`))
	if again := browsertest.See(t, tab, chromedp.Text(`td time`)); !utc.MatchString(clicked) || again != clicked {
		t.Errorf("after the click it is %q, and on the next page %q", clicked, again)
	}
	withoutComplaint(t, tab)
}

// A failing message is found, read, edited and redriven in five clicks, from the overview.
func TestAFailingMessageIsRedrivenInFiveClicks(t *testing.T) {
	s := serve(t)
	s.fill()
	tab := browsertest.Chromium(t)
	letters := s.letters()
	tab.Do(t, chromedp.Navigate(s.at),
		chromedp.Click(`a.bad[href="/console/queues/mails/dead"]`), // 1: its dead letters
		chromedp.Click(`a[href$="letter=`+letters[0]+`"]`),         // 2: this one, which shows the error and the value
		chromedp.WaitVisible(`textarea[name="value"]`),
		chromedp.SetValue(`textarea[name="value"]`, `{"to": "right@example.org"}`),
		chromedp.Click(`form[action$="/edit"] button`), // 3: enqueue the edited message
		chromedp.WaitVisible(`.flash`))
	said := browsertest.See(t, tab, chromedp.Text(`.flash`))
	_, enqueued, _ := strings.Cut(said, "enqueued as ")
	enqueued, _, _ = strings.Cut(enqueued, ",")
	if enqueued == "" || len(s.letters()) != 1 {
		t.Errorf("the page says %q, and %d letters are left", said, len(s.letters()))
	}
	if ready := s.api("GET", "/v1/queues/mails/messages?state=ready", ""); !strings.Contains(ready, "right@example.org") {
		t.Errorf("the queue has %s", ready)
	}
	tab.Do(t, chromedp.Navigate(s.at+"/console/access/audit?verb=dead_letter.discard"), chromedp.WaitReady("footer"))
	if told := browsertest.See(t, tab, chromedp.Evaluate[string](`document.querySelector("main").textContent`)); !strings.Contains(told, "replaced_by") || !strings.Contains(told, enqueued) {
		t.Errorf("the audit does not tell which message replaced the dead letter: %s", told)
	}
	withoutComplaint(t, tab)
}

func TestChromiumFollowsNewEvents(t *testing.T) {
	s := serve(t)
	s.fill()
	tab := browsertest.Chromium(t)
	tab.Do(t, chromedp.Navigate(s.at+"/console/topics/orders/messages"), chromedp.Click(`[data-live]`))
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
			if text := browsertest.See(t, tab, chromedp.Text(`#tail tr td:last-child`)); text != "<b>live</b>" {
				t.Errorf("the page shows %q", text)
			}
			withoutComplaint(t, tab)
			return
		case <-again.C:
		}
	}
}
