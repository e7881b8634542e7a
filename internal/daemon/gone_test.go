package daemon

import (
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// A process that closes its socket while what it has asked for waits is waited for no longer, and has not been sent away by the daemon:
// what it writes into its memory afterwards is no goodbye.
func TestEndBesideAQuestion(t *testing.T) {
	for _, m := range []*attach.Message{
		{Type: attach.TypeResolve, Target: &attach.Target{Node: "b", Service: "echo", Method: "echo"}},
		{Type: attach.TypePing, Node: "b"},
	} {
		t.Run(string(m.Type), func(t *testing.T) {
			cfg := parsed(t, "listen = \"127.0.0.1:0\"\n[observe]\ncounters = \"off\"\n[limits]\nconnect_wait = \"60s\"\n[[peer]]\nname = \"b\"\naddress = \"127.0.0.1:1\"\n")
			c, end := served(t, cfg, successors(t, cfg))
			defer end()
			conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			say := func(m *attach.Message) {
				t.Helper()
				text, err := json.Marshal(m)
				if err == nil {
					err = shm.SendFDs(conn, text)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			say(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient, Name: "test"}})
			buf := make([]byte, 8192)
			_, fds, err := shm.RecvFDs(conn, buf)
			if err != nil {
				t.Fatal(err)
			}
			shm.CloseFDs(fds)
			w := workerOf(t, c)
			m.Seq = 1
			say(m)
			eventually(t, "the question waits", func() error {
				if len(w.asks) != 1 {
					return errors.New("it does not")
				}
				return nil
			})
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it waits no more", func() error {
				if len(w.asks) != 0 {
					return errors.New("it does")
				}
				return nil
			})
			if w.ended.Load() {
				t.Errorf("%s: the daemon has ended the attachment, as far as it knows", m.Type)
			}
			eventually(t, "the worker is listed no more", func() error {
				c.mu.Lock()
				defer c.mu.Unlock()
				if _, listed := c.attached[w]; listed {
					return errors.New("it is")
				}
				return nil
			})
		})
	}
}
