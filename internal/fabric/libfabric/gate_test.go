//go:build libfabric && cgo && linux

package libfabric

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// askHex is how rxm over tcp of libfabric 1.17 asks for a connection, answerHex how the answer begins.
const (
	askHex    = "03000018000000000000000000000000000000000000000001000000000000000102040363b002000010000000010000000000003b310000"
	answerHex = "0301"
)

// place returns where an endpoint listens.
func place(t *testing.T, name []byte) unix.Sockaddr {
	t.Helper()
	if len(name) == unix.SizeofSockaddrInet4 {
		return &unix.SockaddrInet4{Port: int(name[2])<<8 | int(name[3]), Addr: [4]byte(name[4:8])}
	}
	if len(name) != unix.SizeofSockaddrInet6 {
		t.Fatalf("a name of %d bytes", len(name))
	}
	return &unix.SockaddrInet6{Port: int(name[2])<<8 | int(name[3]), Addr: [16]byte(name[8:24])}
}

// knock asks for a connection with the endpoint of that name, as a stranger at an address, and reports whether there is an
// answer within the time. turn has the other side work.
func knock(t *testing.T, from unix.Sockaddr, name []byte, within time.Duration, turn func()) bool {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	family := unix.AF_INET
	if _, six := from.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(err)
	defer func() { _ = unix.Close(fd) }()
	must(unix.Bind(fd, from))
	if err := unix.Connect(fd, place(t, name)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	ask, err := hex.DecodeString(askHex)
	must(err)
	var answer [64]byte
	for until := time.Now().Add(within); time.Now().Before(until); {
		turn()
		if len(ask) > 0 {
			if n, err := unix.Write(fd, ask); err == nil {
				ask = ask[n:]
			}
			continue
		}
		if n, err := unix.Read(fd, answer[:]); err == nil && n > 0 {
			if got := hex.EncodeToString(answer[:n]); len(got) < len(answerHex) || got[:len(answerHex)] != answerHex {
				t.Fatalf("the answer is %s", got)
			}
			return true
		}
	}
	return false
}

// ends are two ends of devices at addresses of their own, with control endpoints.
func ends(t *testing.T, at ...string) (e [2]*Endpoint) {
	t.Helper()
	for i := range e {
		d, err := newProvider(t, Config{Provider: rxmProvider, Source: at[i]}).Open(fabric.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e[i] = endOf(t, d).(*Endpoint)
	}
	return e
}

// meet connects two ends, and activates them.
func meet(t *testing.T, e [2]*Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- e[0].Connect(ctx, e[1].Address(), fabric.Passive) }()
	if err := errors.Join(e[1].Connect(ctx, e[0].Address(), fabric.Active), <-passive); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e[0].Activate(), e[1].Activate()); err != nil {
		t.Fatal(err)
	}
}

// look polls the queues of ends, which must have nothing to say.
func look(t *testing.T, e [2]*Endpoint) func() {
	var c [16]fabric.Completion
	return func() {
		t.Helper()
		for i := range e {
			if n, err := e[i].cq.Poll(c[:]); n > 0 || err != nil {
				t.Fatalf("end %d: %+v, %v", i, c[:n], err)
			}
		}
	}
}

// Nobody is answered by an endpoint, or by its device, but those who are where the peer is.
func TestStrangersAreNotLetIn(t *testing.T) {
	const deaf = 500 * time.Millisecond
	e := ends(t, "127.0.0.1", "127.0.0.2")
	peer, stranger := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}}
	nothing := func() { e[0].mu.Lock(); defer e[0].mu.Unlock(); var w [1]cWC; _ = e[0].lib.poll(w[:]) }
	for what, from := range map[string]unix.Sockaddr{"the later peer": peer, "a stranger": stranger} {
		if knock(t, from, e[0].addr.name, deaf, nothing) {
			t.Errorf("before there is a peer the endpoint answers %s", what)
		}
		if knock(t, from, e[0].dev.ctlName, deaf, func() {}) {
			t.Errorf("before there is a peer the device answers %s", what)
		}
	}
	meet(t, e)
	turn := look(t, e)
	if knock(t, stranger, e[0].addr.name, deaf, turn) {
		t.Error("the endpoint answers a stranger")
	}
	if knock(t, stranger, e[0].dev.ctlName, deaf, turn) {
		t.Error("the device answers a stranger")
	}
	if knock(t, peer, e[0].addr.name, deaf, turn) {
		t.Error("the endpoint answers somebody else where its peer is, though it is connected")
	}
	if !knock(t, peer, e[0].dev.ctlName, 10*time.Second, turn) {
		t.Error("the device does not answer who is where its peer is: is this how this version of libfabric asks?")
	}
}

