package tcp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/shm"
)

// guard is the Security of a node of a test. Endpoints that name no peer are joined
// with the node "test".
type guard struct {
	pair  tls.Certificate
	roots *x509.CertPool

	mu      sync.Mutex
	refused []error
}

// testAuthority is the authority of all nodes of this package's tests.
var testAuthority = sync.OnceValues(func() (*nodecert.Authority, error) { return nodecert.NewAuthority("test", time.Hour) })

func newGuard(t testing.TB, a *nodecert.Authority, node string) *guard {
	t.Helper()
	own, _, err := a.PEM()
	must(t, err)
	cert, key, err := a.Issue(nodecert.Request{Node: node, Until: time.Now().Add(time.Hour)})
	must(t, err)
	g := &guard{roots: x509.NewCertPool()}
	g.roots.AppendCertsFromPEM(own)
	g.pair, err = tls.X509KeyPair(cert, key)
	must(t, err)
	return g
}

// guardOf is a guard of the node with a certificate that all others believe.
func guardOf(t testing.TB, node string) *guard {
	t.Helper()
	a, err := testAuthority()
	must(t, err)
	return newGuard(t, a, node)
}

func (g *guard) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{g.pair}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: g.roots}
}

func (g *guard) Client(node string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{g.pair}, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := nodecert.Verify(s.PeerCertificates, g.roots, x509.ExtKeyUsageServerAuth, time.Now()); err != nil {
				return err
			}
			return g.Check(node, s)
		}}
}

var errWrongNode = errors.New("another node")

func (g *guard) Check(node string, s tls.ConnectionState) error {
	if node == "" {
		node = "test"
	}
	name, err := nodecert.NameOf(s.PeerCertificates[0])
	if err == nil && name != node {
		err = fmt.Errorf("%w: %s, not %s", errWrongNode, name, node)
	}
	return err
}

func (g *guard) Refused(_ net.Addr, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused, err)
}

func (g *guard) refusals() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]error(nil), g.refused...)
}

// With TLS a device is the same to its users.
func TestConformanceTLS(t *testing.T) {
	g := guardOf(t, "test")
	fabrictest.RunConformance(t, func() fabric.Provider { return New(Config{Security: g}) })
}

// Small buffers take every path on which a record does not fit.
func TestConformanceTLSSmallBuffers(t *testing.T) {
	g := guardOf(t, "test")
	fabrictest.RunConformance(t, func() fabric.Provider {
		return New(Config{ReceiveBuffer: 4096, SocketBuffer: 64 << 10, Security: g})
	})
}

// relay passes connections on to a device and keeps what it has passed.
type relay struct {
	ln   net.Listener
	mu   sync.Mutex
	seen []byte
	wg   sync.WaitGroup
}

func newRelay(t *testing.T, to net.Addr) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{ln: ln}
	r.wg.Go(func() {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to.String())
		if err != nil {
			_ = in.Close()
			return
		}
		r.wg.Go(func() { r.pass(in, out) })
		r.wg.Go(func() { r.pass(out, in) })
	})
	return r
}

func (r *relay) pass(from, to net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		r.seen = append(r.seen, b[:n]...)
		r.mu.Unlock()
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// Who hears a connection with TLS hears nothing of its data, its tokens and its keys.
func TestNothingToHear(t *testing.T) {
	for name, cfg := range map[string]Config{"plain": {}, "TLS": {Security: guardOf(t, "test")}} {
		d := openDeviceWith(t, cfg)
		q, err := d.CreateCQ(64, nil)
		must(t, err)
		pd, err := d.AllocPD()
		must(t, err)
		mr, err := pd.Register(shm.AlignedBytes(1<<16), fabric.AccessRemoteWrite)
		must(t, err)
		var e [2]*Endpoint
		for i := range e {
			ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 4, RecvDepth: 4})
			must(t, err)
			e[i] = ep.(*Endpoint)
		}
		r := newRelay(t, d.Addr())
		// The active end is told that the passive one is where the relay is.
		to := e[0].addr
		to.port = uint16(r.ln.Addr().(*net.TCPAddr).Port)
		passive := make(chan error, 1)
		go func() { passive <- e[0].Connect(t.Context(), e[1].Address(), fabric.Passive) }()
		must(t, e[1].Connect(t.Context(), to.encode(), fabric.Active))
		must(t, <-passive)
		must(t, errors.Join(e[0].Activate(), e[1].Activate()))
		secret := []byte("nobody else is to hear this")
		copy(mr.Bytes(), secret)
		key := mr.Remote()
		_, err = e[0].PostRecv(make([]fabric.RecvWR, 1))
		must(t, err)
		_, err = e[1].PostSend([]fabric.SendWR{{Op: fabric.OpWriteImm, Local: fabric.Local{Region: mr, Len: uint32(len(secret))}, RemoteAddr: key.Addr + 4096, RemoteKey: key.Key}})
		must(t, err)
		var c [4]fabric.Completion
		for deadline := time.Now().Add(patience); c[0].Op != fabric.OpRecvImm; {
			if _, err := q.Poll(c[:1]); err != nil || time.Now().After(deadline) {
				t.Fatal("no arrival", err)
			}
		}
		must(t, errors.Join(e[0].Close(), e[1].Close(), q.Close(), r.ln.Close()))
		r.wg.Wait()
		for what, b := range map[string][]byte{"the data": secret, "a token": e[0].addr.token[:], "a key": binary.LittleEndian.AppendUint64(nil, key.Key)} {
			if heard := bytes.Contains(r.seen, b); heard != (name == "plain") {
				t.Errorf("%s: %s is heard: %v", name, what, heard)
			}
		}
	}
}

