package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
)

// eventually calls f until it succeeds, and ends the test when it does not. Package daemontest, which has the like,
// imports this one.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test", []byte("[node]\nname = \"a\"\nsocket = \""+filepath.Join(t.TempDir(), "s.sock")+"\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// successors returns what starts a core, which goes on where the one before it ended. That is its caller's to end.
func successors(t *testing.T, cfg *config.Config) (core func() (c *conductor, end func())) {
	t.Helper()
	store := depot.NewStore(depot.Limits{Items: 100, FDs: 1000}, func(err error) { t.Error(err) })
	t.Cleanup(store.Clear)
	return func() (c *conductor, end func()) {
		link, theirs, err := store.Pair()
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() { link.Serve(); close(served) }()
		kept, items, err := depot.Open(theirs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = newConductor(cfg, 0, nil, kept, items, false, zerolog.Nop()); err != nil {
			t.Fatal(err)
		}
		c.identify()
		return c, func() {
			_ = kept.Close() // nobody hears of what it does from now on
			<-served
			c.stop()
		}
	}
}

// A core whose domain has given everything under way its outcome, with nothing else kept than before, leaves its memory to the next one, and
// processes go on with it.
func TestCoreDiesInARotation(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	core := successors(t, cfg)
	first, end := core()
	d := first.allDomains()[0]
	for _, class := range cfg.Classes {
		for n := range cfg.Lanes.PerPeer {
			if _, err := d.outgoing(place{node: "a"}, class, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.agent.Commands.Call(func() { d.view.Retire("damaged") })
	end()

	second, end := core()
	defer end()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	second.open(l)
	s, err := server.Attach(t.Context(), cfg.Node.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Handle("text", "echo", func(c *server.Call) error { return c.Reply(c.Request()) }); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(context.Background()) }()
	c, err := client.Attach(t.Context(), cfg.Node.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	eventually(t, "a call is answered", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Call(ctx, "a/text/echo", []byte("hello"))
		return err
	})
}

// A process that attaches while its domain gets new memory, and a reload leaves it no domain, is refused.
func TestAttachWhileRotatedAndReloaded(t *testing.T) {
	cfg := parsed(t, "")
	c, err := newConductor(cfg, 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	d := c.allDomains()[0]
	next, err := c.newDomain(config.Domain{Name: d.name}, d.agent, nil) // admits nobody
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	process := attach.NewConn(ours)
	defer process.Close()
	if err := process.Send(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient}}); err != nil {
		t.Fatal(err)
	}
	theirs, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	conn := attach.NewConn(theirs)
	defer conn.Close()
	attached := make(chan error, 1)
	c.mu.Lock()
	go func() {
		_, err := c.attach(conn)
		attached <- err
	}()
	eventually(t, "it was admitted, and waits to be entered", func() error {
		stacks := make([]byte, 1<<20)
		if !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".enlist(") {
			return errors.New("not yet")
		}
		return nil
	})
	d.retired = true
	c.domains.Store(&[]*domain{next})
	c.mu.Unlock()
	if err := <-attached; !errors.Is(err, attach.ErrPermission) {
		t.Errorf("attached: %v", err)
	}
}
