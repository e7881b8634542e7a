package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The clock of a node whose machine stood still is behind from then on, and its link lives: requests that come too late by
// what was known before come in time when the clocks are compared again.
func TestClockOfAPeerThatStoodStill(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	srv, err := server.Attach(t.Context(), a.Socket)
	check(t, err)
	check(t, srv.Handle("text", "quick", func(*server.Call) error { return nil }))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background()) }()
	defer func() {
		check(t, srv.Close())
		<-served
	}()
	p := pose(t, a)
	p.send(frame{"type": "repeated"})
	method := p.method("quick")
	cq, pd, mr := laneMemory(t)
	g := slots.Geometry{SlotSize: 128, Slots: 8192, MaxRun: 64}
	ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 64, RecvDepth: 64})
	check(t, err)
	defer func() { check(t, ep.Close()) }()
	p.send(frame{"type": "open", "seq": 1, "lane": frame{
		"domain": "default", "class": "small", "geometry": g, "address": ep.Address(), "key": mr.Remote(),
	}})
	lane, refusal := p.opened()
	if refusal != "" {
		t.Fatal(refusal)
	}
	check(t, ep.Connect(t.Context(), lane.Address, fabric.Active))
	check(t, ep.Activate())
	const behind = int64(time.Hour)
	go func() { // the peer's daemon
		for {
			var m struct {
				Type string
				Seq  uint64
			}
			data, err := p.read()
			if err != nil || json.Unmarshal(data, &m) != nil {
				return // the test is over
			}
			if m.Type == "ping" {
				p.send(frame{"type": "pong", "seq": m.Seq, "clock": shm.Nanotime() - behind})
			}
		}
	}()
	ask := func(i int) slots.Status {
		_, err := ep.PostRecv([]fabric.RecvWR{{ID: 1}})
		check(t, err)
		at := i * g.SlotSize
		h := slots.Header{Ticket: 1, Run: 1, Kind: slots.KindRequest, Method: method, From: 1, Deadline: shm.Nanotime() - behind + int64(time.Minute)}
		h.Encode(mr.Bytes()[at:])
		_, err = ep.PostSend([]fabric.SendWR{{
			ID: 1, Op: fabric.OpWriteImm, Imm: uint32(i)<<8 | 1, Flags: fabric.FlagSignaled,
			Local: fabric.Local{Region: mr, Offset: uint64(at), Len: slots.HeaderSize}, RemoteAddr: lane.Key.Addr + uint64(at), RemoteKey: lane.Key.Key,
		}})
		check(t, err)
		var answer slots.Header
		daemontest.Eventually(t, "an answer", func() error {
			var c [16]fabric.Completion
			n, err := cq.Poll(c[:])
			check(t, err)
			for _, d := range c[:n] {
				if d.Op == fabric.OpRecvImm && answer.Decode(mr.Bytes()[at:]) {
					return nil
				}
			}
			return fmt.Errorf("%d completions", n)
		})
		return answer.Status
	}
	if s := ask(0); s != slots.StatusDeadline {
		t.Errorf("before the clocks are compared again: status %d", s)
	}
	i := 0
	daemontest.Eventually(t, "the clocks are compared again", func() error {
		if i++; i == g.Slots {
			t.Fatalf("%d requests came too late", i-1)
		}
		if s := ask(i); s != slots.StatusOK {
			return fmt.Errorf("request %d: status %d", i, s)
		}
		return nil
	})
}
