package peerauth

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
)

// Refusals remembers what was refused, so that each reason is logged once for each
// host until a connection from there is taken. Its methods are safe for concurrent
// use.
type Refusals struct {
	mu   sync.Mutex
	list map[refusalKey]*refused
}

type refusalKey struct{ host, reason string }

type refused struct {
	text   string
	count  uint64
	last   time.Time
	logged bool
}

const (
	// maxRefusals bounds what is remembered: strangers choose their hosts and, in
	// part, the reasons.
	maxRefusals = 64
	// maxReason bounds a reason that is made of a text, in bytes.
	maxReason = 200
	// MaxText bounds what is said and repeated of a refusal, in bytes.
	MaxText = 700
)

// Note counts that nothing was taken from a host because of err, and returns how that is put in few words of one line. news:
// it is to be logged.
func (r *Refusals) Note(host string, err error) (reason, text string, news bool) {
	text = printable.Limited(err.Error(), MaxText)
	reason = text[:min(len(text), maxReason)]
	var known *Refusal
	if errors.As(err, &known) {
		reason = known.Reason
	}
	return reason, text, r.count(host, reason, text)
}

// count counts a refusal and reports whether it is to be logged.
func (r *Refusals) count(host, reason, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := refusalKey{host, reason}
	known := r.list[key]
	if known == nil {
		if r.list == nil {
			r.list = make(map[refusalKey]*refused)
		}
		if len(r.list) == maxRefusals {
			delete(r.list, r.oldest())
		}
		known = new(refused)
		r.list[key] = known
	}
	known.text, known.last = text, time.Now()
	known.count++
	news := !known.logged
	known.logged = true
	return news
}

func (r *Refusals) oldest() (key refusalKey) {
	var last time.Time
	for k, e := range r.list {
		if last.IsZero() || e.last.Before(last) {
			key, last = k, e.last
		}
	}
	return key
}

// Forget makes the next refusal of a host news again.
func (r *Refusals) Forget(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, e := range r.list {
		if k.host == host {
			e.logged = false
		}
	}
}

// Status lists what is remembered, the latest first.
func (r *Refusals) Status() []status.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []status.Refusal{}
	for k, e := range r.list {
		list = append(list, status.Refusal{From: k.host, Reason: k.reason, Text: e.text, Count: e.count, AgeS: time.Since(e.last).Seconds()})
	}
	slices.SortFunc(list, func(a, b status.Refusal) int { return cmp.Compare(a.AgeS, b.AgeS) })
	return list
}
