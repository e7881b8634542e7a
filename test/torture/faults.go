package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is something that goes wrong. To add one, add a line here, a function that
// injects it, and a line to docs/torture.md.
type fault struct {
	name, help string
	// weight is how often it is chosen, compared with the others.
	weight int
	// cannot says why it cannot be injected here, "" if it can; nil if it always can.
	cannot func(r *run) string
	// inject makes it happen and returns when everything is well again. An error means
	// that it is not, or that it could not be done at all.
	inject func(i *injection) error
	// core says that it ends cores: handlers may lose the way to regions.
	core bool
	// kills says that it ends a process of a service: calls may fail.
	kills bool
}

// faults are all that there are.
var faults = []fault{
	{name: "worker-kill", help: "SIGKILL of a worker", weight: 30, inject: workerKill},
	{name: "service-kill", help: "SIGKILL of a service", weight: 15, inject: serviceKill, kills: true},
	{name: "worker-stop", help: "SIGSTOP of a worker for some time", weight: 4, inject: workerStop},
	{name: "service-stop", help: "SIGSTOP of a service for some time", weight: 4, inject: serviceStop},
	{name: "core-kill", help: "SIGKILL of a core", weight: 8, inject: coreKill, core: true},
	{name: "core-stop", help: "SIGSTOP of a core for some time", weight: 4, inject: coreStop},
	{name: "worker-core-kill", help: "SIGKILL of a worker and its core at once", weight: 4, inject: workerCoreKill, core: true},
	{name: "upgrade", help: "rdmad upgrade", weight: 6, cannot: cannotUpgrade, inject: upgrade, core: true},
	{name: "bootstrap-reset", help: "reset of the connection by which the nodes set up everything else", weight: 8, cannot: needsProxy, inject: bootstrapReset},
	{name: "data-reset", help: "reset of the connections of all lanes", weight: 10, cannot: needsDataProxy, inject: dataReset},
	{name: "link-reset", help: "reset of all connections between the nodes", weight: 10, cannot: needsProxy, inject: linkReset},
	{name: "half-close", help: "one direction of all connections ends", weight: 5, cannot: needsProxy, inject: halfClose},
	{name: "silence", help: "nothing passes between the nodes for some time, and then all of it", weight: 4, cannot: needsProxy, inject: silence},
	{name: "slow", help: "little passes between the nodes, and late", weight: 3, cannot: needsProxy, inject: slow},
	{name: "sock-destroy", help: "the kernel aborts all connections between the nodes (ss -K)", weight: 6, cannot: cannotDestroy, inject: sockDestroy},
	{name: "link-down", help: "the network interface of a node is down for some time", weight: 4, cannot: needsNamespaces, inject: linkDown},
	{name: "netem", help: "loss, delay, reordering, duplicates and corruption on the wire", weight: 4, cannot: cannotNetem, inject: netem},
	{name: "hostile-worker", help: "workers of another domain scribble over all they have mapped, and send garbage", weight: 3, cannot: cannotHostileWorker, inject: hostileWorker},
	{name: "hostile-peer", help: "strangers connect to a node's ports with garbage, replayed and damaged messages", weight: 3, cannot: cannotHostilePeer, inject: hostilePeer},
}

// group is a limit of how many faults of some kinds there are to be.
type group struct {
	flag   string
	faults []string
}

var groups = []group{
	{"worker-kills", []string{"worker-kill", "worker-core-kill"}},
	{"service-kills", []string{"service-kill"}},
	{"core-kills", []string{"core-kill", "worker-core-kill"}},
	{"link-resets", []string{"bootstrap-reset", "data-reset", "link-reset", "sock-destroy"}},
	{"upgrades", []string{"upgrade"}},
}

// injection is one fault of a run.
type injection struct {
	*run
	fault *fault
	// rng is where all its random choices come from.
	rng *rand.Rand
	// began and ended are when, as the ledger's times.
	began, ended int64
	// recovered are times by what was recovered from.
	recovered map[recovery]time.Duration
	// errors is how many calls failed because of it, and promised how many of them in a way that programs
	// are told to expect.
	errors, promised int
}

// recovery is what is measured after a fault.
type recovery int

const (
	recWorker recovery = iota
	recOrphans
	recCertain
	recFreed
	recSettled
	recCore
	recLink
	recUpgrade
	recoveries
)

// recoveryNames are what the table calls them.
var recoveryNames = [recoveries]string{
	"worker death to what it held free", "to its requests answered too",
	"of that in its daemon: hang-up to certain death", "certain death to what it held free", "certain death to its requests answered", "core death to a call answered", "link broken to a call answered", "upgrade to a call answered",
}

// between chooses a time.
func (i *injection) between(least, most time.Duration) time.Duration {
	return least + time.Duration(i.rng.Int64N(int64(most-least)))
}

// node chooses a node.
func (i *injection) node() *node { return i.nodes[i.rng.IntN(len(i.nodes))] }

// answeredAgain waits until calls that were begun after t have been answered in both
// directions, and notes how long that took if what is one; and then until calls within each node have been.
func (i *injection) answeredAgain(t int64, what recovery) error {
	answered := func(remote bool, which string) error {
		return await(i.ctx, recoverLimit, fmt.Sprintf("a call %s is answered after %s", which, i.fault.name), func() error {
			a, b := i.board.answeredSince(0, remote, t), i.board.answeredSince(1, remote, t)
			if a && b {
				return nil
			}
			return fmt.Errorf("%w: from a %v, from b %v", errNotYet, a, b)
		})
	}
	if err := answered(true, "to the other node"); err != nil {
		return err
	}
	if what >= 0 {
		i.recovered[what] = time.Duration(now() - t)
	}
	return answered(false, "to the own node")
}

// unmeasured is no recovery.
const unmeasured recovery = -1

// pause waits, less if the run ends.
func (i *injection) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-i.ctx.Done():
	}
}
