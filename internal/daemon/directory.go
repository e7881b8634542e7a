package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// directoryPace is the time for each method of a directory until the peer is told the next: some ten
// times what it takes to write and to read it (0.4 and 1.6 us with 2,000 of them). Changes come in crowds, when services start that
// have thousands of methods; each by itself would make their number squared for every peer.
const directoryPace = 20 * time.Microsecond

// directoryFloor is the least time between two directories to a peer: a worker can make changes for which nothing else is to be done.
const directoryFloor = time.Millisecond

// directoryChanged has every peer told what this node serves now. It does not wait for peers:
// a service that says what it serves, and the end of a process, do not depend on whether they read.
func (c *conductor) directoryChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify()
	for _, l := range c.links {
		if l.session != nil {
			l.session.directoryStale()
		}
	}
}

// directoryStale has the peer told what this node serves, soon and in the background.
func (s *session) directoryStale() {
	select {
	case s.stale <- struct{}{}:
		s.link.conductor.spawn(s.publish)
	default: // whoever is about to tell the peer has not looked yet
	}
}

// publish tells the peer what this node serves, but not too soon after the last time.
func (s *session) publish() {
	s.publishing.Lock()
	wait := time.NewTimer(time.Until(s.nextDirectory))
	s.publishing.Unlock()
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-s.done:
		return
	case <-s.link.conductor.ctx.Done():
		return
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	<-s.stale // what changes from now on is told by another, who looks at nextDirectory after this
	s.sendDirectory()
}

// sendDirectory tells the peer what this node serves, and before that whether it takes requests: who waits for a method there
// would ask for a lane in between. The caller holds publishing, so that a newer directory is never overtaken.
func (s *session) sendDirectory() {
	c := s.link.conductor
	c.tellServiceNow(s)
	ls := c.listings()
	if err := s.send(&peerproto.Message{Type: peerproto.TypeDirectory, Directory: ls}); err != nil {
		s.end(err)
	}
	s.nextDirectory = time.Now().Add(max(directoryFloor, time.Duration(len(ls))*directoryPace))
}

const (
	// maxDirectory bounds the bytes of a directory, so that it fits a frame.
	maxDirectory = peerproto.MaxFrame - 64<<10
	// listingBytes is more than the bytes of a listing in JSON without its names, which have none that JSON must escape.
	listingBytes = 96
)

// listings returns what this node serves, as far as it fits a frame. What does not is not to be had from peers: better than no
// link at all. Each domain has as much of the frame as any other for sure, so that none can keep the services of another from
// being heard of; what they do not need is for those that need more. Of a domain that has not enough, the methods come first
// that it has had longest.
func (c *conductor) listings() []peerproto.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	domains := c.allDomains()
	var ls, more []peerproto.Listing
	spare := maxDirectory
	for _, d := range domains {
		room := maxDirectory / len(domains)
		spare -= room
		all, bytes := d.listings()
		if bytes > room {
			slices.SortFunc(all, func(a, b peerproto.Listing) int { return cmp.Compare(a.ID, b.ID) })
		}
		for _, l := range all {
			if n := directoryBytes(&l); n <= room {
				room -= n
				ls = append(ls, l)
			} else {
				more = append(more, l)
			}
		}
		spare += room
	}
	left := 0
	var cut []string // domains
	for _, l := range more {
		if n := directoryBytes(&l); n <= spare {
			spare -= n
			ls = append(ls, l)
			continue
		}
		if left++; !slices.Contains(cut, l.Domain) {
			cut = append(cut, l.Domain)
		}
	}
	if left > 0 {
		event.DirectoryFull.On(&c.log).Strs("domains", cut).Int("methods", left).Int("told", len(ls)).Msg("more methods than fit a directory: peers do not hear of some")
	}
	return ls
}

// listings returns what the domain serves, in any order, and what it takes in a directory; conductor.mu is held.
func (d *domain) listings() (ls []peerproto.Listing, bytes int) {
	for k, m := range d.methods {
		if len(m.workers) == 0 {
			continue
		}
		l := peerproto.Listing{Domain: d.name, Service: k.service, Method: k.method, ID: m.id, Answer: m.answer, Carries: m.carries()}
		ls, bytes = append(ls, l), bytes+directoryBytes(&l)
	}
	return ls, bytes
}

// directoryBytes is what an entry takes in a directory, or more.
func directoryBytes(l *peerproto.Listing) int {
	return len(l.Domain) + len(l.Service) + len(l.Method) + listingBytes
}

// maxAnswer bounds the answers in bytes that a method may announce: no message is larger, whatever it goes in.
const maxAnswer = 1 << 30

// learn replaces the peer's directory.
func (l *link) learn(s *session, ls []peerproto.Listing) error {
	dir := make(map[string]map[methodKey]peerproto.Listing)
	for _, e := range ls {
		if attach.CheckName(e.Service) != nil || attach.CheckName(e.Method) != nil || e.Answer < attach.AnswerLikeRequest || e.Answer > maxAnswer {
			return fmt.Errorf("%w: a malformed directory entry", peerproto.ErrFrame)
		}
		if dir[e.Domain] == nil {
			dir[e.Domain] = make(map[methodKey]peerproto.Listing)
		}
		dir[e.Domain][methodKey{e.Service, e.Method}] = e
	}
	c := l.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.session == s {
		l.directory, l.listed = dir, true
		c.notify()
	}
	return nil
}
