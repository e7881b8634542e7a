package daemon_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/shm"
)

// impostor is a scripted peer on the bootstrap socket of a node. It offers fabrics, tcp if there are none.
type impostor struct {
	t       *testing.T
	conn    net.Conn
	fabrics []string
}

// frame is a message as it travels; see docs/protocol.md.
type frame map[string]any

func (p *impostor) send(m frame) {
	p.t.Helper()
	data, err := json.Marshal(m)
	if err == nil {
		_, err = p.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// hello says who the impostor claims to be.
func (p *impostor) hello(name string) {
	p.t.Helper()
	if p.fabrics == nil {
		p.fabrics = []string{tcp.Name}
	}
	p.send(frame{"type": "hello", "hello": frame{
		"magic": "rdmad-peer", "protocol": 4, "abi": shm.ABIVersion, "node": name, "incarnation": "impostor", "fabrics": p.fabrics, "now": shm.Nanotime(),
	}})
}

// next returns the next message, which is wanted for what.
func (p *impostor) next(what string) frame {
	p.t.Helper()
	data, err := p.read()
	if err != nil {
		p.t.Fatalf("waiting for %q: %v", what, err)
	}
	var m frame
	if err := json.Unmarshal(data, &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

// read returns the bytes of the next message.
func (p *impostor) read() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(p.conn, size[:]); err != nil {
		return nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(p.conn, data)
	return data, err
}

// receive returns the next message of the given type.
func (p *impostor) receive(kind string) frame {
	p.t.Helper()
	for {
		if m := p.next(kind); m["type"] == kind {
			return m
		}
	}
}

// pose takes the place of node "b", which must be down, towards node a.
func pose(t *testing.T, a *daemontest.Node, fabrics ...string) *impostor {
	t.Helper()
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", st.Listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return poseAs(t, "b", conn, fabrics...)
}

// poseOver is pose over a connection to a's listener.
func poseOver(t *testing.T, conn net.Conn) *impostor {
	t.Helper()
	return poseAs(t, "b", conn)
}

// poseAs is poseOver for a node of that name.
func poseAs(t *testing.T, name string, conn net.Conn, fabrics ...string) *impostor {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	p := &impostor{t, conn, fabrics}
	p.hello(name)
	p.receive("hello")
	p.send(frame{"type": "ready"})
	return p
}

// laneState is the state of the lane that requests of b come in by at a.
func laneState(t *testing.T, a *daemontest.Node) string {
	t.Helper()
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range st.Lanes {
		if l.Peer == "b" && l.Class == "small" && l.Direction == "in" {
			return l.State
		}
	}
	return "none"
}

// A peer that says that its end of a lane is gone ends that connection of the
// lane, also on a fabric that would not notice, and no other one.
func TestPeerTellsOfABrokenLane(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	const seq = 7
	lane := frame{"domain": "default", "class": "small"}
	defer p.openLane(a, seq)()

	// Of another connection, or of the other direction: nothing happens. The
	// answered ping shows that they have been read.
	p.send(frame{"type": "broken", "seq": seq - 1, "lane": lane})
	p.send(frame{"type": "broken", "seq": seq, "lane": frame{"domain": "default", "class": "small", "incoming": true}})
	p.send(frame{"type": "broken", "seq": seq, "lane": frame{"domain": "none", "class": "small"}})
	p.send(frame{"type": "ping", "seq": 1})
	p.receive("pong")
	if s := laneState(t, a); s != "up" {
		t.Fatalf("the lane is %s", s)
	}
	p.send(frame{"type": "broken", "seq": seq, "lane": lane, "reason": "a test"})
	m := p.receive("broken")
	if got, ok := m["lane"].(map[string]any); !ok || m["seq"] != float64(seq) || got["incoming"] != true {
		t.Fatalf("the node says %v of its own end", m)
	}
	if s := laneState(t, a); s != "down" {
		t.Fatalf("the lane is %s", s)
	}
}

// openLane has the impostor open the lane of the small class to node a, and waits until it is up there. end closes the
// impostor's end.
func (p *impostor) openLane(a *daemontest.Node, seq int) (end func()) {
	p.t.Helper()
	cq, pd, mr := laneMemory(p.t)
	ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 1, RecvDepth: 1})
	check(p.t, err)
	p.send(frame{"type": "open", "seq": seq, "lane": frame{
		"domain": "default", "class": "small", "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64},
		"address": ep.Address(), "key": mr.Remote(),
	}})
	var accept struct{ Lane struct{ Address []byte } }
	data, err := json.Marshal(p.receive("accept"))
	check(p.t, err)
	check(p.t, json.Unmarshal(data, &accept))
	check(p.t, ep.Connect(p.t.Context(), accept.Lane.Address, fabric.Active))
	daemontest.Eventually(p.t, "the lane is up", func() error {
		if s := laneState(p.t, a); s != "up" {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	return func() { check(p.t, ep.Close()) }
}

// A peer that closes its ends of lanes, as one does that drains or whose domains get new memory, says nothing of the fabric: the link
// goes on over the one that it has.
func TestLanesThatPeerClosesLeaveTheFabric(t *testing.T) {
	t.Setenv(daemon.BrittleEnv, filepath.Join(t.TempDir(), "broken"))
	a, b := daemontest.Pair(t, "[fabric]\nlisten = \"127.0.0.1:0\"\nprovider = \"auto\"\n")
	check(t, b.Halt())
	p := pose(t, a, "verbs", tcp.Name)
	for seq := 1; seq <= 5; seq++ {
		defer p.openLane(a, seq)()
		p.send(frame{"type": "broken", "seq": seq, "lane": frame{"domain": "default", "class": "small"}, "reason": "drained"})
		p.receive("broken")
	}
	st, err := a.Status(t.Context())
	check(t, err)
	if got := st.Peers[0].Fabric; got != "verbs" {
		t.Errorf("the link uses %q", got)
	}
}

// laneMemory registers memory for an end of a lane of the small class, which is closed after the test. What is made for the
// queue is to be closed before.
func laneMemory(t *testing.T) (fabric.CQ, fabric.ProtectionDomain, fabric.MemoryRegion) {
	t.Helper()
	dev, err := tcp.New(tcp.Config{}).Open(fabric.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, dev.Close()) })
	cq, err := dev.CreateCQ(16, nil)
	check(t, err)
	t.Cleanup(func() { check(t, cq.Close()) })
	pd, err := dev.AllocPD()
	check(t, err)
	mr, err := pd.Register(shm.AlignedBytes(128*8192), fabric.AccessRemoteWrite)
	check(t, err)
	return cq, pd, mr
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A peer that says the same thing over and over is answered all the same.
func TestPeerRepeatsItself(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	p := pose(t, a)
	for range 1000 {
		p.send(frame{"type": "drain"})
		p.send(frame{"type": "broken", "seq": 1, "lane": frame{"domain": "default", "class": "small"}})
	}
	p.send(frame{"type": "ping", "seq": 5})
	for drained, ponged := false, false; !drained || !ponged; {
		m := p.next("drained and pong")
		drained, ponged = drained || m["type"] == "drained", ponged || m["type"] == "pong"
	}
}
