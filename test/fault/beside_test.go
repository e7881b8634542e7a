//go:build faultpoints

package fault

import (
	"maps"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// fates are how a stopped process and the core of its node end.
var fates = map[string]func(t *testing.T, p *process, n *daemontest.Node){
	"together": func(t *testing.T, p *process, n *daemontest.Node) {
		pid, err := n.Core()
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
		_ = p.cmd.Process.Kill()
	},
	// The next core finds it dead.
	"without a core": func(t *testing.T, p *process, n *daemontest.Node) {
		faultpoint.Do("supervise.ended", 1, func() {
			_ = p.cmd.Process.Kill()
			<-p.over
		})
		if err := n.KillCore(); err != nil {
			t.Error(err)
		}
	},
	// The next core is adopting it.
	"with a new core": func(t *testing.T, p *process, n *daemontest.Node) {
		faultpoint.Do("supervise.started", 1, func() { _ = p.cmd.Process.Kill() })
		if err := n.KillCore(); err != nil {
			t.Error(err)
		}
	},
}

// A process that makes requests dies with the core of its node, or while there is none:
// what it held is free in the end, and others go on.
func TestKillClientsBesideCores(t *testing.T) {
	r := newRig(t)
	defer r.figures(t)
	ended := outcomes{}
	for name, end := range fates {
		for _, point := range []string{"lane.mapped", "claim.held", "publish.after", "answer.seen", "free.after_slot", "close.said"} {
			t.Run(name+"/"+point, func(t *testing.T) {
				r.working.Lock()
				s := setting{"calls", 2, 0}
				if point == "lane.mapped" {
					s.life = "attach"
				}
				v := r.live(t, s, point+":1:stop")
				stopped := v.awaitStop()
				r.working.Unlock()
				if stopped {
					end(t, v.process, r.a)
				}
				if !v.end() {
					t.Error("it was not killed")
				}
				r.clean(t)
				r.flows(t, 1)
				maps.Copy(ended, readOutcomes(t, v.outcomes))
			})
		}
	}
	r.quiet(t)
	judge(t, ended, r.executions())
}

// The same for processes of a service, beside another one.
func TestKillServicesBesideCores(t *testing.T) {
	b := newBench(t)
	defer b.figures(t)
	for name, end := range fates {
		for _, point := range []string{"mapped.before", "pick.before", "pick.after", "handler.before", "conclude.after_header", "finish.after", "hint.staged"} {
			t.Run(name+"/"+point, func(t *testing.T) {
				s := b.serveV(t, point+":1:stop")
				made := make(chan struct{})
				go func() { // requests wait for the one that is stopped
					defer close(made)
					if s.ready() {
						for range 4 {
							b.round(t, works[0])
						}
					}
				}()
				if s.awaitStop() {
					end(t, s, b.b)
				}
				if !s.end() {
					t.Error("it was not killed")
				}
				<-made
				b.round(t, works[0])
				b.flows(t, 1)
			})
		}
	}
	b.quiet(t)
	judge(t, b.ended, readExecutions(t, b.executions))
}
