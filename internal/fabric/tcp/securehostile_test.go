package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/shm"
)

// atOnce says of a refusal that it was not the end of the time for a hello.
func atOnce(err error) bool {
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded)
}

// joinEndpoints connects a, the passive one, with b.
func joinEndpoints(t *testing.T, a, b *Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- a.Connect(ctx, b.Address(), fabric.Passive) }()
	must(t, b.Connect(ctx, a.Address(), fabric.Active))
	must(t, <-passive)
}

// Whoever dials an endpoint with TLS and is not the node that it was made for is
// refused at once, with a reason, and spends nothing: the node itself can connect
// afterwards, and a connection that is up notices nothing.
func TestSecuredDiallers(t *testing.T) {
	g := guardOf(t, "a")
	d := openDeviceWith(t, Config{Security: g})
	other := openDeviceWith(t, Config{Security: guardOf(t, "b")})
	busy := newPairWith(t, Config{Security: guardOf(t, "test")})
	wrs, recv, c := busy.batch(1, 64), make([]fabric.RecvWR, 1), make([]fabric.Completion, 8)
	e, peer := d.endpointTo(t, "b"), other.endpointTo(t, "a")
	hello := greeting{to: e.addr.token, from: peer.addr.token}.encode(helloMagic)

	foreign, err := nodecert.NewAuthority("foreign", time.Hour)
	must(t, err)
	client := func(g *guard) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &g.pair, nil }}
	}
	old := client(guardOf(t, "b"))
	old.MaxVersion = tls.VersionTLS12
	for name, x := range map[string]struct {
		conf *tls.Config // nil: no TLS
		is   func(error) bool
	}{
		"no TLS":          {nil, func(err error) bool { var p tls.RecordHeaderError; return errors.As(err, &p) }},
		"other node":      {client(guardOf(t, "c")), func(err error) bool { return errors.Is(err, errWrongNode) }},
		"wrong authority": {client(newGuard(t, foreign, "b")), func(err error) bool { var p *tls.CertificateVerificationError; return errors.As(err, &p) }},
		"no certificate":  {&tls.Config{InsecureSkipVerify: true}, atOnce},
		"TLS 1.2":         {old, atOnce},
	} {
		before := len(g.refusals())
		conn, err := net.Dial("tcp", d.Addr().String())
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(patience)))
		stream := conn
		if x.conf != nil {
			stream = tls.Client(conn, x.conf)
		}
		_, _ = stream.Write(hello) // an alert may be there already
		var b [1]byte
		if _, err := stream.Read(b[:]); err == nil {
			t.Errorf("%s: an answer", name)
		}
		must(t, conn.Close())
		for deadline := time.Now().Add(patience); len(g.refusals()) == before; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not reported", name)
			}
			time.Sleep(time.Millisecond)
		}
		if err := g.refusals()[before]; !x.is(err) {
			t.Errorf("%s: refused because of %v", name, err)
		}
		busy.round(t, wrs, recv, c)
	}
	joinEndpoints(t, e, peer)
	if n := d.rejected.Load(); n != 5 {
		t.Errorf("%d rejected", n)
	}
}

// The side that dials believes nobody but the node that the endpoint was made for.
func TestSecuredListeners(t *testing.T) {
	d := openDeviceWith(t, Config{Security: guardOf(t, "a")})
	foreign, err := nodecert.NewAuthority("foreign", time.Hour)
	must(t, err)
	for name, x := range map[string]struct {
		serve func(net.Conn)
		is    func(error) bool
	}{
		"no TLS": {func(c net.Conn) { _, _ = c.Write(greeting{}.encode(welcomeMagic)) },
			func(err error) bool { var p tls.RecordHeaderError; return errors.As(err, &p) }},
		"other node":      {handshakes(guardOf(t, "c")), func(err error) bool { return errors.Is(err, errWrongNode) }},
		"wrong authority": {handshakes(newGuard(t, foreign, "b")), func(err error) bool { var p *nodecert.Problem; return errors.As(err, &p) }},
		"closes":          {func(net.Conn) {}, atOnce},
		"says nothing":    {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		over := make(chan struct{})
		go func() {
			defer close(over)
			if c, err := ln.Accept(); err == nil {
				x.serve(c)
				_ = c.Close()
			}
		}()
		e := d.endpointTo(t, "b")
		to := address{host: "127.0.0.1", port: uint16(ln.Addr().(*net.TCPAddr).Port), token: newToken(), tls: true}
		limit := patience
		if name == "says nothing" {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		var ce *fabric.ConnectError
		if err := e.Connect(ctx, to.encode(), fabric.Active); !errors.As(err, &ce) || !x.is(err) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		must(t, ln.Close())
		<-over
	}
}

func handshakes(g *guard) func(net.Conn) {
	return func(c net.Conn) { _ = tls.Server(c, g.Server()).Handshake() }
}

// An end with TLS and one without say so before anything is sent, both of them.
func TestUnlikeEnds(t *testing.T) {
	plain, secured := openDevice(t), openDeviceWith(t, Config{Security: guardOf(t, "test")})
	for _, role := range []fabric.Role{fabric.Active, fabric.Passive} {
		for _, d := range [][2]*Device{{plain, secured}, {secured, plain}} {
			e, peer := d[0].endpoint(t), d[1].endpoint(t)
			var ce *fabric.ConnectError
			if err := e.Connect(context.Background(), peer.Address(), role); !errors.As(err, &ce) || !errors.Is(err, ErrSecurity) {
				t.Errorf("%v", err)
			}
		}
	}
	// Without an introduction it is a bad hello.
	c := plain.dial(t, nil)
	if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("a device without TLS speaks it")
	}
	if n := plain.rejected.Load(); n != 1 {
		t.Errorf("%d rejected", n)
	}
}

// Connections that do TLS slowly or not at all are few at a time, end in time, and
// keep nobody out.
func TestSlowHandshakes(t *testing.T) {
	g := guardOf(t, "test")
	d := openDeviceWith(t, Config{Security: g})
	var slow []net.Conn
	for range maxPending + 8 {
		slow = append(slow, d.dial(t, []byte{22, 3, 1, 1, 0}))
	}
	for _, c := range slow[:8] {
		dropped(t, c) // pushed out by the last ones
	}
	joinEndpoints(t, d.endpoint(t), d.endpoint(t))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := slow[len(slow)-1]
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, last)
	}()
	for deadline := time.Now().Add(patience); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
			_, _ = last.Write([]byte{0}) // it goes on, a byte at a time
		}
		if time.Now().After(deadline) {
			t.Fatal("a slow handshake does not end")
		}
	}
}

