package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storecopy"
)

// movePartition moves a partition of a topic that stays to another shard, while everybody uses it.
// Meanwhile nothing else happens; or the command is killed, or a process, or the server of a shard;
// or a process is cut off from that shard. The command must get to its end when it is run again.
func (w *world) movePartition(ctx context.Context, random *rand.Rand, p *process, last time.Duration) error {
	name := stayingTopics[random.IntN(len(stayingTopics))]
	t, is := w.topicNow(ctx, name)
	if !is {
		return nil // the run is over
	}
	n := random.IntN(len(t.Partitions))
	to := (w.shardOf(t.Partitions[n]) + 1 + random.IntN(len(w.engines)-1)) % len(w.engines)
	args := []string{"shard", "move", "--store", w.url, "--topic", name, "--partition", fmt.Sprint(n), "--to", fmt.Sprint(to)}
	w.history.Add(fmt.Sprintf("%s/%d moves to shard %d", name, n, to), name)

	ctx = context.WithoutCancel(ctx)
	running, kill := context.WithCancel(ctx)
	defer kill()
	ended := make(chan int, 1)
	go func() {
		_, exit := w.program(running, args...)
		ended <- exit
	}()
	harm := []string{"nothing", "kill the command", "kill a process", "crash", "cut a process off"}[random.IntN(5)]
	pause(ctx, last)
	var err error
	mend := func() {}
	switch harm {
	case "kill the command":
		kill()
	case "kill a process":
		defer w.calm.disturb(p.name)()
		p.kill()
		err = p.start(ctx)
	case "crash":
		err = w.crash(ctx, anyOf(random, enginesThat[server](w)), last)
	case "cut a process off": // p has heard of the copy, and does not hear of the epoch that begins now
		if p.links[to] != nil {
			defer w.calm.disturb(p.name)()
			mend = w.cutOff(p, to)
		}
	}
	exit := <-ended
	mend()
	if err != nil {
		return err
	}
	w.counts.add("moves of a partition, " + harm + map[bool]string{true: ", done at once", false: ", to be run again"}[exit == 0])
	for late := time.Now().Add(startMax); exit != 0; pause(ctx, 500*time.Millisecond) {
		var out string
		if out, exit = w.program(ctx, args...); strings.Contains(out, storecopy.ErrThere.Error()) {
			break // the command was killed right before its end
		}
		if exit != 0 && time.Now().After(late) {
			w.model.Broken("B4", []string{name}, "%s/%d does not move to shard %d within %v: weir shard move exits with %d and says %s", name, n, to, startMax, exit, out)
			return nil
		}
	}
	w.moved[t.Partitions[n]] = to
	w.history.Add(fmt.Sprintf("%s/%d is on shard %d", name, n, to), name)
	return nil
}

// shardOf returns where a partition is.
func (w *world) shardOf(p eventlog.Partition) int {
	if shard, is := w.moved[p]; is {
		return shard
	}
	return p.Shard()
}
