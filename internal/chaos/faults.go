package main

import (
	"context"
	"errors"
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
		w.history.Add("FAULT " + s.String())
		if err := w.fault(ctx, s, random); err != nil && ctx.Err() == nil {
			w.model.Broken("B1", []string{w.processes()[s.whom].name}, "after %v: %v", s, err)
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
			w.model.Broken("B3", []string{p.name}, "%s took %v to end after SIGTERM, with a store that answers; the limit is %v", p.name, took.Round(time.Millisecond), stopMax)
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
		return w.crash(ctx, anyOf(random, enginesThat[server](w)), s.last)
	case "lose":
		defer w.calm.disturb(theStore)()
		defer w.calm.disturb(p.name)()
		return w.startWithout(ctx, anyOf(random, enginesThat[server](w)), p, s.last)
	case "hang":
		defer w.calm.disturb(theStore)()
		return w.hang(ctx, anyOf(random, enginesThat[database](w)), s.last)
	case "move":
		defer w.calm.disturb(theStore)()
		return w.movePartition(ctx, random, p, s.last)
	case "part":
		defer w.calm.disturb(theStore)()
		defer w.calm.disturb(p.name)()
		return w.part(ctx, random, p, s.last)
	case "remake":
		defer w.calm.disturb(theStore)()
		return w.remake(ctx, random, p)
	case "cancel", "terminate":
		defer w.calm.disturb(theStore)()
		_ = anyOf(random, enginesThat[database](w)).interrupt(ctx, random, s.fault == "terminate") // the database may be away
	case "full":
		defer w.calm.disturb(theStore)()
		return w.fillDisk(ctx, s.last)
	}
	return nil
}

// crash ends a server at once, and starts it again after a while.
func (w *world) crash(ctx context.Context, s server, last time.Duration) error {
	w.history.Add(fmt.Sprintf("%s crashes", s.address()))
	if err := s.crash(); err != nil {
		return err
	}
	pause(ctx, last)
	err := s.recover(context.WithoutCancel(ctx))
	w.history.Add(fmt.Sprintf("%s is there again", s.address()))
	return err
}

// startWithout kills a process and starts it again while a shard is lost. Without shard 0 it would
// not start: so it is started once that is there again.
func (w *world) startWithout(ctx context.Context, lost server, p *process, last time.Duration) error {
	w.history.Add(fmt.Sprintf("%s is lost", lost.address()))
	if err := lost.crash(); err != nil {
		return err
	}
	p.kill()
	home := engine(lost) == w.engines[0]
	var started error
	if !home {
		started = p.start(context.WithoutCancel(ctx))
	}
	pause(ctx, last)
	if err := lost.recover(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	w.history.Add(fmt.Sprintf("%s is there again", lost.address()))
	if home {
		started = p.start(context.WithoutCancel(ctx))
	}
	return started
}

// hang suspends a server for a while.
func (w *world) hang(ctx context.Context, d database, last time.Duration) error {
	w.history.Add(fmt.Sprintf("%s hangs", d.address()))
	resume, err := d.suspend()
	if err != nil {
		return err
	}
	pause(ctx, last)
	resume()
	w.history.Add(fmt.Sprintf("%s goes on", d.address()))
	return nil
}

func anyOf[E any](random *rand.Rand, all []E) E { return all[random.IntN(len(all))] }

const diskSize = 4 << 30 // as much memory is used as the store's files have

// diskFor makes the directory that the store is in: with the fault "full" a file system of its own,
// which needs root.
func (w *world) diskFor(ctx context.Context) (string, error) {
	dir := filepath.Join(w.dir, "store")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(w.dir, 0o755)); err != nil || !w.opt.has("full") { // PostgreSQL has another user
		return dir, err
	}
	if err := mount(ctx, dir, "rw", diskSize); err != nil {
		return "", fmt.Errorf("the fault full needs a file system of its own: %w", err)
	}
	w.atEnd(func() error { return exec.Command("umount", "-l", dir).Run() })
	return dir, nil
}

func mount(ctx context.Context, dir, options string, size int64) error {
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("%s,size=%d", options, size), "weir-chaos", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// canFill says whether this machine lets us make a file system that we can fill.
func canFill() bool {
	dir, err := os.MkdirTemp("", "weir-chaos-disk-")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	if mount(context.Background(), dir, "rw", 1<<20) != nil {
		return false
	}
	return exec.Command("umount", dir).Run() == nil
}

// fillDisk leaves no room on the store's disk for a while: the file system becomes as small as what
// it holds.
func (w *world) fillDisk(ctx context.Context, d time.Duration) error {
	dir := filepath.Join(w.dir, "store")
	err := errors.New("never tried")
	for try := 0; try < 10 && err != nil; try++ { // it grows meanwhile, and cannot be smaller than what it holds
		var has syscall.Statfs_t
		if err = syscall.Statfs(dir, &has); err == nil {
			err = mount(ctx, dir, "remount", int64(has.Blocks-has.Bfree)*int64(has.Bsize))
		}
	}
	if err == nil {
		pause(ctx, d)
	}
	err = errors.Join(err, mount(context.WithoutCancel(ctx), dir, "remount", diskSize))
	for _, d := range enginesThat[*postgres](w) {
		if err == nil {
			err = d.revive(context.WithoutCancel(ctx))
		}
	}
	return err
}
