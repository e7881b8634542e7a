package daemon_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/shm"
)

// silence is a listener that takes connections and says nothing: where it is, as an endpoint of the tcp fabric gives its
// address, and a key that goes with it.
func silence(t *testing.T) (l net.Listener, address []byte, key fabric.RemoteKey) {
	t.Helper()
	dev, err := tcp.New(tcp.Config{}).Open(fabric.Options{})
	check(t, err)
	t.Cleanup(func() { check(t, dev.Close()) })
	cq, err := dev.CreateCQ(16, nil)
	check(t, err)
	t.Cleanup(func() { check(t, cq.Close()) })
	pd, err := dev.AllocPD()
	check(t, err)
	t.Cleanup(func() { check(t, pd.Close()) })
	mr, err := pd.Register(shm.AlignedBytes(128*8192), fabric.AccessRemoteWrite) // as large as a ring of the class small
	check(t, err)
	t.Cleanup(func() { check(t, mr.Close()) })
	ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 1, RecvDepth: 1})
	check(t, err)
	t.Cleanup(func() { check(t, ep.Close()) })
	l, err = net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	check(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(2*time.Minute)))
	address = append([]byte(nil), ep.Address()...)
	binary.LittleEndian.PutUint16(address[2:], uint16(l.Addr().(*net.TCPAddr).Port))
	return l, address, mr.Remote()
}

// A link that is lost while a lane is being opened is there again as soon as its peer is: nothing waits for the
// opening, which may take half a minute to fail.
func TestNextSessionDoesNotWait(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	l, address, key := silence(t)
	p := pose(t, a)
	giveUp := p.called(a)
	m := p.receive("open")
	p.send(frame{"type": "accept", "seq": m["seq"], "lane": frame{"address": address, "key": key, "mirror": 77}})
	conn, err := l.Accept()
	check(t, err)
	defer conn.Close()
	check(t, p.conn.Close())
	start := time.Now()
	next := pose(t, a)
	next.send(frame{"type": "ping", "seq": 6})
	next.receive("pong")
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the next session is served after %v", took)
	}
	giveUp()
}

// called has a client of a call a method that the impostor says it serves, until the function that it returns is called.
func (p *impostor) called(a *daemontest.Node) (giveUp func()) {
	p.t.Helper()
	p.send(frame{"type": "repeated"})
	p.send(frame{"type": "directory", "directory": []frame{{"domain": "default", "service": "text", "method": "upper", "id": 1, "answer": 10}}})
	p.send(frame{"type": "ping", "seq": 5})
	p.receive("pong")
	c := attachClient(p.t, a)
	ctx, cancel := context.WithCancel(p.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = c.Call(ctx, "b/text/upper", nil)
	}()
	return func() {
		cancel()
		<-over
	}
}

// However often a peer connects while lanes are being opened for it, and whatever it asks for, the core has no more to do than for
// one connection.
func TestSessionsDoNotPileUp(t *testing.T) {
	classes := ""
	for i := range 5 {
		classes += fmt.Sprintf("[[class]]\nname = \"c%d\"\nslot_size = %d\nslots = 64\nmax_run = 16\n", i, 64*(i+2))
	}
	a, b := daemontest.Pair(t, classes)
	check(t, b.Halt())
	_, address, key := silence(t)
	open := func(p *impostor, n int) {
		for i := range n {
			p.send(frame{"type": "open", "seq": i + 1, "lane": frame{
				"domain": "default", "class": fmt.Sprintf("c%d", i/8), "number": i % 8, "geometry": frame{"slot_size": 64 * (i/8 + 2), "slots": 64, "max_run": 16}, "address": address, "key": key,
			}})
		}
	}
	p := pose(t, a)
	open(p, 33) // the last keeps the reader waiting
	for range 32 {
		p.receive("accept")
	}
	st, err := a.Status(t.Context())
	check(t, err)
	const sessions = 300
	for i := range sessions {
		conn, err := net.Dial("tcp", st.Listen)
		check(t, err)
		defer conn.Close()
		if q := poseOver(t, conn); i%10 == 0 {
			open(q, 1)
		}
	}
	daemontest.Eventually(t, "what sessions have begun has ended", func() error {
		now, err := a.Status(t.Context())
		if n := coreFiles(t, a)["socket:["]; err == nil && (now.Goroutines > st.Goroutines+sessions/4 || n > sessions/4) {
			err = fmt.Errorf("%d goroutines, %d before; %d sockets", now.Goroutines, st.Goroutines, n)
		}
		return err
	})
}

