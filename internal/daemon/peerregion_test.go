package daemon_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/status"
)

// bulk is the state of operations on regions between node a and b.
func bulk(t *testing.T, a *daemontest.Node) status.Bulk {
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
	return status.Bulk{}
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

// exported is a region that a peer exports.
func exported(index int, size uint64) frame {
	return frame{"domain": "default", "index": index, "generation": 1, "key": fabric.RemoteKey{Addr: 4096, Key: 5, Len: size}}
}

// In every session the node says what there is of its regions before it opens a lane, and
// forgets what the peer does not name again before it says the same.
func TestPeerNamesRegionsAgain(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	for i := range 3 {
		p.send(frame{"type": "export", "seq": 1 + i, "region": exported(i+1, 8192)})
	}
	p.send(frame{"type": "repeated"})
	p.send(frame{"type": "repeated"}) // again it means nothing
	p.send(frame{"type": "ping", "seq": 9})
	p.receive("pong")
	if s := bulk(t, a); s.Imports != 3 {
		t.Errorf("the node has %+v", s)
	}
	if err := p.conn.Close(); err != nil {
		t.Fatal(err)
	}

	p = pose(t, a)
	first := p.next("what the node says first")
	for first["type"] == "directory" {
		first = p.next("what the node says first")
	}
	if first["type"] != "repeated" {
		t.Errorf("the node says first %v", first)
	}
	if s := bulk(t, a); s.Imports != 3 {
		t.Errorf("before the peer has said anything the node has %+v", s)
	}
	p.send(frame{"type": "export", "seq": 1, "region": exported(1, 8192)})
	p.receive("exported")
	p.send(frame{"type": "export", "seq": 2, "region": exported(2, 4096)})
	if m := p.receive("refuse"); m["seq"] != float64(2) {
		t.Errorf("another size: %v", m)
	}
	p.send(frame{"type": "export", "seq": 3, "region": exported(4, 4096)})
	p.receive("exported")
	p.send(frame{"type": "revoke", "region": exported(3, 8192)})
	if s := bulk(t, a); s.Imports != 4 {
		t.Errorf("before the peer has said that this was all the node has %+v", s)
	}
	p.send(frame{"type": "repeated"})
	p.send(frame{"type": "ping", "seq": 9})
	p.receive("pong")
	if s := bulk(t, a); s.Imports != 2 {
		t.Errorf("then the node has %+v", s)
	}
}

// A peer that does not answer when a region is made known to it keeps nobody else from
// knowing it.
func TestExportToMutePeer(t *testing.T) {
	a, b := daemontest.PairOfEach(t, "[[peer]]\nname=\"c\"\naddress=\"127.0.0.1:1\"\n", "")
	check(t, b.Halt())
	st, err := a.Status(t.Context())
	check(t, err)
	conn, err := net.Dial("tcp", st.Listen)
	check(t, err)
	defer conn.Close()
	mute, other := pose(t, a), poseAs(t, "c", conn)
	worker, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: attach.RoleClient, Name: "exporter"}, attach.Events{})
	check(t, err)
	defer worker.Release()
	defer worker.Close()
	r, err := worker.AllocRegion(t.Context(), 4096)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	silent := make(chan error, 1)
	go func() { silent <- r.Export(ctx, "b") }()
	mute.receive("export")
	done := make(chan error, 1)
	go func() { done <- r.Export(ctx, "c") }()
	check(t, conn.SetDeadline(time.Now().Add(15*time.Second)))
	m := other.receive("export")
	other.send(frame{"type": "exported", "seq": m["seq"]})
	check(t, <-done)
	cancel()
	if err := <-silent; err == nil {
		t.Error("the one who says nothing knows the region")
	}
}

// A region that is freed while its export waits for the link is not exported when the link comes: its
// memory is not mapped any more, or is another's.
func TestExportOfFreedRegion(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	s, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: attach.RoleClient, Name: "exporter"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	defer s.Close()
	r, err := s.AllocRegion(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the daemon goes on with what nobody waits for any more
		hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := r.Export(hasty, "b"); err == nil {
			t.Fatal("exported to a node that is not there")
		}
	}
	if err := r.Free(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the region is given back", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		for _, w := range st.Workers {
			if w.Name == "exporter" && w.Regions != 0 {
				return fmt.Errorf("%+v", w)
			}
		}
		return nil
	})
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	other, err := s.AllocRegion(t.Context(), 8192)
	if err != nil {
		t.Fatal(err)
	}
	exported := make(chan error, 1)
	go func() { exported <- other.Export(t.Context(), "b") }()
	for known := false; !known; { // what waited for the link longer comes first
		m := p.receive("export")
		region, ok := m["region"].(map[string]any)
		if known = ok && region["key"].(map[string]any)["len"] == float64(other.Len()); !known {
			t.Errorf("a region that is free is exported: %v", m)
		}
		p.send(frame{"type": "exported", "seq": m["seq"]})
	}
	if err := <-exported; err != nil {
		t.Error(err)
	}
}