// hasty is a connection on which everything is there at once.
type hasty struct {
	net.Conn
	b []byte
}

func (h *hasty) Read(b []byte) (int, error) {
	n := copy(b, h.b)
	h.b = h.b[n:]
	return n, nil
}

// crypto/tls never gets bytes of a record before it has had the last one's, in the
// handshake as after it: what it had in advance nobody would come back for.
func TestRecordByRecord(t *testing.T) {
	sizes := []int{300, 1, 0, recordSize + recordExtra, 7, 7, 2000}
	var stream []byte
	for i, n := range sizes {
		stream = append(stream, 23, 3, 3, byte(n>>8), byte(n))
		stream = append(stream, bytes.Repeat([]byte{byte(i)}, n)...)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	defer func() { must(t, errors.Join(unix.Close(fds[0]), unix.Close(fds[1]))) }()
	n, err := shm.WriteFD(fds[1], stream)
	must(t, err)
	if n != len(stream) {
		t.Fatal("the socket is too small")
	}
	h := &hasty{b: stream}
	s := &secured{Conn: h, left: maxHandshake, fd: -1}
	for _, phase := range []string{"handshake", "data"} {
		if phase == "data" {
			s.moveTo(fds[0], minReceiveBuffer)
		}
		var got []byte
		end := 0
		for i, size := range sizes {
			end += recordHeader + size
			for len(got) < end {
				b := make([]byte, 1+(7*i+len(got))%4000)
				s.calls = 1
				n, err := s.Read(b)
				must(t, err)
				if got = append(got, b[:n]...); n == 0 || len(got) > end {
					t.Fatalf("%s: record %d: %d bytes, it ends after %d", phase, i, len(got), end)
				}
			}
		}
		if !bytes.Equal(got, stream) {
			t.Errorf("%s: other bytes", phase)
		}
	}
}

// Data that comes right behind the welcome is not left lying, however it is cut: the
// passive end sends before the active one has looked.
func TestDataBehindTheWelcome(t *testing.T) {
	g := guardOf(t, "test")
	d := openDeviceWith(t, Config{Security: g})
	for round := range 20 {
		q, err := d.CreateCQ(64, nil)
		must(t, err)
		pd, err := d.AllocPD()
		must(t, err)
		mr, err := pd.Register(shm.AlignedBytes(1<<17), fabric.AccessRemoteWrite)
		must(t, err)
		var e [2]fabric.Endpoint
		for i := range e {
			e[i], err = pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, Tag: uint64(i), SendDepth: 8, RecvDepth: 8})
			must(t, err)
		}
		_, err = e[1].PostRecv(make([]fabric.RecvWR, 3))
		must(t, err)
		key := mr.Remote()
		wr := fabric.SendWR{Op: fabric.OpWriteImm, Local: fabric.Local{Region: mr, Len: uint32(1 + round*997)}, RemoteAddr: key.Addr + 1<<16, RemoteKey: key.Key}
		_, err = e[0].PostSend([]fabric.SendWR{wr, wr, wr})
		must(t, err)
		passive := make(chan error, 1)
		go func() {
			err := e[0].Connect(t.Context(), e[1].Address(), fabric.Passive)
			passive <- errors.Join(err, e[0].Activate())
		}()
		must(t, e[1].Connect(t.Context(), e[0].Address(), fabric.Active))
		must(t, <-passive)
		must(t, e[1].Activate())
		arrived := 0
		var c [8]fabric.Completion
		for deadline := time.Now().Add(patience); arrived < 3; {
			n, err := q.Poll(c[:])
			if err != nil || time.Now().After(deadline) {
				t.Fatal("no arrival", err)
			}
			for _, x := range c[:n] {
				if x.Op == fabric.OpRecvImm && x.Status == fabric.StatusSuccess {
					arrived++
				}
			}
		}
		must(t, errors.Join(e[0].Close(), e[1].Close(), q.Close()))
	}
}
