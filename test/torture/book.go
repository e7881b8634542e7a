package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"

	"github.com/rdmad/rdmad/shm"
)

// The words of an entry of a book. Each word is stored at once, so that a process that
// is killed at any moment leaves an entry that says how far it had come.
const (
	// entryIntent is not 0 once the call is about to be made: its style, and 1<<8. Of an ordered request it has besides
	// who sends it, from 1<<16 on, and its order, from 1<<32 on.
	entryIntent = iota
	// entryBegan and entryEnded are times of CLOCK_MONOTONIC in nanoseconds, each
	// stored before the word that it belongs to.
	entryBegan
	// entryOutcome is the outcome that the worker was told, 0 as long as there is none.
	entryOutcome
	entryEnded
	// entryRuns counts how often a handler has run. The services write it, before they
	// answer.
	entryRuns
	// entryServer is the instance of the service that ran last, entryRanAt when.
	entryServer
	entryRanAt
	// entryRoute is 1 for a call to the other node, 0 for one to the own node.
	entryRoute
	entryWords
)

const (
	// bookEntries is how many calls a book has room for.
	bookEntries = 1 << 15
	bookSize    = bookEntries * entryWords * 8
	// bookGenerations is how many books a process may fill.
	bookGenerations = 1 << 12
)

// book is the ledger of some calls of one worker, in a file that is mapped: the worker
// writes what it intends and what it was told, the services what they did.
type book struct {
	number int
	mem    mmap.MMap
	words  []atomic.Uint64
}

// bookPath returns the file of a book.
func bookPath(dir string, number int) string {
	return filepath.Join(dir, "books", strconv.Itoa(number))
}

// makeBook makes a book that nobody has.
func makeBook(dir string, number int) (*book, error) { return mapBook(bookPath(dir, number), number) }

var errNoBook = errors.New("there is no such book")

// openBook maps a book that somebody has made.
func openBook(dir string, number int) (*book, error) {
	path := bookPath(dir, number)
	if st, err := os.Stat(path); err != nil || st.Size() != bookSize {
		return nil, fmt.Errorf("%w: %d", errNoBook, number)
	}
	return mapBook(path, number)
}

func mapBook(path string, number int) (*book, error) {
	mem, err := mapFile(path, bookSize)
	if err != nil {
		return nil, err
	}
	return &book{number, mem, shm.Uint64s(mem, 0, bookEntries*entryWords)}, nil
}

func (b *book) close() error { return b.mem.Unmap() }

// at returns a word of an entry.
func (b *book) at(entry, word int) *atomic.Uint64 { return &b.words[entry*entryWords+word] }

// instanceOf returns which process filled a book.
func instanceOf(number int) int { return number / bookGenerations }

// ledger is the books that one worker writes, one after the other. Its methods are safe
// for concurrent use.
type ledger struct {
	dir      string
	instance int

	mu    sync.Mutex
	books []*book
	next  int
}

// record is one call in a ledger.
type record struct {
	book  *book
	entry int
}

// begin enters what is intended.
func (l *ledger) begin(s style, remote bool) (record, error) {
	l.mu.Lock()
	if len(l.books) == 0 || l.next == bookEntries {
		if len(l.books) == bookGenerations {
			l.mu.Unlock()
			return record{}, errors.New("all books are full")
		}
		b, err := makeBook(l.dir, l.instance*bookGenerations+len(l.books))
		if err != nil {
			l.mu.Unlock()
			return record{}, err
		}
		l.books, l.next = append(l.books, b), 0
	}
	r := record{l.books[len(l.books)-1], l.next}
	l.next++
	l.mu.Unlock()
	r.word(entryBegan).Store(uint64(shm.Nanotime()))
	if remote {
		r.word(entryRoute).Store(1)
	}
	r.word(entryIntent).Store(1<<8 | uint64(s))
	return r, nil
}

func (r record) word(w int) *atomic.Uint64 { return r.book.at(r.entry, w) }

// inOrder enters that the request is ordered among those of a caller.
func (r record) inOrder(caller int, order uint64) {
	r.word(entryIntent).Store(1<<8 | uint64(styleOrdered) | uint64(caller)<<16 | order<<32)
}

// end enters the outcome.
func (r record) end(o outcome) {
	r.word(entryEnded).Store(uint64(shm.Nanotime()))
	r.word(entryOutcome).Store(uint64(o))
}

// library is the books that a service has been told of. Its methods are safe for
// concurrent use.
type library struct {
	dir   string
	mu    sync.RWMutex
	books map[int]*book
}

func newLibrary(dir string) *library { return &library{dir: dir, books: map[int]*book{}} }

// get returns a book that exists.
func (l *library) get(number int) (*book, error) {
	l.mu.RLock()
	b := l.books[number]
	l.mu.RUnlock()
	if b != nil {
		return b, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.books[number]; b != nil {
		return b, nil
	}
	b, err := openBook(l.dir, number)
	if err == nil {
		l.books[number] = b
	}
	return b, err
}

// ran enters that a handler runs, before it answers.
func (b *book) ran(entry, instance int) {
	b.at(entry, entryRuns).Add(1)
	b.at(entry, entryServer).Store(uint64(instance))
	b.at(entry, entryRanAt).Store(uint64(shm.Nanotime()))
}

// entry is an entry as it is read when nobody writes it any more.
type entry struct {
	book, number int
	intent, runs uint64
	outcome      outcome
	server       uint64
	remote       bool
	// The times are 0 as long as there are none.
	began, ended, ranAt int64
}

// read reads an entry.
func (b *book) read(i int) entry {
	at := func(w int) uint64 { return b.at(i, w).Load() }
	return entry{
		book: b.number, number: i, intent: at(entryIntent), runs: at(entryRuns), outcome: outcome(at(entryOutcome)), server: at(entryServer),
		remote: at(entryRoute) != 0, began: int64(at(entryBegan)), ended: int64(at(entryEnded)), ranAt: int64(at(entryRanAt)),
	}
}

func (e *entry) style() style { return style(e.intent & 0xff) }

// worked reports whether a call did what it is made for.
func (e *entry) worked() bool {
	switch s := e.style(); e.outcome {
	case outOK:
		return true
	case outPosted:
		return e.runs > 0
	case outCancelled:
		return s == styleCancel
	case outDeadlineUnsent, outDeadlineSent:
		return s == styleDeadline
	}
	return false
}

func (e *entry) describe(what string) string {
	return fmt.Sprintf("%s: worker %d, book %d entry %d, %v, remote %v, outcome %v, began %d, ended %d, run %d times, last by service %d at %d",
		what, instanceOf(e.book), e.book, e.number, e.style(), e.remote, e.outcome, e.began, e.ended, e.runs, e.server, e.ranAt)
}
