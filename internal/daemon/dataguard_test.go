package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/nodecert"
)

const encrypted = "data = \"tls\"\n"

// With tls.data = "tls" everything works as without, in both directions, and the status
// says of each lane what protects it.
func TestTLSData(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairOfEach(t, c.section(t, "a")+encrypted, c.section(t, "b")+encrypted)
	for _, n := range []struct{ from, to *daemontest.Node }{{a, b}, {b, a}} {
		serve(t, n.to)
		conn := attachClient(t, n.from)
		target := n.to.Name + "/text/upper"
		callable(t, conn, target)
		for _, size := range []int{1, 100, 5000, 200_000} {
			got, err := conn.Call(t.Context(), target, bytes.Repeat([]byte{'a'}, size))
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{'A'}, size)) {
				t.Fatalf("%d bytes: %d bytes, %v", size, len(got), err)
			}
		}
	}
	for _, n := range []*daemontest.Node{a, b} {
		st := statusOf(t, n)
		up := 0
		for _, l := range st.Lanes {
			if l.Direction == "local" || l.State != "up" {
				continue
			}
			up++
			if err := hasWords(l.Path, []string{"TLS 1.3", "with node " + l.Peer}); err != nil {
				t.Errorf("node %s, lane %d: %v", n.Name, l.ID, err)
			}
		}
		if !st.DataTLS || up < 4 || !strings.Contains(st.FabricDetail, "TLS 1.3") {
			t.Errorf("node %s: %d lanes are up: %+v", n.Name, up, st)
		}
		noCertificateRefused(t, n)
	}
}

// A link of which one end encrypts data and the other does not carries none, at once and
// with a reason, and nothing else suffers.
func TestTLSDataOnOneSideOnly(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairOfEach(t, c.section(t, "a")+encrypted, c.section(t, "b")+"data = \"plain\"\n")
	for _, n := range []struct{ from, to *daemontest.Node }{{a, b}, {b, a}} {
		serve(t, n.to)
		conn := attachClient(t, n.from)
		daemontest.Eventually(t, "a reason", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := conn.Call(ctx, n.to.Name+"/text/upper", []byte("x"))
			if err == nil {
				t.Fatal("data goes over a link of which one end does not encrypt it")
			}
			if ctx.Err() != nil {
				t.Errorf("no answer: %v", err)
			}
			return hasWords(err.Error(), []string{"one end has TLS", "give both nodes the same tls.data"})
		})
		own := attachClient(t, n.to)
		callable(t, own, n.to.Name+"/text/upper")
	}
	if !statusOf(t, a).DataTLS || statusOf(t, b).DataTLS {
		t.Error("the status says otherwise")
	}
}

// Certificates that are replaced count from the next connection on, for data as for the
// bootstrap, and those that are up stay up.
func TestTLSDataRotation(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairOfEach(t, c.section(t, "a")+encrypted, c.section(t, "b")+encrypted)
	serve(t, a)
	conn := attachClient(t, b)
	callable(t, conn, "a/text/upper")
	c.write(t, nodecert.Request{Node: "a", Until: time.Now().Add(30 * time.Minute)})
	callable(t, conn, "a/text/upper")
	if err := errors.Join(b.Restart(), b.Connected("a"), a.Connected("b")); err != nil {
		t.Fatal(err)
	}
	callable(t, attachClient(t, b), "a/text/upper")
	noCertificateRefused(t, a)
}

// dataAddress makes the address of a data connection with TLS, as the bootstrap carries it.
func dataAddress(token []byte) []byte {
	const host = "127.0.0.1"
	b := append([]byte{2, byte(len(host)), 1, 0}, token...)
	return append(b, host...)
}

// knock dials the data port that an address names, with TLS as configured (nil: none),
// says hello with its token and returns what comes back.
func knock(t *testing.T, address []byte, conf *tls.Config, own []byte) ([]byte, error) {
	t.Helper()
	raw, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", binary.LittleEndian.Uint16(address[2:])))
	check(t, err)
	defer raw.Close()
	check(t, raw.SetDeadline(time.Now().Add(2*time.Minute)))
	stream := raw
	if conf != nil {
		stream = tls.Client(raw, conf)
	}
	hello := append([]byte("RDMADTCP\x01\x00\x00\x00\x00\x00\x00\x00"), address[4:20]...)
	_, _ = stream.Write(append(hello, own...)) // an alert may be there already
	welcome := make([]byte, 48)
	_, err = io.ReadFull(stream, welcome)
	return welcome, err
}

