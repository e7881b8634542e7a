package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rdmad/rdmad/internal/event"
)

// coreWatch is what is known of the core of a node.
type coreWatch struct {
	// pid is its process, and deaths how many cores of the node had died, when it was looked at last.
	pid, deaths int
	// kills is how many cores the harness has killed since, and replaced says that it has had one replaced.
	kills    int
	replaced bool
}

// look compares a core with what it was and with what the harness has done to it since, and returns how often it has
// ended besides. Its process alone does not say: of a core that was killed, the next one may have crashed, too.
func (w *coreWatch) look(pid, deaths int) (crashes int) {
	died := deaths - w.deaths
	crashes = max(0, died-w.kills)
	if pid != w.pid && died == 0 && !w.replaced {
		crashes++
	}
	w.replaced = w.replaced && pid == w.pid
	w.kills = max(0, w.kills-died)
	w.pid, w.deaths = pid, deaths
	return crashes
}

// checkCores checks that no core has ended that the harness has not killed or had replaced, and no supervisor at all.
func (r *run) checkCores(ctx context.Context, when string) error {
	var errs []error
	for i, n := range r.nodes {
		if err := n.process.Ended(); err != nil {
			errs = append(errs, err)
			continue
		}
		pid, err := n.core(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		deaths, err := n.deaths()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		was := r.cores[i].pid
		if crashes := r.cores[i].look(pid, deaths); crashes > 0 {
			r.crashes += crashes
			errs = append(errs, fmt.Errorf("the core of node %s crashed (%s): it was %d and is %d%s", n.name, when, was, pid, n.process.Tail()))
		}
	}
	return errors.Join(errs...)
}

// stopNodes ends the daemons in an orderly way, and checks that their cores ended so, too.
func (r *run) stopNodes() error {
	var errs []error
	for i, n := range r.nodes {
		errs = append(errs, n.stop(stopGrace))
		deaths, err := n.deaths()
		errs = append(errs, err)
		if crashes := r.cores[i].look(r.cores[i].pid, deaths); crashes > 0 {
			r.crashes += crashes
			errs = append(errs, fmt.Errorf("the core of node %s crashed while it stopped; see %s", n.name, n.log))
		}
	}
	return errors.Join(errs...)
}

// killing notes that the harness is about to kill the core of a node.
func (r *run) killing(n *node) { r.cores[nodeIndex(n.name)].kills++ }

// replacing notes that the harness is about to have the core of a node replaced.
func (r *run) replacing(n *node) { r.cores[nodeIndex(n.name)].replaced = true }

// deathMark is in the line that the supervisor logs of each core that dies, before it starts another.
var deathMark = fmt.Sprintf("%q:%q", "code", string(event.CoreDied))

// deaths returns how many cores of the node have died so far.
func (n *node) deaths() (int, error) {
	f, err := os.Open(n.log)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, n.read, 1<<62))
	if err != nil {
		return 0, err
	}
	whole := strings.LastIndexByte(string(text), '\n') + 1
	n.read += int64(whole)
	n.died += strings.Count(string(text[:whole]), deathMark)
	return n.died, nil
}
