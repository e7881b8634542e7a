package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
)

// coreFiles returns what a core has open, by the kind of it, and how many of each.
func coreFiles(t *testing.T, n *daemontest.Node) map[string]int {
	t.Helper()
	pid, err := n.Core()
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]int)
	for _, e := range entries {
		if name, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // else it was closed in between
			files[strings.TrimRight(name, "0123456789]")]++ // socket:[12345]
		}
	}
	return files
}

// moreFiles is what is in now and was not before; nil if there are not more files now.
func moreFiles(before, now map[string]int) (more []string) {
	change := 0
	for kind, n := range now {
		if n > before[kind] {
			more = append(more, fmt.Sprintf("%d of %s instead of %d", n, kind, before[kind]))
		}
		change += n
	}
	for _, n := range before {
		change -= n
	}
	if change <= 0 {
		return nil
	}
	return more
}

func dialRaw(socket string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(2 * time.Minute))
}

func helloMessage(role attach.Role) ([]byte, error) {
	return json.Marshal(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: role, Name: "stranger\n\x1b[31m"}})
}

// runStranger is a process that says all the wrong things on a worker socket.
func runStranger(args []string) error {
	spare, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	client, err1 := helloMessage(attach.RoleClient)
	service, err2 := helloMessage(attach.RoleService)
	tool, err3 := helloMessage(attach.RoleTool)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 60 {
		s, err := dialRaw(args[0])
		if err != nil {
			return err
		}
		var messages [][]byte
		switch i % 7 {
		case 0:
			messages = [][]byte{[]byte("garbage")}
		case 1:
			messages = [][]byte{[]byte(`{"type":"resolve","target":{}}`)}
		case 2:
			messages = [][]byte{[]byte(`{"type":"hello","hello":{"protocol":99,"role":"client"}}`)}
		case 3: // attaches, and then garbage
			messages = [][]byte{client, []byte(`{"type":"mapped","lane":{"id":1}}`), []byte("x")}
		case 4: // attaches, registers and is gone at once
			messages = [][]byte{service, []byte(`{"type":"register","seq":1,"methods":[{"service":"s","method":"m"},{"service":"s","method":"n"}]}`)}
		case 6: // wants regions, some that are not its own or do not exist
			messages = [][]byte{client, []byte(`{"type":"alloc","seq":1,"region":{"size":100000}}`),
				[]byte(`{"type":"alloc","seq":2,"region":{"size":-1}}`), []byte(`{"type":"alloc","seq":3}`),
				[]byte(`{"type":"alloc","seq":4,"region":{"size":9223372036854775807}}`),
				[]byte(`{"type":"export","seq":5,"node":"b","region":{"index":1,"generation":1}}`),
				[]byte(`{"type":"export","seq":6,"node":"b","region":{"index":4000000000,"generation":1}}`),
				[]byte(`{"type":"export","seq":7,"node":"nowhere"}`), []byte(`{"type":"free","region":{"index":1,"generation":1}}`),
				[]byte(`{"type":"free","region":{"index":0}}`), []byte(`{"type":"free"}`)}
		case 5:
			messages = [][]byte{tool, []byte(`{"type":"alloc","seq":1,"region":{"size":100000}}`)}
			for range 3 {
				junk := make([]byte, r.IntN(2000))
				for k := range junk {
					junk[k] = byte(r.Uint32())
				}
				messages = append(messages, append([]byte("{"), junk...))
			}
		}
		for _, m := range messages {
			// With descriptors that nobody asked for, if the kernel lets it.
			err := shm.SendFDs(s, m, int(spare.Fd()), int(spare.Fd()))
			if errors.Is(err, unix.EPERM) {
				err = shm.SendFDs(s, m)
			}
			if err != nil {
				break // refused in between
			}
		}
		if i%4 > 0 { // the others stay open until the process ends
			if err := s.Close(); err != nil {
				return err
			}
		}
	}
	fmt.Println("done")
	return daemontest.Stay()
}

