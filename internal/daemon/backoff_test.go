package daemon_test

import (
	"encoding/json"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
)

// soon is less than the seventh of the waits between connections that a peer ends at once: half of a half second.
const soon = 250 * time.Millisecond

const (
	// lasting is how long a connection lasts after which the next one is made at once, as after a moment in which a machine
	// stands still; the count of those that are ended at once begins anew then.
	lasting = time.Second
	// mostEnded is how many are ended at most until eight in a row did not last.
	mostEnded = 80
)

// A peer that takes every connection and ends it is not connected to as fast as it can be.
func TestPeerEndsEveryLink(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	st, err := b.Status(t.Context())
	check(t, err)
	check(t, b.Halt())
	l, err := net.Listen("tcp", st.Listen)
	check(t, err)
	defer func() { _ = l.Close() }()
	check(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(3*time.Minute)))
	var begun, last time.Time
	for n, all := 0, 0; n < 8; n, all = n+1, all+1 {
		conn, err := l.Accept()
		check(t, err)
		if time.Since(begun) >= lasting { // it may have lasted until a moment ago
			n = 0
		}
		if all == mostEnded {
			t.Fatal("no eight links in a row have ended at once")
		}
		check(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		p := &impostor{t: t, conn: conn}
		p.receive("hello")
		begun = time.Now()
		p.hello("b")
		p.receive("directory") // the link is up
		if since := time.Since(last); n > 5 && since < soon {
			t.Errorf("link %d comes %v after the last one", n, since)
		}
		last = time.Now()
		check(t, conn.Close())
	}
	check(t, a.Quiet())
}

// Nor is a lane opened so to a peer that takes it and ends it.
func TestPeerEndsEveryLane(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	p := pose(t, a)
	p.send(frame{"type": "directory", "directory": []frame{{"domain": "default", "service": "s", "method": "m", "id": 1, "answer": 8}}})
	cq, pd, mr := laneMemory(t)

	c := attachClient(t, a)
	looked := make(chan error, 1)
	go func() {
		_, err := c.Method(t.Context(), "b/s/m")
		looked <- err
	}()
	var begun, last time.Time
	for n, all := 0, 0; n < 8; {
		m := p.receive("open")
		var asked struct {
			Seq  uint64
			Lane struct {
				Class   string
				Address []byte
			}
		}
		data, err := json.Marshal(m)
		check(t, err)
		check(t, json.Unmarshal(data, &asked))
		if asked.Lane.Class != "small" {
			p.send(frame{"type": "refuse", "seq": asked.Seq, "reason": "only small ones"})
			continue
		}
		if time.Since(begun) >= lasting {
			n = 0
		}
		if all == mostEnded {
			t.Fatal("no eight lanes in a row have ended at once")
		}
		if since := time.Since(last); n > 5 && since < soon {
			t.Errorf("lane %d is asked for %v after the last one", n, since)
		}
		ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 1, RecvDepth: 1})
		check(t, err)
		connected := make(chan error, 1)
		go func() { connected <- ep.Connect(t.Context(), asked.Lane.Address, fabric.Passive) }()
		begun = time.Now()
		p.send(frame{"type": "accept", "seq": asked.Seq, "lane": frame{"address": ep.Address(), "key": mr.Remote(), "mirror": all + 1}})
		check(t, <-connected)
		last = time.Now()
		check(t, ep.Close())
		n, all = n+1, all+1
	}
	if err := <-looked; !errors.Is(err, client.ErrNoService) {
		t.Errorf("looking for a method of a node that refuses lanes: %v", err)
	}
}
