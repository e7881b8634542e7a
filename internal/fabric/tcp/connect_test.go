package tcp

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A Connect to somebody who says nothing has no other end than that of its endpoint, its context, or its device.
func TestDeviceCloseEndsConnect(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	d, err := New(Config{}).Open(fabric.Options{})
	must(t, err)
	pd, err := d.AllocPD()
	must(t, err)
	q, err := d.CreateCQ(1, nil)
	must(t, err)
	e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 1, RecvDepth: 1})
	must(t, err)
	ended := make(chan error, 1)
	peer := address{host: "127.0.0.1", port: uint16(silent.Addr().(*net.TCPAddr).Port), token: newToken()}
	go func() { ended <- e.Connect(context.Background(), peer.encode(), fabric.Active) }()
	c, err := silent.Accept()
	must(t, err)
	defer c.Close()
	must(t, d.Close())
	if err := <-ended; !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Connect: %v", err)
	}
	must(t, e.Close())
	must(t, q.Close())
}

// Who an endpoint is may be asked while its connection ends: the race detector looks.
func TestIdentityBesideTheEnd(t *testing.T) {
	p := newPair(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if id := p.ep[1].Identity(); id.Address != "" && id.Address != "127.0.0.1" {
					t.Errorf("%+v", id)
				}
			}
		}
	})
	must(t, p.ep[0].Close())
	p.sleepUntilGone(t, 1)
	must(t, p.ep[1].Close())
	close(stop)
	wg.Wait()
}
