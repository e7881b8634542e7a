//go:build verbs && cgo && linux && faultpoints

package verbs

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdmad/rdmad/internal/fabric"
)

// HurtEnv is the environment variable with the prefix of the files that damage the
// connections of a process built with the tag "faultpoints": write what to do to the
// file of that prefix, a dot and the process's id, and send SIGUSR2. The file is gone
// when it is done.
//
//	pairs   every connected queue pair is put into its error state
//	key     the next write of the process has a key that the peer does not know
//	queues  completion queues lose the room that their queue pairs have reserved
const HurtEnv = "RDMAD_FAULT_VERBS"

var (
	hurtMu  sync.Mutex
	hurting = map[*Device]struct{}{}
	// wrongKeys is how many more writes are to have a wrong key.
	wrongKeys atomic.Int32
)

func init() {
	prefix := os.Getenv(HurtEnv)
	if prefix == "" {
		return
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR2)
	go func() {
		name := prefix + "." + strconv.Itoa(os.Getpid())
		for range told {
			what, err := os.ReadFile(name)
			if err == nil {
				err = hurt(strings.TrimSpace(string(what)))
			}
			if err != nil {
				panic(fmt.Sprintf("verbs: %s: %v", HurtEnv, err))
			}
			_ = os.Remove(name)
		}
	}()
}

// hurt does one of the things that HurtEnv lists, to all open devices.
func hurt(what string) error {
	hurtMu.Lock()
	defer hurtMu.Unlock()
	for d := range hurting {
		switch what {
		case "pairs":
			d.hurtPairs()
		case "key":
			wrongKeys.Store(1)
		case "queues":
			d.hurtQueues()
		default:
			return fmt.Errorf("%q is nothing that can be done", what)
		}
	}
	return nil
}

func (d *Device) hurtPairs() {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.endpoints)) // who makes or closes an endpoint takes its lock before the device's
	d.mu.Unlock()
	for _, e := range all {
		e.mu.Lock()
		if p := e.phase(); !e.destroyed && (p == phaseConnected || p == phaseActive) {
			_ = e.lib.toError() // it may be there already
		}
		e.mu.Unlock()
	}
}

// hurtQueues makes queues as small as the device lets them be.
func (d *Device) hurtQueues() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q := range d.queues {
		q.mu.Lock()
		if !q.closed {
			_ = q.lib.resize(1) // refused while more is in it
		}
		q.mu.Unlock()
	}
}

// vulnerable and safe bound the time in which the device can be damaged.
func (d *Device) vulnerable() {
	hurtMu.Lock()
	defer hurtMu.Unlock()
	hurting[d] = struct{}{}
}

func (d *Device) safe() {
	hurtMu.Lock()
	defer hurtMu.Unlock()
	delete(hurting, d)
}

// spoil damages a work request if that was asked for.
func spoil(s *cSend) {
	if fabric.Op(s.op) == fabric.OpWriteImm && wrongKeys.Load() > 0 && wrongKeys.Add(-1) == 0 {
		s.rkey ^= 0x55
	}
}
