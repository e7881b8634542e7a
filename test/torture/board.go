package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"

	"github.com/rdmad/rdmad/shm"
)

// The words of the board.
const (
	// boardBadRequests counts requests whose bytes were wrong.
	boardBadRequests = iota
	// boardForeign counts requests for books that nobody has.
	boardForeign
	// boardReattached counts attachments after the first one of a process.
	boardReattached
	// boardCalls counts calls that were begun.
	boardCalls
	// boardPhase is what the harness is doing; see phase.
	boardPhase
	// boardOpen is when the call was begun that the witness waits for, 0 if there is none, and openSeen.
	boardOpen
	// boardStart is, for each node, when the latest of the calls to the other one that have been answered was begun, and the
	// latest of those to itself.
	boardStart
	// boardOutcomes counts outcomes by their codes.
	boardOutcomes = boardStart + 4
	// boardLatency counts the witness's calls by phase and by time.
	boardLatency = boardOutcomes + int(outcomes)
	boardWords   = boardLatency + int(phases)*buckets
)

// board is counters that all processes of a run share, in a file that is mapped:
// they outlive every process.
type board struct {
	mem   mmap.MMap
	words []atomic.Uint64
}

// openBoard maps the board of a run, which is made if it is not there.
func openBoard(dir string) (*board, error) {
	mem, err := mapFile(filepath.Join(dir, "board"), boardWords*8)
	if err != nil {
		return nil, err
	}
	return &board{mem, shm.Uint64s(mem, 0, boardWords)}, nil
}

func (b *board) close() error { return b.mem.Unmap() }

func (b *board) add(word int) { b.words[word].Add(1) }

func (b *board) get(word int) uint64 { return b.words[word].Load() }

// outcome counts an outcome.
func (b *board) outcome(o outcome) { b.words[boardOutcomes+int(o)].Add(1) }

// start is when the latest of some calls that have been answered was begun.
func (b *board) start(node int, remote bool) *atomic.Uint64 {
	w := boardStart + 2*node
	if !remote {
		w++
	}
	return &b.words[w]
}

// answered notes that a call from a node that was begun at a time has been
// answered.
func (b *board) answered(node int, remote bool, began int64) {
	w := b.start(node, remote)
	for {
		old := w.Load()
		if old >= uint64(began) || w.CompareAndSwap(old, uint64(began)) {
			return
		}
	}
}

// answeredSince reports whether a call from a node that was begun after a time
// has been answered.
func (b *board) answeredSince(node int, remote bool, t int64) bool {
	return b.start(node, remote).Load() > uint64(t)
}

// nodeIndex is a node's place on the board.
func nodeIndex(name string) int {
	if name == "a" {
		return 0
	}
	return 1
}

// mapFile maps a file of a size, which is made if it is not there. A file that is
// there has that size already.
func mapFile(name string, size int) (mmap.MMap, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := mmap.MapRegion(f, size, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return mem, nil
}
