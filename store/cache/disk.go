package cache

import (
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// fileUnit: sizes of files are rounded up to it, as files take whole blocks of the file system.
	fileUnit = 4 << 10
	// fileOverhead is counted for each file: its inode, its name, and its entry in memory.
	fileOverhead = 1 << 10
	// writePause is how long nothing is written after a failed write, for example because the disk
	// is full.
	writePause = time.Minute

	blockSuffix = ".weirblock"
	partSuffix  = ".weirpart" // of a block that is being written
)

// ErrInUse: another process uses the directory.
var ErrInUse = errors.New("another process uses this directory as its cache. Give each process its own")

// place is a partition of a store in an incarnation.
type place struct {
	identity  identity
	partition eventlog.Partition
}

// block is a file with consecutive batches, which have the offsets [first, next).
type block struct {
	place
	first, next eventlog.Offset
	version     eventlog.Version // of the partition's key of compaction
	size        int64            // as it is counted
	used        *list.Element    // in disk.order
}

// disk is a cache's files, and an index of them.
type disk struct {
	dir   string
	most  int64
	log   *slog.Logger
	stats *counters
	lock  *os.File

	writing sync.Mutex // held while a block is written, so that nobody writes the same; taken before mu

	mu       sync.Mutex         // guards what follows
	blocks   map[place][]*block // by offset; they do not overlap
	order    *list.List         // of *block: the one that was used last is in front
	held     int64              // size of all blocks, and of those that are being written
	failing  bool               // the last write failed
	resuming time.Time          // nothing is written before this time
}

