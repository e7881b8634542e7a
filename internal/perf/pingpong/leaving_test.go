package pingpong

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
	"github.com/rdmad/rdmad/internal/poller"
)

// counted is a provider that counts the work requests whose memory is in use: those that do not
// carry their data, and of which no completion was taken. Completions of messages are late.
type counted struct {
	fabric.Provider
	using *atomic.Int64
	// most is the largest such number of an endpoint that was closed, closed how many were.
	most, closed *atomic.Int64
}

type countedDevice struct {
	fabric.Device
	counted
}

type countedPD struct {
	fabric.ProtectionDomain
	counted
}

type countedCQ struct {
	fabric.CQ
	counted
	late []fabric.Completion
	vain int // polls that found nothing else, since the last of them
}

// lateness is how many polls must find nothing before a late completion comes.
const lateness = 20

type countedEndpoint struct {
	fabric.Endpoint
	counted
}

func (p counted) Open(o fabric.Options) (fabric.Device, error) {
	d, err := p.Provider.Open(o)
	p.using = new(atomic.Int64) // each side's own
	return &countedDevice{d, p}, err
}

func (d *countedDevice) AllocPD() (fabric.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	return &countedPD{pd, d.counted}, err
}

func (d *countedDevice) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	q, err := d.Device.CreateCQ(depth, p)
	return &countedCQ{CQ: q, counted: d.counted}, err
}

func (p *countedPD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	a.CQ = a.CQ.(*countedCQ).CQ
	e, err := p.ProtectionDomain.CreateEndpoint(a)
	return &countedEndpoint{e, p.counted}, err
}

func (e *countedEndpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	n, err := e.Endpoint.PostSend(wrs)
	for _, w := range wrs[:n] {
		if w.Flags&fabric.FlagInline == 0 {
			e.using.Add(1)
		}
	}
	return n, err
}

func (e *countedEndpoint) Close() error {
	e.closed.Add(1)
	e.most.Store(max(e.most.Load(), e.using.Load()))
	return e.Endpoint.Close()
}

func (q *countedCQ) Poll(c []fabric.Completion) (int, error) {
	n, err := q.CQ.Poll(c)
	now := c[:0]
	for _, d := range c[:n] {
		switch d.Op {
		case fabric.OpSend, fabric.OpWrite, fabric.OpWriteImm:
			q.late = append(q.late, d)
			continue
		case fabric.OpRead:
			q.using.Add(-1)
		}
		now = append(now, d)
	}
	if len(now) > 0 {
		return len(now), err
	}
	if q.vain++; q.vain < lateness || len(q.late) == 0 {
		return 0, err
	}
	c[0] = q.late[0]
	q.late, q.vain = q.late[1:], 0
	q.using.Add(-1)
	return 1, err
}

func (q *countedCQ) Arm() (bool, error) {
	if len(q.late) > 0 {
		return false, nil
	}
	return q.CQ.Arm()
}

// Neither side closes its end with a message of its own under way: that has arrived, because it was answered, but the
// device may not have given back its memory.
func TestNothingUnderWayAtTheEnd(t *testing.T) {
	for _, op := range Ops {
		for _, event := range []bool{false, true} {
			if op == opWrite && event {
				continue // see TestWriteNeedsOrder
			}
			t.Run(fmt.Sprintf("%s/event=%v", op, event), func(t *testing.T) {
				p := counted{Provider: tcp.New(tcp.Config{}), most: new(atomic.Int64), closed: new(atomic.Int64)}
				tool := &Tool{Op: op, Work: perf.Work{Sizes: []int{4096, 100_000}, Count: 5, Event: event, Inline: 0, Seed: 1}}
				server, client := perftest.Run(t, perftest.Provider{Name: "counted", New: func() fabric.Provider { return p }}, new(Tool), tool)
				if server.Err != nil || client.Err != nil {
					t.Fatalf("server: %v, client: %v", server.Err, client.Err)
				}
				if p.closed.Load() != 2 || p.most.Load() != 0 {
					t.Errorf("%d ends were closed, one with %d messages under way", p.closed.Load(), p.most.Load())
				}
			})
		}
	}
}