// Tools of a user are bounded in number, and there is room again when one ends.
func TestToolsAreBounded(t *testing.T) {
	const most = 64
	a, _ := daemontest.Pair(t, "")
	hello, err := helloMessage(attach.RoleTool)
	check(t, err)
	var tools []*net.UnixConn
	attachTool := func() string {
		conn, err := dialRaw(a.Socket)
		check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		tools = append(tools, conn)
		check(t, shm.SendFDs(conn, hello))
		buf := make([]byte, 4096)
		n, _, err := shm.RecvFDs(conn, buf)
		check(t, err)
		return string(buf[:n])
	}
	for i := range most {
		if answer := attachTool(); !strings.Contains(answer, "welcome") {
			t.Fatalf("tool %d: %s", i, answer)
		}
	}
	if answer := attachTool(); !strings.Contains(answer, "64 tools") {
		t.Errorf("one more: %s", answer)
	}
	check(t, tools[0].Close())
	daemontest.Eventually(t, "there is room for a tool", func() error {
		if answer := attachTool(); !strings.Contains(answer, "welcome") {
			return fmt.Errorf("%s", answer)
		}
		return nil
	})
}

// A worker that says again and again what it has, and does not read what it is told, is
// refused like one that asks too much.
func TestHaveIsBounded(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	hello, err := helloMessage(attach.RoleService)
	check(t, err)
	conn, err := dialRaw(a.Socket)
	check(t, err)
	defer conn.Close()
	check(t, shm.SendFDs(conn, hello))
	receive := func(want string) {
		t.Helper()
		for said := ""; !strings.Contains(said, want); {
			buf := make([]byte, 4096)
			n, fds, err := shm.RecvFDs(conn, buf)
			shm.CloseFDs(fds)
			check(t, err)
			said = string(buf[:n]) // a core that dies soon may be followed by one that welcomes again
		}
	}
	receive("welcome")
	check(t, a.KillCore())
	receive("resumed")
	// None of these lanes is there, as the node says of each.
	have, err := json.Marshal(&attach.Message{Type: attach.TypeHave, Have: &attach.Have{Lanes: make([]uint16, 400)}})
	check(t, err)
	for n := 0; ; n++ {
		if err := shm.SendFDs(conn, have); err != nil {
			break // it is disconnected
		}
		if n == 50*attach.MaxAsks {
			t.Fatalf("%d messages were taken", n)
		}
	}
	st, err := a.Status(t.Context())
	check(t, err)
	if st.Goroutines > 2*attach.MaxAsks+100 {
		t.Errorf("the core has %d goroutines", st.Goroutines)
	}
}

// What a worker says that it has frees the regions of the last core that it does not name, but none that this core has made: another
// thread of the worker may have asked for it while the worker put together what it has.
func TestRegionMadeBeforeHaveIsRead(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	sock, err := dialRaw(a.Socket)
	check(t, err)
	conn := attach.NewConn(sock)
	defer conn.Close()
	receive := func(want attach.Type) *attach.Message {
		t.Helper()
		for {
			m, fds, err := conn.Recv()
			shm.CloseFDs(fds)
			check(t, err)
			if m.Type == want || m.Type == attach.TypeFail && want == attach.TypeExported {
				return m
			}
		}
	}
	seq := uint64(0)
	alloc := func() *attach.RegionInfo {
		t.Helper()
		seq++
		check(t, conn.Send(&attach.Message{Type: attach.TypeAlloc, Seq: seq, Region: &attach.RegionInfo{Size: 4096}}))
		return receive(attach.TypeRegion).Region
	}
	usable := func(r *attach.RegionInfo) bool {
		t.Helper()
		seq++
		check(t, conn.Send(&attach.Message{Type: attach.TypeExport, Seq: seq, Region: r, Node: "a"}))
		return receive(attach.TypeExported).Type == attach.TypeExported
	}
	check(t, conn.Send(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient}}))
	receive(attach.TypeWelcome)
	old := alloc()
	check(t, a.KillCore())
	receive(attach.TypeResumed)
	made := alloc()
	check(t, conn.Send(&attach.Message{Type: attach.TypeHave, Have: &attach.Have{AllRegions: true}}))
	if !usable(made) {
		t.Error("a region was freed that its owner has just been given")
	}
	if usable(old) {
		t.Error("a region of the last core was not freed that its owner does not have")
	}
}
