package guard

import (
	"fmt"
	"os"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// callerProcess is a process that runs runCaller.
type callerProcess struct {
	*daemontest.Process
	t  *testing.T
	in *os.File
}

func startCaller(t *testing.T, n *daemontest.Node) *callerProcess {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &callerProcess{Process: daemontest.SpawnWith(t, out, "caller", n.Socket), t: t, in: in}
	_ = out.Close()
	return c
}

// rounds lets the caller make rounds, and returns how many objects it has allocated.
func (c *callerProcess) rounds(style string, n int) (allocated int) {
	if _, err := fmt.Fprintln(c.in, style, n); err != nil {
		c.t.Error(err)
		return 0
	}
	line := c.Line()
	if _, err := fmt.Sscan(line, &allocated); err != nil {
		c.t.Errorf("a caller said %q: %v", line, err)
	}
	return allocated
}

func (c *callerProcess) stop() {
	_ = c.in.Close()
	c.Kill()
}

func startService(t *testing.T, n *daemontest.Node) *daemontest.Process {
	t.Helper()
	return daemontest.Spawn(t, "service", n.Socket)
}

// sleepsAtOnce keeps agents from polling before they sleep: how often they look then depends on
// how long others take, and not on what is to be done.
const sleepsAtOnce = "[agent]\nidle = \"event\"\n"

// rig is two nodes, a service on b, and a caller on a.
type rig struct {
	*callerProcess
	a, b    *daemontest.Node
	service *daemontest.Process
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	r.a, r.b = daemontest.Pair(t, sleepsAtOnce)
	r.service, r.callerProcess = startService(t, r.b), startCaller(t, r.a)
	return r
}

// newLocalRig is a rig whose caller is on b, too.
func newLocalRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{}
	r.a, r.b = daemontest.Pair(t, sleepsAtOnce)
	r.service, r.callerProcess = startService(t, r.b), startCaller(t, r.b)
	return r
}

// newEmbeddedRig is a rig whose nodes have the service within their cores.
func newEmbeddedRig(t *testing.T) *rig {
	t.Helper()
	t.Setenv(withinCores, "1")
	r := &rig{}
	r.a, r.b = daemontest.Pair(t, sleepsAtOnce)
	r.callerProcess = startCaller(t, r.a)
	return r
}

// stop ends the processes; the nodes stop at the end of the test.
func (r *rig) stop() {
	r.callerProcess.stop()
	if r.service != nil {
		r.service.Kill()
	}
}

// core returns the process id of a node's core.
func (r *rig) core(n *daemontest.Node) int {
	r.t.Helper()
	pid, err := n.Core()
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

// The roles of traced processes: the caller, the requester's daemon, the answerer's
// daemon and the service.
const (
	theCaller  = "caller"
	theNear    = "near daemon"
	theFar     = "far daemon"
	theService = "service"
)

// roles are all of them.
var roles = []string{theCaller, theNear, theFar, theService}

func (r *rig) roles() map[int]string {
	all := map[int]string{r.Process.Process.Pid: theCaller, r.core(r.a): theNear, r.core(r.b): theFar}
	if r.service != nil {
		all[r.service.Process.Pid] = theService
	}
	return all
}

// traced counts what rounds of a style cost, each process by its role.
func traced(t *testing.T, r *rig, style string, rounds int) calls {
	t.Helper()
	defer r.stop()
	r.rounds(style, warmUp)
	x := trace(t, r.roles())
	defer x.stop()
	r.rounds(style, warmUp)
	x.take()
	r.rounds(style, rounds)
	got := x.take()
	for _, role := range roles {
		t.Logf("%d rounds of %s, %s: %v", rounds, style, role, got[role])
	}
	return got
}

// warmUp is how many rounds come before those that are counted, while they are traced: enough for
// agents to learn whether it is worth to stay awake while others run (shm.Linger).
const warmUp = 150

// perMessage is what there is of each message of rounds: what the roles' processes do, and how often anybody
// wakes another one up.
func perMessage(got calls, messages int) map[string]float64 {
	each, woken := map[string]float64{}, 0
	for _, role := range roles {
		each[role] = float64(got.sum(role, costs...)) / float64(messages)
		woken += got.sum(role, wakes...)
	}
	each["wake-ups"] = float64(woken) / float64(messages)
	return each
}

// byRuntime is how often the Go runtime wakes threads, or has them sleep, for each message.
// With calls one at a time that says more about the machine than about the program.
func byRuntime(got calls, messages int) (each float64) {
	for _, role := range roles {
		each += float64(got.sum(role, sched)) / float64(messages)
	}
	return each
}

func oneCall(t *testing.T) map[string]float64 {
	const rounds = 60
	return perMessage(traced(t, newRig(t), "call", rounds), rounds)
}

// withinCore counts calls of a method that the far daemon's agent handles itself.
func withinCore(t *testing.T) map[string]float64 {
	const rounds = 60
	each := perMessage(traced(t, newEmbeddedRig(t), "call", rounds), rounds)
	delete(each, theService)
	return each
}

// rested counts calls of which each finds all asleep: what they ring is counted here.
func rested(t *testing.T) map[string]float64 {
	const rounds = 60
	return perMessage(traced(t, newRig(t), "rested", rounds), rounds)
}

func batches(t *testing.T) map[string]float64 {
	const rounds = 20
	got := traced(t, newRig(t), "batch", rounds)
	each := perMessage(got, rounds*batchSize)
	each["Go runtime"] = byRuntime(got, rounds*batchSize)
	const messages = 2 * rounds * batchSize // requests and answers
	each["work requests"] = float64(got.sum(theNear, frames)+got.sum(theFar, frames)) / messages
	each["copied to send"] = float64(got.sum(theNear, sentCopies)+got.sum(theFar, sentCopies)) / messages
	each["copied when received"] = float64(got.sum(theNear, gotCopies)+got.sum(theFar, gotCopies)) / messages
	each["bytes sent"] = float64(got.sum(theNear, sentCopies, sentInPlace)+got.sum(theFar, sentCopies, sentInPlace)) / messages
	return each
}

func oneWay(t *testing.T) map[string]float64 {
	const rounds = 20
	got := traced(t, newRig(t), "posts", rounds)
	each := perMessage(got, rounds*batchSize)
	each["Go runtime"] = byRuntime(got, rounds*batchSize)
	return each
}

func withinNode(t *testing.T) map[string]float64 {
	const rounds = 60
	each := perMessage(traced(t, newLocalRig(t), "call", rounds), rounds)
	each["daemon"] = each[theFar]
	delete(each, theFar)
	delete(each, theNear)
	return each
}

// pages counts the bytes that daemons copy for each byte of larger messages.
func pages(t *testing.T) map[string]float64 {
	const rounds = 40
	got := traced(t, newRig(t), "pages", rounds)
	return copied(got, 2*rounds*pageSize)
}

// regions counts them for operations on regions.
func regions(t *testing.T) map[string]float64 {
	const rounds = 5
	got := traced(t, newRig(t), "regions", rounds)
	return copied(got, 2*rounds*regionSize)
}

// copied is what the daemons copy of so many bytes.
func copied(got calls, bytes int) map[string]float64 {
	both := func(kinds ...kind) float64 {
		return float64(got.sum(theNear, kinds...)+got.sum(theFar, kinds...)) / float64(bytes)
	}
	return map[string]float64{"copied to send": both(sentCopies), "copied when received": both(gotCopies), "bytes sent": both(sentCopies, sentInPlace)}
}
