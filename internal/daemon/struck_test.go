package daemon

import (
	"errors"
	"net"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
)

// A process that was disconnected for its offences, and lives on, is that for the next core, too: it may not attach, and its
// word that it touches its slots no more counts for nothing. So it is if the core dies before it has disconnected it.
func TestNextCoreKnowsOffenders(t *testing.T) {
	ofOthers(t)
	for name, dismissed := range map[string]bool{"disconnected": true, "about to be disconnected": false} {
		t.Run(name, func(t *testing.T) {
			cfg := parsed(t, "[limits]\ndomain_strikes = 0\n[observe]\ncounters = \"off\"\n") // it keeps its memory
			core := successors(t, cfg)
			first, end := served(t, cfg, core)
			offender, w := attached(t, cfg, first)
			defer offender.Close()
			if dismissed {
				first.strikeOut(w.domain, w.view, 8, agent.BadMessage)
				<-offender.Done()
			} else {
				first.mu.Lock()
				w.struck = 8
				w.keepWorkerChange()
				first.mu.Unlock()
			}
			w.view.Rings.Depart()
			end()

			second, end := core()
			defer end()
			l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			again := workerOf(t, second)
			second.open(l)
			<-offender.Done()
			eventually(t, "the agent knows that it is gone", func() (err error) {
				again.domain.agent.Commands.Call(func() {
					if !again.view.Gone {
						err = errors.New("it does not")
					}
				})
				return err
			})
			if _, err := client.Attach(t.Context(), cfg.Node.Socket); !errors.Is(err, attach.ErrPermission) {
				t.Errorf("attached again: %v", err)
			}
			if workerOf(t, second) != again {
				t.Error("its slots were given to others while it lives")
			}
		})
	}
}

// workerOf returns the only worker of a core.
func workerOf(t *testing.T, c *conductor) (found *worker) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.allDomains()[0].workers {
		found = w
	}
	if found == nil {
		t.Fatal("no worker")
	}
	return found
}