// The same over IPv6, with the one address that every machine has.
func TestStrangersAreNotLetInOverIPv6(t *testing.T) {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		t.Skip("needs a kernel with IPv6: ", err)
	}
	const deaf = 500 * time.Millisecond
	self := &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	e := ends(t, "::1", "::1")
	nothing := func() { e[0].mu.Lock(); defer e[0].mu.Unlock(); var w [1]cWC; _ = e[0].lib.poll(w[:]) }
	if knock(t, self, e[0].addr.name, deaf, nothing) {
		t.Error("before there is a peer the endpoint answers")
	}
	if knock(t, self, e[0].dev.ctlName, deaf, func() {}) {
		t.Error("before there is a peer the device answers")
	}
	meet(t, e)
	if !knock(t, self, e[0].dev.ctlName, 10*time.Second, look(t, e)) {
		t.Error("the device does not answer who is where its peer is")
	}
	other := newAddressOf(e[1].addr, func(name []byte) { name[23] = 2 })
	x := ends(t, "::1", "::1")
	if err := x[0].Expect(other.encode()); err != nil {
		t.Fatal(err)
	}
	nothing = func() { x[0].mu.Lock(); defer x[0].mu.Unlock(); var w [1]cWC; _ = x[0].lib.poll(w[:]) }
	if knock(t, self, x[0].addr.name, deaf, nothing) {
		t.Error("the endpoint answers, and its peer is elsewhere")
	}
}

// newAddressOf is an address with another name.
func newAddressOf(a address, change func(name []byte)) address {
	a.name = append([]byte(nil), a.name...)
	change(a.name)
	return a
}

// An active end that dials before the passive one knows of it is let in a little later.
func TestDialsTooEarly(t *testing.T) {
	e := ends(t, "127.0.0.1", "127.0.0.2")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	active := make(chan error, 1)
	go func() { active <- e[1].Connect(ctx, e[0].Address(), fabric.Active) }()
	// Its connection is made as far as it knows, and waits at the other end.
	for len(connectionsTo(t, e[0].addr.name)) == 0 {
		select {
		case err := <-active:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatal("nobody dials")
		case <-time.After(time.Millisecond):
		}
	}
	if err := errors.Join(e[0].Connect(ctx, e[1].Address(), fabric.Passive), <-active); err != nil {
		t.Fatal(err)
	}
}

