package fabrictest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
)

// runAgents lets two goroutines play ping-pong, each with its own queue, in every
// combination of spinning and sleeping. A wake-up that gets lost stops the game.
func runAgents(t *testing.T, newProvider func() fabric.Provider) {
	t.Helper()
	for _, sleep := range [][2]bool{{true, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprintf("sleep %v %v", sleep[0], sleep[1]), func(t *testing.T) {
			w := newWorld(t, newProvider(), false)
			var agents [2]*agent
			for i := range agents {
				agents[i] = newAgent(w, i, sleep[i])
			}
			a, b := agents[0].end, agents[1].end
			a.peer, b.peer = b, a
			w.must(connectPair(a.ep, b.ep))
			rounds := 2000
			if !sleep[0] || !sleep[1] {
				// A spinner may have to wait for its time slice.
				rounds = 200
			}
			done := make(chan error, 2)
			for i, g := range agents {
				go func() { done <- g.play(rounds, i == 0) }()
			}
			for range agents {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// agent is one player: an endpoint, its queue, and a poller if it sleeps.
type agent struct {
	end    *end
	cq     fabric.CQ
	poller *poller.Poller
}

func newAgent(w *world, i int, sleep bool) *agent {
	w.Helper()
	g := &agent{}
	if sleep {
		p, err := poller.New()
		w.must(err)
		w.Cleanup(func() { w.check(p.Close()) })
		g.poller = p
	}
	var err error
	g.cq, err = w.sides[i].dev.CreateCQ(64, g.poller)
	w.must(err)
	w.Cleanup(func() { w.check(g.cq.Close()) })
	g.end = w.newEnd(&side{dev: w.sides[i].dev, cq: g.cq}, shape{memory: 4096})
	return g
}

// play answers every ball with the next; the server starts.
func (g *agent) play(rounds int, serve bool) error {
	e := g.end
	if _, err := e.ep.PostRecv(make([]fabric.RecvWR, 4)); err != nil {
		return err
	}
	if err := e.ep.Activate(); err != nil {
		return err
	}
	if serve {
		if _, err := e.ep.PostSend([]fabric.SendWR{e.writeImm(0, 64, 64, 0)}); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(patience)
	var c [16]fabric.Completion
	for ball, sent := 0, 0; ball < rounds || sent < rounds; {
		n, err := g.cq.Poll(c[:])
		if err != nil {
			return err
		}
		if n > 0 {
			deadline = time.Now().Add(patience)
		}
		for _, d := range c[:n] {
			switch {
			case d.Status != fabric.StatusSuccess:
				return fmt.Errorf("agent: round %d: %+v", ball, d)
			case d.Op == fabric.OpWriteImm:
				sent++
			case d.Imm != uint32(ball):
				return fmt.Errorf("agent: ball %d in round %d", d.Imm, ball)
			default:
				ball++
				if err := g.hit(d.Imm, rounds, serve); err != nil {
					return err
				}
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("agent: stopped in round %d, %d sent", ball, sent)
		}
		if n == 0 {
			if err := g.rest(deadline); err != nil {
				return err
			}
		}
	}
	return nil
}

// hit returns a ball.
func (g *agent) hit(ball uint32, rounds int, serve bool) error {
	if _, err := g.end.ep.PostRecv(make([]fabric.RecvWR, 1)); err != nil {
		return err
	}
	if serve {
		ball++
	}
	if int(ball) == rounds {
		return nil
	}
	_, err := g.end.ep.PostSend([]fabric.SendWR{g.end.writeImm(0, 64, 64, ball)})
	return err
}

// rest sleeps until the queue may have something.
func (g *agent) rest(deadline time.Time) error {
	if g.poller == nil {
		runtime.Gosched()
		return nil
	}
	armed, err := g.cq.Arm()
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	if armed {
		wait = time.Until(deadline)
	}
	_, err = g.poller.Wait(wait)
	return err
}
