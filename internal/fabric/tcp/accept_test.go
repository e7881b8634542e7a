package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

func openDevice(t *testing.T) *Device { return openDeviceWith(t, Config{}) }

func openDeviceWith(t *testing.T, cfg Config) *Device {
	t.Helper()
	watchFDs(t)
	d, err := New(cfg).Open(fabric.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d.(*Device)
}

func (d *Device) endpoint(t *testing.T) *Endpoint { return d.endpointTo(t, "") }

func (d *Device) endpointTo(t *testing.T, peer string) *Endpoint {
	t.Helper()
	q, err := d.CreateCQ(1, nil)
	must(t, err)
	pd, err := d.AllocPD()
	must(t, err)
	e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, Peer: peer})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(e.Close(), q.Close())) })
	return e.(*Endpoint)
}

// dial sends b to the device.
func (d *Device) dial(t *testing.T, b []byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", d.Addr().String())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = c.Write(b)
	must(t, err)
	return c
}

// dropped waits until the device has closed c without a word.
func dropped(t *testing.T, c net.Conn) {
	t.Helper()
	var b [1]byte
	n, err := c.Read(b[:])
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
}

func TestBadHellosAreRejected(t *testing.T) {
	d := openDevice(t)
	e := d.endpoint(t)
	good := greeting{to: e.addr.token}.encode(helloMagic)
	change := func(i int) []byte {
		b := append([]byte(nil), good...)
		b[i] ^= 1
		return b
	}
	cases := map[string][]byte{
		"magic":    change(0),
		"version":  change(8),
		"reserved": change(12),
		"token":    change(31),
		"random":   append([]byte("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"), make([]byte, 20)...),
	}
	for name, hello := range cases {
		before := d.rejected.Load()
		dropped(t, d.dial(t, hello))
		if n := d.rejected.Load(); n != before+1 {
			t.Errorf("%s: %d rejected, want %d", name, n, before+1)
		}
	}
	// A hello that ends early.
	c := d.dial(t, good[:20])
	must(t, c.(*net.TCPConn).CloseWrite())
	dropped(t, c)
	if n := d.rejected.Load(); n != uint64(len(cases)+1) {
		t.Errorf("%d rejected", n)
	}
}

// A token is good for one connection, even a useless one.
func TestTokenIsOneShot(t *testing.T) {
	d := openDevice(t)
	e, peer := d.endpoint(t), d.endpoint(t)
	hello := greeting{to: e.addr.token, from: newToken()}.encode(helloMagic)
	first := d.dial(t, hello)
	err := e.Connect(context.Background(), peer.Address(), fabric.Passive)
	if !errors.Is(err, errIntroduction) {
		t.Fatalf("Connect with a stranger: %v", err)
	}
	dropped(t, first)
	dropped(t, d.dial(t, hello))
	if n := d.rejected.Load(); n != 2 {
		t.Errorf("%d rejected, want both", n)
	}
}

// Connections that say nothing cannot keep an honest one out.
func TestSilentConnectionsArePushedOut(t *testing.T) {
	d := openDevice(t)
	first := d.dial(t, nil)
	for range maxPending {
		d.dial(t, []byte{1})
	}
	dropped(t, first)
	a, b := d.endpoint(t), d.endpoint(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- a.Connect(ctx, b.Address(), fabric.Passive) }()
	must(t, b.Connect(ctx, a.Address(), fabric.Active))
	must(t, <-passive)
}

// The active side does not accept a welcome from somebody else.
func TestFalseWelcome(t *testing.T) {
	d := openDevice(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	for name, welcome := range map[string]func(e *Endpoint) []byte{
		"stranger": func(e *Endpoint) []byte { return greeting{to: e.addr.token, from: newToken()}.encode(welcomeMagic) },
		"echo":     func(e *Endpoint) []byte { return greeting{from: e.addr.token}.encode(helloMagic) },
		"nothing":  func(*Endpoint) []byte { return nil },
	} {
		e := d.endpoint(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var b [greetingSize]byte
			_, _ = io.ReadFull(c, b[:])
			_, _ = c.Write(welcome(e))
			_ = c.Close()
		}()
		port := uint16(ln.Addr().(*net.TCPAddr).Port)
		to := address{host: "127.0.0.1", port: port, token: newToken()}
		var ce *fabric.ConnectError
		if err := e.Connect(context.Background(), to.encode(), fabric.Active); !errors.As(err, &ce) {
			t.Errorf("%s: Connect: %v", name, err)
		}
		<-done
	}
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for _, o := range []fabric.Options{{Listen: "no port"}, {Listen: "0.0.0.0:0"}, {Listen: "[::]:0"}} {
		if d, err := New(Config{}).Open(o); err == nil {
			t.Errorf("Open(%+v) succeeded", o)
			must(t, d.Close())
		}
	}
	if _, err := New(Config{ReceiveBuffer: 1}).Open(fabric.Options{}); err == nil {
		t.Error("a receive buffer of one byte is accepted")
	}
	d, err := New(Config{}).Open(fabric.Options{Listen: "0.0.0.0:0", Advertise: "localhost"})
	must(t, err)
	must(t, d.Close())
}
