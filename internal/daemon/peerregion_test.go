package daemon_test

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
)

// bulk is the state of operations on regions between node a and b.
func bulk(t *testing.T, a *daemontest.Node) daemon.BulkStatus {
	t.Helper()
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range st.Bulk {
		if s.Peer == "b" {
			return s
		}
	}
	return daemon.BulkStatus{}
}

// What a peer says of its regions is answered, and forgotten with the connection.
func TestPeerRegions(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	region := func(domain string, index int) frame {
		return frame{"domain": domain, "index": index, "generation": 1, "key": fabric.RemoteKey{Addr: 4096, Key: 5, Len: ^uint64(0)}}
	}
	p.send(frame{"type": "export", "seq": 1, "region": region("none", 1)})
	p.receive("refuse")
	// The node makes its connection before it is needed, unless the peer does not
	// want it.
	p.send(frame{"type": "export", "seq": 2, "region": region("default", 1)})
	seen := map[any]frame{}
	for seen["exported"] == nil || seen["open"] == nil {
		m := p.next("exported and open")
		seen[m["type"]] = m
	}
	m := seen["open"]
	if lane, ok := m["lane"].(map[string]any); !ok || lane["bulk"] != true || lane["domain"] != "default" {
		t.Errorf("the node opens %v", m)
	}
	p.send(frame{"type": "refuse", "seq": m["seq"], "reason": "no"})
	for i := range 3 {
		p.send(frame{"type": "export", "seq": 2 + i, "region": region("default", i+1)})
		if m := p.receive("exported"); m["seq"] != float64(2+i) {
			t.Errorf("the answer is %v", m)
		}
	}
	p.send(frame{"type": "revoke", "region": region("default", 1)})
	p.send(frame{"type": "revoke", "region": region("default", 77)})
	p.send(frame{"type": "revoke", "region": region("none", 1)})
	for i, index := range []int{1, 1, 77} {
		p.send(frame{"type": "unexport", "seq": 10 + i, "region": region("default", index)})
		if m := p.receive("unexported"); m["seq"] != float64(10+i) {
			t.Errorf("the answer is %v", m)
		}
	}
	p.send(frame{"type": "broken", "seq": 99, "lane": frame{"domain": "default", "bulk": true, "incoming": true}})
	p.send(frame{"type": "broken", "seq": 99, "lane": frame{"domain": "none", "bulk": true}})
	p.send(frame{"type": "open", "seq": 20, "lane": frame{"domain": "none", "bulk": true}})
	p.receive("refuse")
	p.send(frame{"type": "open", "seq": 21, "lane": frame{"domain": "default", "bulk": true, "address": []byte("nowhere")}})
	p.receive("accept")
	p.receive("broken")
	if s := bulk(t, a); s.Imports != 2 || s.In != "down" || s.Out != "down" {
		t.Errorf("the node has %+v", s)
	}
	p.send(frame{"type": "export", "seq": 30})
	daemontest.Eventually(t, "an export of nothing ends the connection", func() error {
		if s := bulk(t, a); s.Imports != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}
