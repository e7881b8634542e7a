package main

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// credential is the credential of a user and its group.
func credential(uid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

const (
	// rounds is how often hostility, honest work and calm take turns, turn how long each is.
	rounds = 3
	turn   = 500 * time.Millisecond
)

func cannotHostileWorker(r *run) string {
	if hostileUser() < 0 {
		return "a second domain needs processes of another user, which needs root"
	}
	cmd := exec.CommandContext(r.ctx, r.self, "--help")
	cmd.SysProcAttr = credential(hostileUser())
	if err := cmd.Run(); err != nil {
		return "another user cannot run the programs: " + err.Error()
	}
	return ""
}

// band are processes that are stopped and go on together.
type band []*member

func (b band) signal(s syscall.Signal) {
	for _, m := range b {
		m.signal(s)
	}
}

// used is the processor time that all of them have taken.
func (b band) used() (sum time.Duration) {
	for _, m := range b {
		sum += processorTime(m.pid())
	}
	return sum
}

// pace tells neighbours how much processor time each may take in a turn.
func (b band) pace(each time.Duration) {
	for _, m := range b {
		_, _ = fmt.Fprintln(m.in, int64(each)*1e6/int64(turn)) // fails if it has ended, which is noticed elsewhere
	}
}

// hostileWorker starts hostile workers as clients and services of both nodes and measures
// the calls of the other domain with them and, in turns, with as many honest ones in their
// place, which take as much of the processors, and while all are stopped.
func hostileWorker(i *injection) error {
	bands := map[string]band{}
	defer func() {
		for _, b := range bands {
			for _, m := range b {
				m.kill()
			}
		}
	}()
	for k, c := range []struct {
		role  string
		node  int
		serve bool
	}{
		{"decoy", 0, false}, {"decoy", 1, false}, {"neighbour", 0, false}, {"neighbour", 0, false}, {"neighbour", 1, false},
		{"hostile", 0, false}, {"hostile", 0, true}, {"hostile", 1, true},
	} {
		n := i.nodes[c.node]
		args := roleArgs{Dir: i.dir, Socket: n.socket, Node: n.name, Peer: peerOf(n.name), Seed: i.rng.Uint64(), Instance: k, Serve: c.serve}
		m, err := startMember(i.spawner, i.self, c.role, args, func(cmd *exec.Cmd) { cmd.SysProcAttr = credential(hostileUser()) })
		if err != nil {
			return err
		}
		bands[c.role] = append(bands[c.role], m)
	}
	decoys, neighbours, hostile := bands["decoy"], bands["neighbour"], bands["hostile"]
	neighbours.signal(syscall.SIGSTOP)
	before, err := i.offences()
	if err != nil {
		return err
	}
	t := now()
	for range rounds {
		took := hostile.used()
		i.during(phaseHostile, turn)
		took = hostile.used() - took
		hostile.signal(syscall.SIGSTOP)

		done := neighbours.used()
		neighbours.pace(took / time.Duration(len(neighbours)))
		neighbours.signal(syscall.SIGCONT)
		i.during(phaseNeighbours, turn)
		neighbours.signal(syscall.SIGSTOP)
		i.hostileTime, i.neighbourTime = i.hostileTime+took, i.neighbourTime+neighbours.used()-done

		decoys.signal(syscall.SIGSTOP)
		i.during(phaseCalm, turn)
		decoys.signal(syscall.SIGCONT)
		hostile.signal(syscall.SIGCONT)
	}
	neighbours.signal(syscall.SIGCONT) // so that they can end
	if err := i.noticed(before); err != nil {
		return err
	}
	return i.answeredAgain(t, unmeasured)
}

// offences is what the daemons have counted that no honest worker or peer does.
func (i *injection) offences() (n uint64, err error) {
	for _, d := range i.nodes {
		s, err := d.status(i.ctx)
		if err != nil {
			return 0, err
		}
		n += s.Counters["protocol_errors"] + s.Counters["refused_connections"]
	}
	return n, nil
}

// noticed checks that the daemons have counted more offences: else the hostility has not
// come to them, and proves nothing.
func (i *injection) noticed(before uint64) error {
	return await(i.ctx, recoverLimit, "a daemon notices the hostility", func() error {
		if n, err := i.offences(); err != nil || n > before {
			return err
		}
		return errNotYet
	})
}

func cannotHostilePeer(r *run) string {
	switch {
	case !r.options.tls:
		return "without TLS nodes believe every peer"
	case r.wire != nil:
		return "the harness does not reach nodes in namespaces"
	}
	return ""
}

// hostilePeer plays a stranger who reaches a node's ports and has heard what peers say.
func hostilePeer(i *injection) error {
	before, err := i.offences()
	if err != nil {
		return err
	}
	t := now()
	for range rounds {
		i.during(phasePeerCalm, turn)
		s := newStranger(i)
		i.during(phaseHostilePeer, turn)
		s.stop()
	}
	if err := i.noticed(before); err != nil {
		return err
	}
	return i.answeredAgain(t, unmeasured)
}