// A peer that never gives a region back does not keep the memory of processes that are dead.
func TestDeadOwnersBesideMutePeer(t *testing.T) {
	a, b := daemontest.PairOfEach(t, "[limits]\nregion_count = 1\nregion_bytes = 1048576\n", "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	for range 3 {
		s, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: attach.RoleClient, Name: "short"}, attach.Events{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		r, err := s.AllocRegion(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		exported := make(chan error, 1)
		go func() { exported <- r.Export(t.Context(), "b") }()
		p.send(frame{"type": "exported", "seq": p.receive("export")["seq"]})
		if err := <-exported; err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p.receive("unexport")
	}
	core, err := a.Core()
	if err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the memory of the regions is given back", func() error {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", core))
		if err != nil {
			return err
		}
		if n := strings.Count(string(maps), "memfd:rdmad-region"); n > 0 {
			return fmt.Errorf("%d regions are mapped", n)
		}
		return nil
	})
	p.send(frame{"type": "ping", "seq": 9})
	p.receive("pong") // the session goes on
}

// A region that is free is refused at once, also while handlers of a peer still have it and its memory is not
// given back.
func TestExportWhileRegionIsGivenBack(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	worker, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: attach.RoleClient, Name: "exporter"}, attach.Events{})
	check(t, err)
	defer worker.Release()
	defer worker.Close()
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	r, err := worker.AllocRegion(t.Context(), 4096)
	check(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Export(t.Context(), "b") }()
	p.send(frame{"type": "exported", "seq": p.receive("export")["seq"]})
	check(t, <-done)
	id := r.ID()
	check(t, r.Free())
	held := p.receive("unexport") // not answered as long as a handler has it

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ask := &attach.Message{Type: attach.TypeExport, Node: "b", Region: attach.InfoOf(id)}
	if _, err := worker.Ask(ctx, ask); !errors.Is(err, attach.ErrInvalid) {
		t.Errorf("the export of a free region: %v", err)
	}
	p.send(frame{"type": "unexported", "seq": held["seq"]})
}

// A node that still makes a connection for operations, or its end of the peer's, when the peer says that the other end has gone waits for
// that no longer, and says so.
func TestConnectionThatPeerGivesUp(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	_, address, key := silence(t)
	p := pose(t, a)
	check(t, p.conn.SetDeadline(time.Now().Add(20*time.Second))) // less than a connection is waited for
	p.send(frame{"type": "export", "seq": 1, "region": frame{"domain": "default", "index": 1, "generation": 1, "key": key}})
	m := p.receive("open")
	if lane, ok := m["lane"].(map[string]any); !ok || lane["bulk"] != true {
		t.Fatalf("the node opens %v", m)
	}
	p.send(frame{"type": "accept", "seq": m["seq"], "lane": frame{"address": address}})
	p.send(frame{"type": "broken", "seq": m["seq"], "lane": frame{"domain": "default", "bulk": true, "incoming": true}, "reason": "no port"})
	if said := p.receive("broken"); said["seq"] != m["seq"] {
		t.Errorf("%v was opened, and the peer is told %v", m, said)
	}
	p.send(frame{"type": "open", "seq": 40, "lane": frame{"domain": "default", "bulk": true, "address": address}})
	p.receive("accept")
	p.send(frame{"type": "broken", "seq": 40, "lane": frame{"domain": "default", "bulk": true}, "reason": "no route"})
	if said := p.receive("broken"); said["seq"] != float64(40) {
		t.Errorf("the end of what was asked for with 40 is given up, and the peer is told %v", said)
	}
}

// Of the connections for operations that a peer asks for the newest is made, and none before it goes on; what was
// asked for before, or again, is refused.
func TestPeerAsksForConnections(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	p := pose(t, a)
	dev, err := tcp.New(tcp.Config{}).Open(fabric.Options{Listen: "127.0.0.1:0"})
	check(t, err)
	defer dev.Close()
	cq, err := dev.CreateCQ(16, nil)
	check(t, err)
	defer cq.Close()
	pd, err := dev.AllocPD()
	check(t, err)
	defer pd.Close()
	open := func(seq int) fabric.Endpoint {
		e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 4, RecvDepth: 1})
		check(t, err)
		p.send(frame{"type": "open", "seq": seq, "lane": frame{"domain": "default", "bulk": true, "address": e.Address()}})
		return e
	}
	accepted := func(e fabric.Endpoint, m frame) {
		t.Helper()
		address, err := base64.StdEncoding.DecodeString(m["lane"].(map[string]any)["address"].(string))
		check(t, err)
		check(t, e.Connect(t.Context(), address, fabric.Active))
		daemontest.Eventually(t, "it is up", func() error {
			if s := bulk(t, a); s.In != "up" {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	defer open(10).Close() // never connected: its other end waits, for longer than this test
	if m := p.receive("accept"); m["seq"] != float64(10) {
		t.Fatalf("the answer is %v", m)
	}
	newer := open(11)
	defer newer.Close()
	seen := map[string]float64{}
	var answer frame
	for seen["accept"] == 0 || seen["broken"] == 0 {
		m := p.next("broken and accept")
		seen[m["type"].(string)], _ = m["seq"].(float64)
		if m["type"] == "accept" {
			answer = m
		}
	}
	if seen["broken"] != 10 || seen["accept"] != 11 {
		t.Errorf("answers: %v", seen)
	}
	accepted(newer, answer)
	for _, seq := range []int{11, 10} {
		defer open(seq).Close()
		if m := p.receive("refuse"); m["seq"] != float64(seq) {
			t.Errorf("asked for again: %v", m)
		}
	}
	if s := bulk(t, a); s.In != "up" {
		t.Errorf("after what was refused: %+v", s)
	}
	last := open(12)
	defer last.Close()
	m := p.receive("accept")
	if s := bulk(t, a); s.In != "down" {
		t.Errorf("while the next one is made: %+v", s)
	}
	accepted(last, m)
}
