package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/status"
)

// attachID returns the attach id of a process, which is 0 while it is not attached.
func attachID(s *status.Node, pid int) int {
	for _, w := range s.Workers {
		if w.PID == pid {
			return w.ID
		}
	}
	return 0
}

// workerKill kills a worker and waits until its slots are free.
func workerKill(i *injection) error {
	m := i.fleet.pick(i.rng, "worker")
	n := i.nodeOf(m)
	s, err := n.status(i.ctx)
	if err != nil {
		return err
	}
	id := attachID(s, m.pid())
	t := now()
	m.kill()
	if id > 0 {
		err := await(i.ctx, recoverLimit, fmt.Sprintf("the slots of worker %d on node %s are free", m.args.Instance, n.name), func() error {
			err := i.inspectors[nodeIndex(n.name)].free(i.ctx, id)
			if _, noted := i.recovered[recWorker]; !noted && (err == nil || errors.Is(err, errOnTheirWay)) {
				i.recovered[recWorker] = time.Duration(now() - t)
			}
			return err
		})
		if err != nil {
			return err
		}
		i.recovered[recOrphans] = time.Duration(now() - t)
		if err := i.deathTimes(n, &s.Deaths); err != nil {
			return err
		}
	}
	return i.fleet.replace(m)
}

// deathTimes notes what the daemon has measured of the only death since before.
func (i *injection) deathTimes(n *node, before *status.Deaths) error {
	s, err := n.status(i.ctx)
	if err != nil {
		return err
	}
	for what, pair := range map[recovery][2]*status.Delays{
		recCertain: {&before.Certain, &s.Deaths.Certain}, recFreed: {&before.Freed, &s.Deaths.Freed}, recSettled: {&before.Settled, &s.Deaths.Settled},
	} {
		if d, ok := added(pair[0], pair[1]); ok {
			i.recovered[what] = d
		}
	}
	return nil
}

// added returns the time by which after has more than before, to within its bucket. False:
// it has not one more.
func added(before, after *status.Delays) (time.Duration, bool) {
	if after.Count != before.Count+1 {
		return 0, false
	}
	had := map[float64]uint64{}
	for _, b := range before.Buckets {
		had[b.BelowUS] = b.Count
	}
	for _, b := range after.Buckets {
		if b.Count > had[b.BelowUS] {
			return time.Duration(min(b.BelowUS, after.MaxUS) * float64(time.Microsecond)), true
		}
	}
	return 0, false
}

// serviceKill kills a service and starts another.
func serviceKill(i *injection) error {
	m := i.fleet.pick(i.rng, "service")
	m.kill()
	if err := i.fleet.replace(m); err != nil {
		return err
	}
	return i.answeredAgain(now(), unmeasured)
}

// workerStop stops a worker, and compares the others' pace with that before.
func workerStop(i *injection) error {
	m := i.fleet.pick(i.rng, "worker")
	d := i.between(300*time.Millisecond, 1500*time.Millisecond)
	i.during(phaseRunning, d)
	m.signal(syscall.SIGSTOP)
	i.during(phaseStopped, d)
	m.signal(syscall.SIGCONT)
	return i.answeredAgain(now(), unmeasured)
}

// serviceStop stops a service for some time.
func serviceStop(i *injection) error {
	m := i.fleet.pick(i.rng, "service")
	m.signal(syscall.SIGSTOP)
	i.pause(i.between(100*time.Millisecond, 1500*time.Millisecond))
	m.signal(syscall.SIGCONT)
	return i.answeredAgain(now(), unmeasured)
}

// coreKill kills the core of a node.
func coreKill(i *injection) error {
	n := i.node()
	pid, err := n.core(i.ctx)
	if err != nil {
		return err
	}
	i.killing(n)
	t := now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return i.answeredAgain(t, recCore)
}

// coreStop stops the core of a node for some time.
func coreStop(i *injection) error {
	pid, err := i.node().core(i.ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	i.pause(i.between(100*time.Millisecond, 3*time.Second))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return err
	}
	return i.answeredAgain(now(), unmeasured)
}

// workerCoreKill kills a worker and the core that is to clean up after it.
func workerCoreKill(i *injection) error {
	m := i.fleet.pick(i.rng, "worker")
	n := i.nodeOf(m)
	pid, err := n.core(i.ctx)
	if err != nil {
		return err
	}
	i.killing(n)
	m.killed.Store(true)
	m.signal(syscall.SIGKILL)
	t := now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	m.kill()
	if err := i.fleet.replace(m); err != nil {
		return err
	}
	return i.answeredAgain(t, recCore)
}

// cannotUpgrade says whether the program can be replaced while it runs.
func cannotUpgrade(r *run) string {
	out, err := exec.CommandContext(r.ctx, r.program, "upgrade", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rdmad upgrade") {
		return "this rdmad has no command upgrade"
	}
	return ""
}

// upgrade makes a node run its program anew.
func upgrade(i *injection) error {
	n := i.node()
	i.replacing(n)
	t := now()
	cmd := exec.CommandContext(i.ctx, i.program, "upgrade", "--socket", n.socket)
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("rdmad upgrade of node %s: %w", n.name, err), errors.New(strings.TrimSpace(string(out))))
	}
	return i.answeredAgain(t, recUpgrade)
}