// Processes that say anything on the worker socket are refused, cost nothing that
// stays, and disturb nobody.
func TestStrangersOnTheWorkerSocket(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	// The connection for regions, which stays, is opened for whoever wants one first.
	region, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := region.Ref(0, region.Len(), client.MayRead)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.CallRegions(t.Context(), "b/text/upper", []byte("with a region"), ref); err != nil || string(got) != "WITH A REGION" {
		t.Fatalf("%q, %v", got, err)
	}
	before := coreFiles(t, a)
	stranger := daemontest.Spawn(t, "stranger", a.Socket)
	if got, err := c.Call(t.Context(), "b/text/upper", []byte("still")); err != nil || string(got) != "STILL" {
		t.Errorf("%q, %v", got, err)
	}
	stranger.Kill()
	daemontest.Eventually(t, "the stranger is gone", func() error {
		st, err := a.Status(t.Context())
		if err != nil {
			return err
		}
		if n := len(st.Workers); n > 2 { // the client and who asks
			return fmt.Errorf("%d workers", n)
		}
		for _, s := range st.Services {
			if s.Service == "s" {
				return fmt.Errorf("service %+v", s)
			}
		}
		if more := moreFiles(before, coreFiles(t, a)); more != nil {
			return fmt.Errorf("more descriptors in the core: %q", more)
		}
		return nil
	})
}

// A worker that asks more than it may at once is detached.
func TestTooManyQuestions(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	s, err := dialRaw(a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func(m *attach.Message) error {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return shm.SendFDs(s, data)
	}
	if err := send(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleTool}}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(1000) { // of a node that is not there: they wait
		if err := send(&attach.Message{Type: attach.TypePing, Seq: i + 1, Node: "b"}); err != nil {
			return
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
		m := make([]byte, 64<<10)
		if n, fds, err := shm.RecvFDs(s, m); err == nil {
			shm.CloseFDs(fds)
			if strings.Contains(string(m[:n]), string(attach.TypeGoodbye)) {
				return
			}
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// Strangers on the bootstrap socket.
func TestStrangersOnTheBootstrapSocket(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	st, err := b.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := coreFiles(t, b)
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 100 {
		s, err := net.Dial("tcp", st.Listen)
		if err != nil {
			t.Fatal(err)
		}
		junk := make([]byte, r.IntN(300))
		for k := range junk {
			junk[k] = byte(r.Uint32())
		}
		if i%2 == 0 {
			junk = append([]byte{0, 0, 0, byte(r.IntN(80))}, `{"type":"hello","hello":{"magic":"rdmad-peer","protocol":4,"node":"a"}}`...)
		}
		_, _ = s.Write(junk)
		if i%3 == 0 {
			defer s.Close() // some stay
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if got, err := c.Call(t.Context(), "b/text/upper", []byte("still")); err != nil || string(got) != "STILL" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	daemontest.Eventually(t, "the strangers are gone", func() error {
		if more := moreFiles(before, coreFiles(t, b)); more != nil {
			return fmt.Errorf("more descriptors in the core: %q", more)
		}
		return nil
	})
}

// Connections that say nothing take a part of the daemon's descriptors and no more, and keep nobody from attaching.
func TestSilentConnections(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	pid, err := b.Core()
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	const limit, most = 512, 64 // an eighth
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	sum := func() (n int) {
		for _, k := range coreFiles(t, b) {
			n += k
		}
		return n
	}
	files := sum()
	for range 3 * most { // a process may not try more than 256 times
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: b.Socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	c := attachClient(t, b)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	daemontest.Eventually(t, "those that were pushed out have no descriptors", func() error {
		if n := sum() - files; n > 2*most+20 { // each may have another one for its process
			return fmt.Errorf("there are %d more, of %d", n, limit)
		}
		return nil
	})
	// Those that are pushed out are told by the end of the connection.
	daemontest.Eventually(t, "they are counted", func() error {
		st, err := b.Status(t.Context())
		if err == nil && st.Counters["refused_connections"] < 2*most {
			err = fmt.Errorf("%d are", st.Counters["refused_connections"])
		}
		return err
	})
}
