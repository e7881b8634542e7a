package daemon_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// A peer that cannot connect lanes that are accepted, because its way to this node's data port is barred, says so, and is
// listened to: this node waits for none of the connections, of which only so many may be waited for.
func TestLanesThatPeerCannotConnect(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	_, address, key := silence(t)
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	for i := range 100 {
		if i == 0 || i == 40 || i == 70 { // of the first 40, one that is too many would wait for what is left of a connection's time
			check(t, p.conn.SetDeadline(time.Now().Add(20*time.Second))) // less than that
		}
		p.send(frame{"type": "open", "seq": i + 1, "lane": frame{
			"domain": "default", "class": "small", "number": i % 8, "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64}, "address": address, "key": key,
		}})
		p.receive("accept")
		p.send(frame{"type": "broken", "seq": i + 1, "lane": frame{"domain": "default", "class": "small", "number": i % 8}, "reason": "no route"})
	}
	p.send(frame{"type": "ping", "seq": 5})
	p.receive("pong")
}

// A node that cannot connect a lane that its peer has accepted tells the peer, which waits for it.
func TestLaneThatCannotBeConnected(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	l, address, key := silence(t)
	p := pose(t, a)
	check(t, p.conn.SetDeadline(time.Now().Add(20*time.Second)))
	giveUp := p.called(a)
	defer giveUp()
	check(t, l.Close()) // whoever connects is refused
	m := p.receive("open")
	p.send(frame{"type": "accept", "seq": m["seq"], "lane": frame{"address": address, "key": key, "mirror": 77}})
	said := p.receive("broken")
	lane, _ := said["lane"].(map[string]any)
	if said["seq"] != m["seq"] || lane["class"] != m["lane"].(map[string]any)["class"] || lane["incoming"] != nil {
		t.Errorf("%v was opened, and the peer is told %v", m, said)
	}
}

// A node that still connects a lane when its peer says that the other end has gone waits for that no longer.
func TestLaneThatPeerGivesUp(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	_, address, key := silence(t)
	p := pose(t, a)
	check(t, p.conn.SetDeadline(time.Now().Add(20*time.Second))) // less than a connection is waited for
	giveUp := p.called(a)
	defer giveUp()
	m := p.receive("open")
	p.send(frame{"type": "accept", "seq": m["seq"], "lane": frame{"address": address, "key": key, "mirror": 77}})
	lane, _ := m["lane"].(map[string]any)
	p.send(frame{"type": "broken", "seq": m["seq"], "lane": frame{"domain": lane["domain"], "class": lane["class"], "number": lane["number"], "incoming": true}, "reason": "no port"})
	if said := p.receive("broken"); said["seq"] != m["seq"] {
		t.Errorf("%v was opened, and the peer is told %v", m, said)
	}
}