// A handshake of more bytes than any has is ended by their number.
func TestHugeHandshake(t *testing.T) {
	g := guardOf(t, "test")
	d := openDeviceWith(t, Config{Security: g})
	// One message of 64 KiB less one byte in records of 16 KiB; their headers make it too
	// many.
	b := []byte{1, 0, 0xff, 0xfb}
	var wire []byte
	for b = append(b, make([]byte, 0xfffb)...); len(b) > 0; {
		n := min(len(b), recordSize)
		wire = append(append(wire, 22, 3, 1, byte(n>>8), byte(n)), b[:n]...)
		b = b[n:]
	}
	dropped(t, d.dial(t, wire))
	for deadline := time.Now().Add(patience); len(g.refusals()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not reported")
		}
	}
	if err := g.refusals()[0]; !errors.Is(err, errHandshakeSize) {
		t.Error(err)
	}
}

// Bytes that the peer has not encrypted end the connection, and change nothing.
func TestForgedRecord(t *testing.T) {
	p := newPairWith(t, Config{Security: guardOf(t, "test")})
	record := append([]byte{23, 3, 3, 0, 80}, make([]byte, 80)...)
	if n, err := shm.WriteFD(p.ep[0].fd, record); n != len(record) || err != nil {
		t.Fatal(n, err)
	}
	got := p.sleepUntilGone(t, 1)
	if len(got) != 1 || got[0].Status != fabric.StatusFatal || got[0].Vendor != VendorTLS {
		t.Errorf("%+v", got)
	}
}

// A key of one connection opens nothing on the next one, also with the same peer: each
// has its own protection domain, and its regions new keys.
func TestStaleKey(t *testing.T) {
	for name, cfg := range map[string]Config{"plain": {}, "TLS": {Security: guardOf(t, "test")}} {
		old := newPairWith(t, cfg)
		now := newPairWith(t, cfg)
		if old.mem[1].Remote().Key == now.mem[1].Remote().Key || old.mem[1].Remote().Addr == now.mem[1].Remote().Addr {
			t.Errorf("%s: the key of a new connection is that of the old one", name)
		}
		wrs := now.batch(1, 64)
		wrs[0].RemoteAddr, wrs[0].RemoteKey = old.mem[1].Remote().Addr, old.mem[1].Remote().Key
		if n, err := now.ep[0].PostSend(wrs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if got := now.sleepUntilGone(t, 1); got[0].Vendor != VendorRefusedPeer {
			t.Errorf("%s: %+v", name, got)
		}
		got := now.sleepUntilGone(t, 0)
		if got[len(got)-1].Status != fabric.StatusRemoteAccess {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The peer may refuse any request of a batch that is half written.
func TestRefusalOfHalfABatch(t *testing.T) {
	p := newPairWith(t, Config{Security: guardOf(t, "test")})
	e := p.ep[0]
	e.stuck = true // the socket takes nothing
	if _, err := e.PostSend(p.batch(3, 64)); err != nil {
		t.Fatal(err)
	}
	if !e.gather() || !e.seal() {
		t.Fatal("nothing to send")
	}
	e.refused(&frame{op: wireNak, status: fabric.StatusRemoteAccess, seq: e.sq.next + 1})
	var c [8]fabric.Completion
	n, err := p.cq[0].Poll(c[:])
	must(t, err)
	want := []fabric.Status{fabric.StatusFlushed, fabric.StatusRemoteAccess, fabric.StatusFlushed, fabric.StatusRemoteAccess}
	if n != len(want) {
		t.Fatalf("completions %+v", c[:n])
	}
	for i, s := range want {
		if c[i].Status != s {
			t.Errorf("completion %d is %+v, want %v", i, c[i], s)
		}
	}
}

// What crypto/tls itself wants to say has a bound, whatever the peer has it answer.
func TestOutgoingIsBounded(t *testing.T) {
	s := &secured{}
	s.moveTo(-1, minReceiveBuffer)
	for range 10 * outgoingSize {
		if _, err := s.Write(make([]byte, 50)); err != nil {
			if len(s.out) > outgoingSize || cap(s.out) != outgoingSize || !errors.Is(err, errOutgoing) {
				t.Errorf("%d bytes of %d: %v", len(s.out), cap(s.out), err)
			}
			return
		}
	}
	t.Error("no bound")
}

// A host that makes one connection in vain after the other soon has them closed before
// any work is done for them; another host is let in meanwhile.
func TestTooOften(t *testing.T) {
	g := guardOf(t, "test")
	d := openDeviceWith(t, Config{Security: g})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	often := func() int {
		n := 0
		for _, err := range g.refusals() {
			if errors.Is(err, ErrTooOften) {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(patience); often() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no bound")
		}
		c, err := from.Dial("tcp", d.Addr().String())
		must(t, err)
		must(t, c.Close())
	}
	joinEndpoints(t, d.endpoint(t), d.endpoint(t))
}
