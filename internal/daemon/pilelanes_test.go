package daemon_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A peer has this node make memory for so many lanes and no more, also while handlers still run in lanes that it has
// opened anew. When they have finished it may go on.
func TestPeerCannotPileUpLanes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	began, release := make(chan struct{}, 1000), make(chan struct{})
	srv, err := server.Attach(t.Context(), a.Socket, server.Workers(32))
	check(t, err)
	check(t, srv.Handle("text", "slow", func(*server.Call) error {
		began <- struct{}{}
		<-release
		return nil
	}))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	released := false
	t.Cleanup(func() {
		if !released {
			close(release)
		}
		_ = srv.Close()
		<-served
	})
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	method := p.method("slow")
	dev, err := tcp.New(tcp.Config{}).Open(fabric.Options{})
	check(t, err)
	defer func() { check(t, dev.Close()) }()
	cq, err := dev.CreateCQ(16, nil)
	check(t, err)
	defer func() { check(t, cq.Close()) }()
	g := slots.Geometry{SlotSize: 128, Slots: 8192, MaxRun: 64}
	// open opens the same lane anew, and reports false if it is refused. In each is one request, whose handler takes
	// its time.
	open := func(seq int) (opened bool) {
		pd, err := dev.AllocPD()
		check(t, err)
		mr, err := pd.Register(shm.AlignedBytes(g.SlotBytes()), fabric.AccessRemoteWrite)
		check(t, err)
		ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 4, RecvDepth: 4})
		check(t, err)
		defer func() { check(t, ep.Close()) }()
		p.send(frame{"type": "open", "seq": seq, "lane": frame{
			"domain": "default", "class": "small", "geometry": g, "address": ep.Address(), "key": mr.Remote(),
		}})
		lane, refusal := p.opened()
		if refusal != "" {
			if !strings.Contains(refusal, "handlers on node a still work on requests of 16 earlier lanes of class small") {
				t.Errorf("refused with %q", refusal)
			}
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		check(t, ep.Connect(ctx, lane.Address, fabric.Active))
		check(t, ep.Activate())
		h := slots.Header{Ticket: 1, Run: 1, Kind: slots.KindRequest, Method: method, From: 1}
		h.Encode(mr.Bytes())
		_, err = ep.PostSend([]fabric.SendWR{{
			ID: 1, Op: fabric.OpWriteImm, Imm: 0<<8 | 1, Flags: fabric.FlagSignaled,
			Local: fabric.Local{Region: mr, Len: slots.HeaderSize}, RemoteAddr: lane.Key.Addr, RemoteKey: lane.Key.Key,
		}})
		check(t, err)
		for {
			var c [16]fabric.Completion
			_, err := cq.Poll(c[:])
			check(t, err)
			select {
			case <-began:
				return true
			case <-time.After(time.Millisecond):
			}
		}
	}
	const most = 2 * config.MaxLanesPerPeer
	for k := range most {
		if !open(k + 1) {
			t.Fatalf("refused after %d", k)
		}
	}
	if open(most + 1) {
		t.Errorf("more than %d lanes of one peer", most)
	}
	close(release)
	released = true
	seq := most + 1
	daemontest.Eventually(t, "room when the handlers have finished", func() error {
		if seq++; open(seq) {
			return nil
		}
		return context.DeadlineExceeded
	})
}

// method returns the id of a method in the directory of the node.
func (p *impostor) method(name string) uint32 {
	p.t.Helper()
	for {
		list, _ := p.receive("directory")["directory"].([]any)
		for _, e := range list {
			if e, ok := e.(map[string]any); ok && e["method"] == name {
				return uint32(e["id"].(float64))
			}
		}
	}
}

// openedLane is what a node says of a lane; keys are too large for the numbers of a frame.
type openedLane struct {
	Address []byte
	Key     fabric.RemoteKey
}

// opened returns the answer to an open: the lane, or the reason for which there is none.
func (p *impostor) opened() (lane openedLane, refusal string) {
	p.t.Helper()
	for {
		data, err := p.read()
		check(p.t, err)
		var m struct {
			Type, Reason string
			Lane         openedLane
		}
		check(p.t, json.Unmarshal(data, &m))
		switch m.Type {
		case "accept":
			return m.Lane, ""
		case "refuse":
			return openedLane{}, m.Reason
		}
	}
}
