package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
)

func FuzzReadPeer(f *testing.F) {
	for _, m := range []*peerMessage{
		{Type: peerPing, Seq: 1}, {Type: peerReady, Clock: -5},
		{Type: peerHello, Hello: &helloBody{Magic: peerMagic, Protocol: 1, Node: "a"}},
		{Type: peerOpen, Lane: &laneBody{Domain: "d", Geometry: rigGeometry, Address: []byte("x")}},
		{Type: peerDirectory, Directory: []listing{{Domain: "d", Service: "s", Method: "m", ID: 1}}},
	} {
		var b bytes.Buffer
		if err := writePeer(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x04null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			m, err := readPeer(r, maxHello)
			if err != nil {
				if !errors.Is(err, errFrame) && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("%v", err)
				}
				return
			}
			var b bytes.Buffer
			if err := writePeer(&b, m); err != nil {
				t.Fatal(err)
			}
			again, err := readPeer(&b, maxFrame)
			if err != nil {
				t.Fatal(err)
			}
			if x, y := mustJSON(t, m), mustJSON(t, again); x != y {
				t.Fatalf("%s has become %s", x, y)
			}
		}
	})
}

func mustJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Anybody can connect to the bootstrap socket and say anything.
func FuzzHandshake(f *testing.F) {
	c := &conductor{cfg: &config.Config{}, log: zerolog.Nop(), node: "b", fabrics: []*openFabric{{name: "tcp"}}, links: map[string]*link{}}
	c.links["a"] = newLink(c, config.Peer{Name: "a", Address: "x"})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	f.Cleanup(c.cancel)
	var good bytes.Buffer
	a := &conductor{node: "a", fabrics: []*openFabric{{name: "tcp"}}, incarnation: "1"}
	for _, m := range []*peerMessage{a.hello(newLink(a, config.Peer{Name: "b"})), {Type: peerReady, Clock: 7}} {
		if err := writePeer(&good, m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[:good.Len()-3])
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"))
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

func FuzzHandoff(f *testing.F) {
	good, err := json.Marshal(handoff{Supervisor: 7, Source: "x.toml", Data: []byte("[node]\n"), Bootstrap: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-4])
	f.Add([]byte("null"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := decodeHandoff(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := decodeHandoff(bytes.NewReader([]byte(mustJSON(t, h))))
		if err != nil || mustJSON(t, again) != mustJSON(t, h) && !reflect.DeepEqual(h, again) {
			t.Fatalf("%+v has become %+v, %v", h, again, err)
		}
	})
}
