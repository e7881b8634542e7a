package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// fleet is the worker and service processes of a run. Its methods belong to the
// scheduler's goroutine, except of failed.
type fleet struct {
	spawner *spawner
	program string
	board   *board
	base    roleArgs
	// sockets are where each node's workers attach.
	sockets map[string]string
	depth   int

	mu      sync.Mutex
	next    int
	members []*member
	// past are the members that have been replaced.
	past []*member
}

// peerOf is the other node.
func peerOf(node string) string {
	if node == "a" {
		return "b"
	}
	return "a"
}

// start starts a process on a node.
func (f *fleet) start(role, node string, witness bool) (*member, error) {
	f.mu.Lock()
	f.next++
	args := f.base
	args.Instance = f.next
	f.mu.Unlock()
	args.Socket, args.Node, args.Peer = f.sockets[node], node, peerOf(node)
	args.Seed, args.Depth, args.Witness = mix(f.base.Seed^uint64(args.Instance)), f.depth, witness
	switch {
	case witness:
		args.Depth = 1
	case role == "service":
		args.Depth = 16
	}
	m, err := startMember(f.spawner, f.program, role, args, nil)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.members = append(f.members, m)
	f.mu.Unlock()
	return m, nil
}

// replace starts a process in place of one that has been killed.
func (f *fleet) replace(m *member) error {
	f.mu.Lock()
	for i, old := range f.members {
		if old == m {
			f.members = append(f.members[:i], f.members[i+1:]...)
			f.past = append(f.past, m)
			break
		}
	}
	f.mu.Unlock()
	_, err := f.start(m.role, m.args.Node, m.args.Witness)
	return err
}

// of returns the members with a role; the witness is none of the workers.
func (f *fleet) of(role string) []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*member
	for _, m := range f.members {
		if m.role == role && !m.args.Witness {
			found = append(found, m)
		}
	}
	return found
}

// all returns everybody who has not been replaced.
func (f *fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*member(nil), f.members...)
}

// pick chooses a member with a role.
func (f *fleet) pick(rng *rand.Rand, role string) *member {
	all := f.of(role)
	return all[rng.IntN(len(all))]
}

// failed returns who has ended without having been killed.
func (f *fleet) failed() error {
	var errs []error
	for _, m := range f.all() {
		if !m.alive() && !m.killed.Load() {
			errs = append(errs, fmt.Errorf("%s %d on node %s ended by itself: %v", m.role, m.args.Instance, m.args.Node, m.err))
		}
	}
	return errors.Join(errs...)
}

// finish tells the workers to make no more calls and waits until all they have made have
// an outcome, or until limit. It returns the workers that have not finished.
func (f *fleet) finish(limit time.Duration) (stuck []*member) {
	late := time.After(limit)
	var workers []*member
	for _, m := range f.all() {
		if m.role == "worker" {
			_ = m.in.Close()
			workers = append(workers, m)
		}
	}
	over := false
	for _, m := range workers {
		if !over {
			select {
			case <-m.finished:
			case <-m.gone:
			case <-late:
				over = true
			}
		}
		// Also one that was waited for: both may have been there, and one is chosen at random.
		select {
		case <-m.finished:
		case <-m.gone:
		default:
			stuck = append(stuck, m)
		}
	}
	return stuck
}

// memberGrace is how long a process gets to end.
const memberGrace = time.Minute

// stop ends everybody, workers first.
func (f *fleet) stop() error {
	var mu sync.Mutex
	var errs []error
	for _, role := range []string{"worker", "service"} {
		var ending sync.WaitGroup
		for _, m := range f.all() {
			if m.role != role || !m.alive() {
				continue
			}
			ending.Go(func() {
				err := m.stop(memberGrace)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		ending.Wait()
	}
	return errors.Join(errs...)
}

// kill ends everybody at once.
func (f *fleet) kill() {
	for _, m := range f.all() {
		m.kill()
	}
}

// killedInstances returns who was killed: their calls may be without an outcome.
func (f *fleet) killedInstances() map[int]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	killed := map[int]bool{}
	for _, m := range append(append([]*member(nil), f.past...), f.members...) {
		if m.killed.Load() {
			killed[m.args.Instance] = true
		}
	}
	return killed
}