// A data connection is for the node of the bootstrap session that agreed on it: whoever
// else comes with its token, with or without a certificate, is refused within 5 s and
// spends nothing.
func TestDataConnectionIsBound(t *testing.T) {
	c := newCluster(t)
	a, b := daemontest.PairOfEach(t, c.section(t, "a")+encrypted, c.section(t, "b")+encrypted)
	serve(t, a)
	own := attachClient(t, a)
	check(t, b.Halt())
	raw, err := net.Dial("tcp", statusOf(t, a).Listen)
	check(t, err)
	defer raw.Close()
	p := poseOver(t, tls.Client(raw, stranger(c.pair(t, nodecert.Request{Node: "b"}))))
	visitor := func(certs []tls.Certificate) *tls.Config {
		s := stranger(certs)
		s.NextProtos = []string{"rdmad-data"}
		return s
	}
	bootstrap := visitor(c.pair(t, nodecert.Request{Node: "b"}))
	bootstrap.NextProtos = []string{"rdmad-peer"}
	wrong := []struct {
		name, reason string
		conf         *tls.Config
	}{
		{"another node", "certificate-name", visitor(c.pair(t, nodecert.Request{Node: "c"}))},
		{"another authority", "certificate-wrong-authority", visitor(newCluster(t).pair(t, nodecert.Request{Node: "b"}))},
		{"no TLS", "data-no-tls", nil},
		{"another protocol", "", bootstrap},
	}
	right := visitor(c.pair(t, nodecert.Request{Node: "b"}))
	// Opening the lane makes a token, which is good for 5 s, so that there is no time for anything but knocks.
	open := func(seq int) (token, to []byte) {
		token = make([]byte, 16)
		_, _ = rand.Read(token)
		p.send(frame{"type": "open", "seq": seq, "lane": frame{
			"domain": "default", "class": "small", "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64},
			"address": dataAddress(token), "key": frame{"addr": 1 << 20, "key": 5, "len": 128 * 8192},
		}})
		var accept struct{ Lane struct{ Address []byte } }
		data, err := json.Marshal(p.receive("accept"))
		check(t, err)
		check(t, json.Unmarshal(data, &accept))
		if to = accept.Lane.Address; len(to) < 20 || to[0] != 2 {
			t.Fatalf("address %x", to)
		}
		return token, to
	}
	const first, last = 7, 17
	var token, to []byte
	for seq := first; ; seq++ {
		begun := time.Now()
		token, to = open(seq)
		for _, x := range wrong {
			// The quickest of several: a machine may be busy.
			quickest := time.Hour
			for n := 0; n < 5 && quickest > 4*time.Second; n++ {
				start := time.Now()
				if _, err := knock(t, to, x.conf, token); err == nil {
					t.Errorf("%s is let in", x.name)
				}
				quickest = min(quickest, time.Since(start))
			}
			if quickest > 4*time.Second {
				t.Errorf("%s: refused after %v", x.name, quickest)
			}
		}
		welcome, err := knock(t, to, right, token)
		if err == nil && bytes.Equal(welcome[16:32], token) && bytes.Equal(welcome[32:], to[4:20]) {
			break
		}
		// All of them have to come while the token is good, or this one says nothing.
		if took := time.Since(begun); took < 4*time.Second || seq == last {
			t.Fatalf("the right one, after %v: %x, %v", took, welcome, err)
		}
	}
	if _, err := knock(t, to, right, token); err == nil {
		t.Error("the token is good twice")
	}
	for _, x := range wrong {
		if x.reason != "" {
			refused(t, a, x.reason)
		}
	}
	if _, err := own.Call(t.Context(), "a/text/upper", []byte("x")); err != nil {
		t.Errorf("within the node: %v", err)
	}
	raw.Close()
	check(t, errors.Join(b.Start(), b.Connected("a"), a.Connected("b")))
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	said bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.said.Write(b)
	return r.Conn.Write(b)
}

// What a node has said to another one, said again by somebody who has heard it, is of no
// use: TLS has new keys.
func TestReplayedBootstrap(t *testing.T) {
	c, a, b := secured(t)
	listen := statusOf(t, a).Listen
	check(t, b.Halt())
	raw, err := net.Dial("tcp", listen)
	check(t, err)
	defer raw.Close()
	rec := &recorder{Conn: raw}
	p := poseOver(t, tls.Client(rec, stranger(c.pair(t, nodecert.Request{Node: "b"}))))
	p.send(frame{"type": "ping", "seq": 3})
	p.receive("pong")
	raw.Close()
	daemontest.Eventually(t, "the session ends", func() error {
		if s := statusOf(t, a).Peers[0].State; s != "down" {
			return errors.New(s)
		}
		return nil
	})
	again, err := net.Dial("tcp", listen)
	check(t, err)
	defer again.Close()
	check(t, again.SetDeadline(time.Now().Add(2*time.Minute)))
	if _, err := again.Write(rec.said.Bytes()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, again)
	daemontest.Eventually(t, "a refusal", func() error {
		st := statusOf(t, a)
		for _, r := range st.Refusals {
			if strings.Contains(r.Text, "bad record MAC") {
				return nil
			}
		}
		return fmt.Errorf("%+v", st.Refusals)
	})
	if s := statusOf(t, a).Peers[0].State; s != "down" {
		t.Errorf("the peer is %s", s)
	}
	check(t, errors.Join(b.Start(), b.Connected("a"), a.Connected("b")))
}
