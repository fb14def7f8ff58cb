package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// runFaults does the plan's faults, one after the other.
func (w *world) runFaults(ctx context.Context, plan []step) {
	random := w.random("faults")
	for _, s := range plan {
		pause(ctx, time.Until(w.begin.Add(s.at)))
		if ctx.Err() != nil {
			return
		}
		w.counts.add("fault " + s.fault)
		w.history.add("FAULT " + s.String())
		if err := w.fault(ctx, s, random); err != nil && ctx.Err() == nil {
			w.model.broken("B1", []string{w.processes()[s.whom].name}, "after %v: %v", s, err)
		}
	}
}

func (w *world) fault(ctx context.Context, s step, random *rand.Rand) error {
	p := w.processes()[s.whom]
	p.turn.Lock()
	defer p.turn.Unlock()
	switch s.fault {
	case "kill":
		defer w.calm.disturb(p.name)()
		p.kill()
		pause(ctx, s.last)
		return p.start(context.WithoutCancel(ctx))
	case "term":
		defer w.calm.disturb(p.name)()
		began := w.now()
		if took := p.stop(); took > stopMax && w.calm.between(began, w.now()) {
			w.model.broken("B3", []string{p.name}, "%s took %v to end after SIGTERM, with a store that answers; the limit is %v", p.name, took.Round(time.Millisecond), stopMax)
		}
		pause(ctx, s.last)
		return p.start(context.WithoutCancel(ctx))
	case "stop":
		defer w.calm.disturb(p.name)()
		p.signal(syscall.SIGSTOP)
		pause(ctx, s.last)
		p.signal(syscall.SIGCONT)
	case "crash":
		defer w.calm.disturb(theStore)()
		return w.database.crash()
	case "cancel", "terminate":
		defer w.calm.disturb(theStore)()
		_ = w.database.interrupt(ctx, random, s.fault == "terminate") // the database may be away
	case "full":
		defer w.calm.disturb(theStore)()
		return w.fillDisk(ctx, s.last)
	}
	return nil
}

const diskSize = "64m"

// diskFor makes the directory that SQLite's file is in: with the fault "full" a small file system of its own, which needs root.
func (w *world) diskFor(ctx context.Context) (string, error) {
	dir := filepath.Join(w.dir, "store")
	if err := os.Mkdir(dir, 0o755); err != nil || !w.opt.has("full") {
		return dir, err
	}
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "size="+diskSize, "weir-chaos", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the fault full needs a file system of its own: mount: %w: %s", err, out)
	}
	w.atEnd(func() error { return exec.Command("umount", "-l", dir).Run() })
	return dir, nil
}

// fillDisk leaves no room on the store's disk for a while.
func (w *world) fillDisk(ctx context.Context, d time.Duration) error {
	path := filepath.Join(w.dir, "store", "ballast")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer file.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = file.Write(block)
	}
	for len(block) > 512 { // the last of it
		block = block[:len(block)/2]
		_, _ = file.Write(block)
	}
	pause(ctx, d)
	return nil
}
