package daemon

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// Anybody can connect to the bootstrap socket and say anything.
func FuzzHandshake(f *testing.F) {
	c := &conductor{cfg: &config.Config{}, log: zerolog.Nop(), node: "b", fabrics: []*fabrics.Fabric{{Name: "tcp"}}, links: map[string]*link{}}
	c.links["a"] = newLink(c, config.Peer{Name: "a", Address: "x"})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	f.Cleanup(c.cancel)
	var err error
	if c.guard, err = peerauth.NewGuard(c.cfg, false, c.log); err != nil {
		f.Fatal(err)
	}
	var good bytes.Buffer
	a := &conductor{node: "a", fabrics: []*fabrics.Fabric{{Name: "tcp"}}, incarnation: "1"}
	for _, m := range []*peerproto.Message{a.hello(newLink(a, config.Peer{Name: "b"})), {Type: peerproto.TypeReady, Clock: 7}} {
		if err := peerproto.Write(&good, m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:good.Len()-3])
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
	f.Add([]byte("\x16")) // TLS
	f.Add([]byte("\x00\x00\x00\x10{\"type\":\"hello\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s *session
		// It waits for nobody; a busy machine may once.
		for tries := 1; ; tries++ {
			ours, theirs := net.Pipe()
			go func() {
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				_, _ = theirs.Write(data)
				_ = theirs.Close()
			}()
			start := time.Now()
			var err error
			s, err = c.welcome(ours)
			_ = ours.Close()
			took := time.Since(start)
			if (s == nil) != (err != nil) || tries == 5 && took > time.Second {
				t.Fatalf("%v, %v, after %v", s, err, took)
			}
			if took <= time.Second {
				break
			}
		}
		if s != nil && s.link.name != "a" {
			t.Fatalf("a session of %q", s.link.name)
		}
	})
}
