package daemon

import (
	"bufio"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// What a peer names again without a question is not answered: two nodes with many regions, both of which would wait for
// the other to read answers, would never be done.
func TestNoAnswerWithoutQuestion(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	for _, d := range []string{"default", "none"} {
		said := make(chan error, 1)
		go func() {
			said <- r.imported(r.s, &peerproto.Message{Type: peerproto.TypeExport, Region: &peerproto.Region{Domain: d, Index: 1, Generation: 1}})
		}()
		select {
		case err := <-said:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute): // less than a write may take
			t.Errorf("domain %s: it waits for the peer to read an answer", d)
		}
	}
}

// A node whose peer does not read what it says reads what the peer says all the same: both may have much to say.
func TestPeersThatTalkAtOnce(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	defer r.serveLink()()
	if err := r.peer.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil { // less than a write of the node may take
		t.Fatal(err)
	}
	if err := peerproto.Write(r.peer, &peerproto.Message{Type: peerproto.TypeUndrain}); err != nil {
		t.Errorf("the node does not read: %v", err)
	}
}

// A node reads the questions of a peer that reads no answers meanwhile: the peer may be about to write what this node does not
// read because it writes itself. Each is answered when the peer reads.
func TestQuestionsBesideUnreadAnswers(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	defer r.serveLink()()
	if err := r.peer.SetDeadline(time.Now().Add(time.Minute)); err != nil { // less than a write of the node may take
		t.Fatal(err)
	}
	region := &peerproto.Region{Domain: "default", Index: 1, Generation: 1}
	waited := map[uint64]bool{}
	for _, m := range []peerproto.Message{
		{Type: peerproto.TypePing},
		{Type: peerproto.TypeExport, Region: &peerproto.Region{Domain: "none", Index: 1, Generation: 1}},
		{Type: peerproto.TypeUnexport, Region: region},
		{Type: peerproto.TypeUnexport, Region: &peerproto.Region{Domain: "none", Index: 1, Generation: 1}},
		{Type: peerproto.TypeGone, Caller: 1, Lane: &peerproto.Lane{Domain: "default"}},
		{Type: peerproto.TypeTrace, Trace: &peerproto.Trace{Domain: "default"}},
		{Type: peerproto.TypePing},
	} {
		m.Seq = uint64(len(waited) + 1)
		waited[m.Seq] = true
		if err := peerproto.Write(r.peer, &m); err != nil {
			t.Fatalf("the node does not read %s: %v", m.Type, err)
		}
	}
	for reader := bufio.NewReader(r.peer); len(waited) > 0; {
		m, err := peerproto.Read(reader, peerproto.MaxFrame)
		if err != nil {
			t.Fatalf("%d questions have no answer: %v", len(waited), err)
		}
		if m.Type != peerproto.TypeDirectory && m.Type != peerproto.TypeRepeated && !waited[m.Seq] {
			t.Errorf("the node says %s to question %d", m.Type, m.Seq)
		}
		delete(waited, m.Seq)
	}
}

// A peer that leaves its answers unread has no more than so many bytes of them kept, and gets all.
func TestUnreadAnswersAreBounded(t *testing.T) {
	defer func(n, part int) { maxUnread, writePart = n, part }(maxUnread, writePart)
	maxUnread, writePart = 1000, 7
	r := newLinkRig(t)
	defer r.stop()
	const answers = 200
	kept := make(chan int, 1)
	go func() {
		most := 0
		for i := range answers {
			if err := r.s.answer(&peerproto.Message{Type: peerproto.TypePong, Seq: uint64(i)}); err != nil {
				t.Error(err)
			}
			r.s.mu.Lock()
			most = max(most, r.s.unread)
			r.s.mu.Unlock()
		}
		kept <- most
	}()
	seen := map[uint64]bool{}
	for reader := bufio.NewReader(r.peer); len(seen) < answers; {
		m, err := peerproto.Read(reader, peerproto.MaxFrame)
		if err != nil {
			t.Fatalf("%d answers: %v", len(seen), err)
		}
		if seen[m.Seq] {
			t.Errorf("answer %d comes twice", m.Seq)
		}
		seen[m.Seq] = true
	}
	if most := <-kept; most > maxUnread {
		t.Errorf("%d bytes were kept", most)
	}
}

// A peer that reads one message after the other, each just in time, does not keep those that follow: ids of callers that are gone
// wait for them, and who attaches waits for an id.
func TestPeerThatReadsALittle(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	peerWriteTimeout = 400 * time.Millisecond
	const messages = 50
	over := make(chan error, messages)
	for range messages {
		go func() { over <- r.s.send(&peerproto.Message{Type: peerproto.TypePing}) }()
	}
	go func() {
		reader := bufio.NewReaderSize(r.peer, 16) // no more than it has to
		for next := time.NewTicker(peerWriteTimeout / 4); ; <-next.C {
			if _, err := peerproto.Read(reader, peerproto.MaxFrame); err != nil {
				next.Stop()
				return
			}
		}
	}()
	failed := 0
	for range messages {
		if err := <-over; err != nil {
			failed++
		}
	}
	if failed == 0 || r.s.Reason() == nil {
		t.Errorf("%d of %d messages were not sent; the session: %v", failed, messages, r.s.Reason())
	}
}
