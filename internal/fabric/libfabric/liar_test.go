//go:build libfabric && cgo && linux

package libfabric

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A peer that says to be where another one is does not end the connections to that one.
func TestLiarEndsNobodysConnection(t *testing.T) {
	for what, twist := range map[string]func(name []byte) []byte{
		"":               func(name []byte) []byte { return name },
		"and a byte":     func(name []byte) []byte { return append(name, 0) },
		"and 100":        func(name []byte) []byte { return append(name, make([]byte, 100)...) },
		"padding":        func(name []byte) []byte { name[len(name)-1] = 1; return name },
		"without an end": func(name []byte) []byte { return name[:8] },
	} {
		t.Run(what, func(t *testing.T) {
			eachProvider(t, func(t *testing.T, cfg Config) { lieAboutPlace(t, cfg, twist) })
		})
	}
}

func lieAboutPlace(t *testing.T, cfg Config, twist func(name []byte) []byte) {
	p := newPairing(t, cfg, 16, 4096)
	// End 1 has dialled end 0. A liar has this node connect another endpoint, and names the place of end 0.
	e, err := p.pd[1].CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[1], Tag: 7, SendDepth: 16, RecvDepth: 16})
	p.must(err)
	lie := p.ep[0].addr
	lie.token = newToken()
	lie.name = twist(bytes.Clone(lie.name))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := e.Connect(ctx, lie.encode(), fabric.Passive); err == nil {
		t.Error("connected")
	}
	p.writeFrom1(1)
	p.must(e.Close())
	p.writeFrom1(2)
	p.close()
}

// writeFrom1 writes from end 1 to end 0.
func (p *pairing) writeFrom1(id uint64) {
	p.Helper()
	key := p.mr[0].Remote()
	_, err := p.ep[1].PostSend([]fabric.SendWR{{
		ID: id, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mr[1], Len: 64}, RemoteAddr: key.Addr, RemoteKey: key.Key,
	}})
	p.must(err)
	p.collect(func(end int, c fabric.Completion) bool {
		if c.Status != fabric.StatusSuccess {
			p.Fatalf("write %d, end %d: %+v", id, end, c)
		}
		return c.Op == fabric.OpWrite
	})
}

// However many messages of no meaning come, each is one of those after which others have their turn.
func TestNonsenseIsTakenInTurns(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("needs a provider that has room for many messages, and whose devices strangers can reach: tcp;ofi_rxm")
		}
		dev, err := newProvider(t, cfg).Open(fabric.Options{Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}()
		// One that no goroutine listens to, and a stranger who knows where it is.
		c, err := openControl(dev.(*Device).lib)
		if err != nil {
			t.Fatal(err)
		}
		name, err := c.name()
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := openControl(dev.(*Device).lib)
		if err != nil {
			t.Fatal(err)
		}
		addr, err := stranger.peer(name)
		if err != nil {
			t.Fatal(err)
		}
		// It is where a peer is, or it would not be let in.
		at, err := stranger.name()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.peer(at); err != nil {
			t.Fatal(err)
		}
		try := func(m message) (sent bool) {
			if sent, err = stranger.send(addr, m); err != nil {
				t.Fatal(err)
			}
			_, _, _ = stranger.receive()
			return sent
		}
		last := message{kind: msgGone, to: newToken(), from: newToken()}
		heard := message{}
		for until := time.Now().Add(time.Minute); heard != last && time.Now().Before(until); { // until they are connected
			try(last) // nothing is sent before both ends have moved on; then there is room
			heard, _, _ = c.receive()
		}
		if heard != last {
			t.Fatal("nothing is heard")
		}
		say := func(m message) {
			for until := time.Now().Add(time.Minute); !try(m); {
				if time.Now().After(until) {
					t.Fatal("there is no room for so many")
				}
			}
		}
		const nonsense = 16
		for range nonsense {
			say(message{kind: 99})
		}
		say(last)
		// What was said before may come, too.
		taken := 0
		for until := time.Now().Add(time.Minute); taken < nonsense && time.Now().Before(until); {
			m, ok, err := c.receive()
			if err != nil {
				t.Fatal(err)
			}
			if ok && m.kind == 0 {
				taken++
			}
			_, _, _ = stranger.receive()
		}
		if taken != nonsense {
			t.Errorf("%d messages without meaning were taken one by one, want %d", taken, nonsense)
		}
		if err := errors.Join(stranger.close(), c.close()); err != nil {
			t.Error(err)
		}
	})
}

// A process that has no descriptors left closes an endpoint in the middle of what arrives, too.
func TestCloseWithoutDescriptors(t *testing.T) {
	const size = 32 << 20
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("needs a provider that has connections: tcp;ofi_rxm")
		}
		for closing := range 2 {
			p := newPairing(t, cfg, 16, size)
			p.mr[1].Bytes()[0] = 1
			key := p.mr[1].Remote()
			_, err := p.ep[0].PostSend([]fabric.SendWR{{
				Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mr[0], Len: p.longest(size)}, RemoteAddr: key.Addr, RemoteKey: key.Key,
			}})
			p.must(err)
			into := p.mr[0].Bytes()
			p.until("something arrives", func() bool { return into[0] == 1 })
			var before unix.Rlimit
			p.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
			fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			p.must(err)
			p.must(unix.Close(fd))
			none := before
			none.Cur = uint64(fd) // the lowest that is free
			p.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
			err = p.ep[closing].Close()
			p.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
			p.must(err)
			p.collect(func(end int, c fabric.Completion) bool { return end != closing && c.Op == fabric.OpDisconnect })
			p.close()
		}
	})
}

// Who closes an endpoint beside another of this process, and who looks for such a one, do not wait for each other.
func TestNeighboursDoNotWaitForEachOther(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider != shmProvider {
			t.Skip("needs the provider whose devices in one process know each other: shm")
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 20 {
				p := newPairing(t, cfg, 16, 4096)
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					for {
						select {
						case <-stop:
							return
						default:
							_, _ = p.dev[0].controlOf(p.dev[1].ctlName)
						}
					}
				}()
				p.must(errors.Join(p.ep[0].Close(), p.mr[0].Close(), p.pd[0].Close())) // which waits for its neighbour
				p.must(p.ep[1].Close())
				close(stop)
				<-stopped
				p.close()
			}
		}()
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatal("they wait for each other")
		}
	})
}
