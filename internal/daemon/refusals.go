package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/turnstile"
)

// refusal is why a bootstrap connection is not wanted, in words that stay the same
// from one attempt to the next.
type refusal struct {
	// reason is a word; see status.Refusal.
	reason string
	// came is what there was, expected what should have been, and remedy what to do.
	came, expected, remedy string
	err                    error // the cause, if there is one
}

// Error says everything in one line.
func (r *refusal) Error() string {
	return fmt.Sprintf("%s; expected %s; what to do: %s", r.came, r.expected, r.remedy)
}

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.err }

// refusals remembers what was refused, so that each reason is logged once for each
// host until a connection from there is taken. Its methods are safe for concurrent
// use.
type refusals struct {
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
	// maxRefusalText bounds what is said and repeated of a refusal, in bytes.
	maxRefusalText = 700
)

// note counts a refusal and reports whether it is to be logged.
func (r *refusals) note(host, reason, text string) bool {
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

func (r *refusals) oldest() (key refusalKey) {
	var last time.Time
	for k, e := range r.list {
		if last.IsZero() || e.last.Before(last) {
			key, last = k, e.last
		}
	}
	return key
}

// forget makes the next refusal of a host news again.
func (r *refusals) forget(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, e := range r.list {
		if k.host == host {
			e.logged = false
		}
	}
}

// status lists what is remembered, the latest first.
func (r *refusals) status() []status.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []status.Refusal{}
	for k, e := range r.list {
		list = append(list, status.Refusal{From: k.host, Reason: k.reason, Text: e.text, Count: e.count, AgeS: time.Since(e.last).Seconds()})
	}
	slices.SortFunc(list, func(a, b status.Refusal) int { return cmp.Compare(a.AgeS, b.AgeS) })
	return list
}

const (
	// partTime and partBytes bound the farewell to a connection that was refused.
	partTime  = time.Second
	partBytes = 64 << 10
)

// refuse counts and logs why a connection is not taken, and ends it.
func (c *conductor) refuse(conn net.Conn, err error) {
	c.note(conn.RemoteAddr(), "bootstrap connection refused", err)
	if t, ok := conn.(*net.TCPConn); ok && !errors.Is(err, os.ErrDeadlineExceeded) && t.CloseWrite() == nil {
		// Closing with bytes unread would reset the connection, and what was said
		// last would be lost on the other side.
		if t.SetReadDeadline(time.Now().Add(partTime)) == nil {
			_, _ = io.CopyN(io.Discard, t, partBytes)
		}
	}
	_ = conn.Close()
}

// errTooOften refuses a host that makes one connection in vain after the other.
var errTooOften = &refusal{reason: "too-often", came: "connection after connection that came to nothing",
	expected: fmt.Sprintf("at most %d at once and %d a second", turnstile.Burst, turnstile.PerSecond), remedy: "see what that host runs"}

// note counts why something that came from an address is not taken, and logs what it
// was if that is news.
func (c *conductor) note(from net.Addr, what string, err error) {
	atomic.AddUint64(&c.counts().RefusedConnections, 1)
	text := printable.Limited(err.Error(), maxRefusalText)
	reason := text[:min(len(text), maxReason)]
	var r *refusal
	if errors.As(err, &r) {
		reason = r.reason
	}
	if c.refusals.note(turnstile.HostOf(from), reason, text) && c.ctx.Err() == nil {
		event.PeerRefused.On(&c.log).Str("error", text).Str("reason", reason).Stringer("from", from).
			Msg(what + "; more for the same reason are only counted, see rdmad status")
	}
}