// openDisk locks the directory, removes incomplete blocks, and finds out by the names of the files
// which blocks there are. Other files are left alone.
func openDisk(opts Options, stats *counters) (*disk, error) {
	d := &disk{dir: opts.Dir, most: opts.Bytes, log: opts.Logger, stats: stats, blocks: map[place][]*block{}, order: list.New()}
	err := os.MkdirAll(d.dir, 0o700)
	if err != nil {
		return nil, err
	}
	if d.lock, err = lock(filepath.Join(d.dir, "weir.lock")); err != nil {
		return nil, err
	}
	if err := d.load(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *disk) load() error {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	type found struct {
		*block
		at time.Time
	}
	var all []found
	for _, f := range files {
		if _, is := parseName(strings.TrimSuffix(f.Name(), partSuffix)); is && strings.HasSuffix(f.Name(), partSuffix) {
			_ = os.Remove(filepath.Join(d.dir, f.Name())) // if it stays, the next start tries again
			continue
		}
		b, is := parseName(f.Name())
		info, err := f.Info()
		if !is || err != nil || !info.Mode().IsRegular() {
			continue
		}
		b.size = counted(info.Size())
		all = append(all, found{b, info.ModTime()})
	}
	slices.SortFunc(all, func(a, b found) int { return a.at.Compare(b.at) })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range all {
		if !d.insert(f.block) {
			_ = os.Remove(d.path(f.block))
			continue
		}
		d.held += f.size
	}
	d.makeRoom(0)
	return nil
}

// read returns batches from the one that holds an offset: those of its block that fit into room
// bytes. With first, the first one is returned whatever its size. all: all that follow in the block
// fit. hit: there is such a block. A damaged block is deleted, and is no hit.
func (d *disk) read(at place, version eventlog.Version, from eventlog.Offset, room int, first bool) (batches []eventlog.Placed, all, hit bool) {
	d.mu.Lock()
	b := d.find(at, from)
	if b != nil && b.version != version {
		d.remove(b) // batches were replaced since
		b = nil
	}
	if b == nil {
		d.mu.Unlock()
		return nil, false, false
	}
	d.order.MoveToFront(b.used)
	d.mu.Unlock()

	batches, all, err := readBlock(d.path(b), b, from, room, first)
	if err == nil {
		return batches, all, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holds(b) { // it was not evicted meanwhile
		d.stats.readErrors.Add(1)
		if !errors.Is(err, fs.ErrNotExist) { // deleted files are not logged: there may be many
			d.log.Warn("a block of the cache could not be read and was deleted; the store has its events", "file", d.path(b), "err", err)
		}
		d.remove(b)
	}
	return nil, false, false
}

// write keeps batches in a block, unless another block has them. whole: they are enough for a
// block. If they are not, they are kept only if they fill the gap before another block.
func (d *disk) write(at place, version eventlog.Version, batches []eventlog.Placed, whole bool) {
	b := &block{place: at, version: version, first: batches[0].Base}
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	for _, other := range slices.Clone(d.blocks[at]) {
		if other.version != version {
			d.remove(other)
		}
	}
	limit := eventlog.Offset(math.MaxInt64)
	if i := after(d.blocks[at], b.first); i < len(d.blocks[at]) {
		limit = d.blocks[at][i].first
	}
	n := len(batches)
	for n > 0 && batches[n-1].End() > limit {
		n--
	}
	gap := n > 0 && batches[n-1].End() == limit
	if n == 0 || !whole && !gap || time.Now().Before(d.resuming) {
		d.mu.Unlock()
		return
	}
	b.next = batches[n-1].End()
	b.size = counted(encodedSize(batches[:n]))
	if b.size > d.most {
		d.mu.Unlock()
		return
	}
	d.makeRoom(b.size)
	d.held += b.size
	d.mu.Unlock()

	err := d.writeFile(b, encode(b, batches[:n]))

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noteWrite(err); err != nil {
		d.held -= b.size
		return
	}
	if !d.insert(b) {
		panic(fmt.Sprintf("cache: block %s overlaps another, although one is written at a time", d.path(b)))
	}
}

// writeFile writes a block under another name first: a file with a block's name is complete. It is
// not synced: after a crash its checksums tell whether it is complete.
func (d *disk) writeFile(b *block, bytes []byte) error {
	part := d.path(b) + partSuffix
	err := os.WriteFile(part, bytes, 0o600)
	if err == nil {
		err = os.Rename(part, d.path(b))
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// noteWrite counts a failed write, and says once that writes fail, and once that they work again.
// It needs d.mu.
func (d *disk) noteWrite(err error) {
	if err != nil {
		d.stats.writeErrors.Add(1)
		d.resuming = time.Now().Add(writePause)
	}
	switch {
	case err != nil && !d.failing:
		d.log.Warn("the cache cannot write and stops doing so for a while; reads go on. Free space on its disk, or give it less with --cache-bytes", "dir", d.dir, "again_after", writePause, "err", err)
	case err == nil && d.failing:
		d.log.Info("the cache writes again", "dir", d.dir)
	}
	d.failing = err != nil
}

// forget removes the blocks of a partition that is not there any more.
func (d *disk) forget(at place) {
	d.removeIf(at, func(*block) bool { return true })
}

// keepWithin removes the blocks that the partition cannot have: those below its first offset, and
// those past its end, left by a rewind that the store did not notice.
func (d *disk) keepWithin(at place, bounds eventlog.Bounds) {
	d.removeIf(at, func(b *block) bool { return b.next <= bounds.First || b.next > bounds.Next })
}

func (d *disk) removeIf(at place, gone func(*block) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	blocks := d.blocks[at]
	if len(blocks) == 0 || !gone(blocks[0]) && !gone(blocks[len(blocks)-1]) {
		return // blocks to remove are at the ends
	}
	for _, b := range slices.Clone(blocks) {
		if gone(b) {
			d.remove(b)
		}
	}
}

func (d *disk) close() { d.lock.Close() }

// The functions below need d.mu.

// find returns the block that holds an offset; nil: there is none.
func (d *disk) find(at place, offset eventlog.Offset) *block {
	blocks := d.blocks[at]
	i := after(blocks, offset)
	if i == len(blocks) || blocks[i].first > offset {
		return nil
	}
	return blocks[i]
}

// after returns the index of the first block that ends above an offset.
func after(blocks []*block, offset eventlog.Offset) int {
	i, _ := slices.BinarySearchFunc(blocks, offset, func(b *block, offset eventlog.Offset) int {
		if b.next <= offset {
			return -1
		}
		return 1
	})
	return i
}

// insert adds a block, unless others overlap it.
func (d *disk) insert(b *block) bool {
	blocks := d.blocks[b.place]
	i := after(blocks, b.first)
	if i < len(blocks) && blocks[i].first < b.next {
		return false
	}
	d.blocks[b.place] = slices.Insert(blocks, i, b)
	b.used = d.order.PushFront(b)
	return true
}

func (d *disk) holds(b *block) bool { return d.find(b.place, b.first) == b }

// remove removes a block and its file. Readers of the open file can finish.
func (d *disk) remove(b *block) {
	blocks := d.blocks[b.place]
	i := slices.Index(blocks, b)
	if blocks = slices.Delete(blocks, i, i+1); len(blocks) == 0 {
		delete(d.blocks, b.place)
	} else {
		d.blocks[b.place] = blocks
	}
	d.order.Remove(b.used)
	d.held -= b.size
	if err := os.Remove(d.path(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.stats.writeErrors.Add(1) // the next start finds the file
	}
}

// makeRoom evicts the blocks that were not used for the longest time, until so many bytes are free.
func (d *disk) makeRoom(size int64) {
	for d.held+size > d.most && d.order.Len() > 0 {
		d.remove(d.order.Back().Value.(*block))
		d.stats.evictions.Add(1)
	}
}

func (d *disk) path(b *block) string {
	return filepath.Join(d.dir, fmt.Sprintf("%x-%d-%d-%d-%d%s", b.identity, b.partition, b.first, b.next, b.version, blockSuffix))
}

func parseName(name string) (*block, bool) {
	b := &block{}
	id, rest, _ := strings.Cut(strings.TrimSuffix(name, blockSuffix), "-")
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(b.identity) {
		return nil, false
	}
	copy(b.identity[:], raw)
	n, err := fmt.Sscanf(rest, "%d-%d-%d-%d", &b.partition, &b.first, &b.next, &b.version)
	same := filepath.Base((&disk{}).path(b)) == name // nothing but a name that path returns
	return b, n == 4 && err == nil && same && b.first >= 0 && b.first < b.next
}

func counted(size int64) int64 {
	return (size+fileUnit-1)/fileUnit*fileUnit + fileOverhead
}