// connectionsTo returns the descriptors of this process's connections to the endpoint of that name.
func connectionsTo(t *testing.T, name []byte) (fds []int) {
	t.Helper()
	want := *place(t, name).(*unix.SockaddrInet4)
	for _, fd := range descriptors(t) {
		if at, err := unix.Getpeername(fd); err == nil {
			if in, ok := at.(*unix.SockaddrInet4); ok && in.Port == want.Port && in.Addr == want.Addr {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

// descriptors returns those of this process.
func descriptors(t *testing.T) (fds []int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// So many nodes are let in as the system takes, and the last ones before others.
func TestManyPeersAreLetIn(t *testing.T) {
	const deaf = 500 * time.Millisecond
	e := ends(t, "127.0.0.1", "127.0.0.2")
	nth := func(n int) [4]byte { return [4]byte{127, 1, byte(n >> 8), byte(n)} }
	const nodes = 300
	for n := range nodes {
		name := append([]byte(nil), e[1].dev.ctlName...)
		addr := nth(n)
		copy(name[4:], addr[:])
		p, err := e[0].dev.controlOf(name)
		if err != nil {
			t.Fatal(n, err)
		}
		defer func() {
			e[0].dev.mu.Lock()
			defer e[0].dev.mu.Unlock()
			e[0].dev.release(p)
		}()
	}
	if !knock(t, &unix.SockaddrInet4{Addr: nth(nodes - 1)}, e[0].dev.ctlName, 10*time.Second, func() {}) {
		t.Error("the last one is not let in")
	}
	for _, n := range []int{0, nodes} {
		if knock(t, &unix.SockaddrInet4{Addr: nth(n)}, e[0].dev.ctlName, deaf, func() {}) {
			t.Errorf("number %d is let in", n)
		}
	}
}

// listenerOf returns the descriptor of this process's endpoint of that name.
func listenerOf(t *testing.T, name []byte) int {
	t.Helper()
	want := *place(t, name).(*unix.SockaddrInet4)
	for _, fd := range descriptors(t) {
		at, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if in, ok := at.(*unix.SockaddrInet4); ok && err == nil && listens == 1 && in.Port == want.Port && in.Addr == want.Addr {
			return fd
		}
	}
	t.Fatal("nobody listens")
	return -1
}

// crowd uses up what the system has for options of a socket, with keys for packets of addresses that there are none from. free gives
// so many of them back, and left says how many there are.
func crowd(t *testing.T, fd int) (free func(n int), left func() int) {
	t.Helper()
	keys := 0
	set := func(i int, length uint16) error {
		k := unix.TCPMD5Sig{Addr: unix.SockaddrStorage{Family: unix.AF_INET}, Keylen: length}
		for j, b := range [4]byte{127, 9, byte(i >> 8), byte(i)} {
			k.Addr.Data[2+j] = b // behind the port
		}
		return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &k)
	}
	for ; keys < 1<<16; keys++ {
		if err := set(keys, 1); errors.Is(err, unix.ENOMEM) {
			break
		} else if err != nil {
			t.Skip("needs a system with TCP_MD5SIG: ", err)
		}
	}
	free = func(n int) {
		t.Helper()
		for ; n > 0 && keys > 0; n-- {
			keys--
			if err := set(keys, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return free, func() int { return keys }
}

// A node for which the filter had no room is let in when it has, however often it was asked for; so is one that had to leave for
// another.
func TestCrowdedOutNodesAreLetIn(t *testing.T) {
	const deaf, nodes = 500 * time.Millisecond, 64
	e := ends(t, "127.0.0.1", "127.0.0.2")
	d := e[0].dev
	at := func(n int) *unix.SockaddrInet4 { return &unix.SockaddrInet4{Addr: [4]byte{127, 2, 0, byte(n)}} }
	letIn := func(n int) error {
		name, addr := bytes.Clone(e[1].dev.ctlName), at(n).Addr
		copy(name[4:], addr[:])
		d.mu.Lock()
		defer d.mu.Unlock()
		_, err := d.ctl.peer(name)
		return err
	}
	for n := range nodes {
		if err := letIn(n); err != nil {
			t.Fatal(n, err)
		}
	}
	free, left := crowd(t, listenerOf(t, d.ctlName))
	for range 2 {
		if err := letIn(nodes); err == nil {
			t.Fatal("there is room")
		}
	}
	if !knock(t, at(0), d.ctlName, 10*time.Second, func() {}) {
		t.Error("one has to leave, and none has come")
	}
	for letIn(nodes) != nil {
		if left() == 0 {
			t.Fatal("there is never room")
		}
		free(1)
	}
	if !knock(t, at(nodes), d.ctlName, 10*time.Second, func() {}) {
		t.Error("the last one is not let in")
	}
	if knock(t, at(0), d.ctlName, deaf, func() {}) {
		t.Error("the first one had not to leave")
	}
	free(left())
	for _, n := range []int{0, nodes} {
		if err := letIn(n); err != nil || !knock(t, at(n), d.ctlName, 10*time.Second, func() {}) {
			t.Errorf("number %d is not let in again: %v", n, err)
		}
	}
}

// Strangers who connect and say nothing take no descriptors of the process: whom the filter keeps out has no connection.
func TestSilentStrangersTakeNoDescriptors(t *testing.T) {
	const strangers = 64
	e := ends(t, "127.0.0.1", "127.0.0.2")
	meet(t, e)
	turn := look(t, e)
	before := entries(t, "/proc/self/fd")
	for i := range strangers {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 3}}); err != nil {
			t.Fatal(err)
		}
		name := e[0].addr.name
		if i%2 == 1 {
			name = e[0].dev.ctlName
		}
		if err := unix.Connect(fd, place(t, name)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
	// Who is let in at last is let in after them.
	peer := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}
	if !knock(t, peer, e[0].dev.ctlName, 10*time.Second, turn) {
		t.Fatal("the device does not answer who is where its peer is")
	}
	// The peer's may not be closed yet.
	if n := entries(t, "/proc/self/fd") - before - strangers; n > 1 {
		t.Errorf("%d descriptors are taken", n)
	}
}
