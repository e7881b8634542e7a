package event

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// The bounds of a Ring.
const (
	// maxEntries is how many distinct errors are remembered.
	maxEntries = 96
	// maxSubjects is how many of them may have one code: whoever can choose a subject,
	// such as a worker its name, does not push out the errors of others.
	maxSubjects = 12
	// maxSubject and maxText bound the bytes of an entry.
	maxSubject = 80
	maxText    = 400
)

// others stands for the subjects of a code that are too many to be told apart.
const others = "(others)"

// Entry is a distinct error: what has happened, to whom, how often, and when.
type Entry struct {
	// Code names the event, Level is "warn" or "error".
	Code  Code   `json:"code"`
	Level string `json:"level"`
	// Subject is what it is about, such as "peer b"; empty for the node itself.
	Subject string `json:"subject,omitempty"`
	// Count is how often, First and Last are when.
	Count uint64    `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Text is the message and the error of the last time.
	Text string `json:"text"`
	// Process is "core" or "supervisor": who has said it.
	Process string `json:"process"`
}

// entryKey tells distinct errors apart.
type entryKey struct {
	code    Code
	subject string
}

// Ring remembers distinct errors, a bounded number of them: the one that has not happened
// for the longest time makes room for a new one. Its methods are safe for concurrent use.
// The zero Ring is empty.
type Ring struct {
	mu      sync.Mutex
	entries map[entryKey]*Entry
}

// Note counts an error.
func (r *Ring) Note(e Entry) {
	e.Subject, e.Text = printable(e.Subject, maxSubject), printable(e.Text, maxText)
	e.Count = max(e.Count, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries == nil {
		r.entries = make(map[entryKey]*Entry)
	}
	key := entryKey{e.Code, e.Subject}
	if r.entries[key] == nil {
		same := 0
		for k := range r.entries {
			if k.code == e.Code {
				same++
			}
		}
		if same >= maxSubjects {
			e.Subject = others
			key.subject = others
		}
	}
	old := r.entries[key]
	if old == nil {
		r.makeRoom()
		r.entries[key] = &e
		return
	}
	old.Count += e.Count
	if e.First.Before(old.First) {
		old.First = e.First
	}
	if !e.Last.Before(old.Last) {
		old.Last, old.Text, old.Level, old.Process = e.Last, e.Text, e.Level, e.Process
	}
}

// makeRoom forgets the oldest entry if there are as many as may be. mu is held.
func (r *Ring) makeRoom() {
	if len(r.entries) < maxEntries {
		return
	}
	var oldest entryKey
	var since time.Time
	for k, e := range r.entries {
		if since.IsZero() || e.Last.Before(since) {
			oldest, since = k, e.Last
		}
	}
	delete(r.entries, oldest)
}

// List returns copies of the entries, the latest first.
func (r *Ring) List() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Entry, 0, len(r.entries))
	for _, e := range r.entries {
		list = append(list, *e)
	}
	Sort(list)
	return list
}

// Sort orders entries, the latest first.
func Sort(list []Entry) {
	slices.SortFunc(list, func(a, b Entry) int {
		if c := b.Last.Compare(a.Last); c != 0 {
			return c
		}
		return strings.Compare(string(a.Code)+"\x00"+a.Subject, string(b.Code)+"\x00"+b.Subject)
	})
}

// printable bounds text and replaces what a terminal may take for a command: workers and
// peers have their part in it.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
