package test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// parentRole claims slots, leaves its socket to a child process, and says its attach id
// and how many slots it holds. The child ends with what it has from the test as
// descriptor 3.
func parentRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	w, err := rawAttach(args)
	if err != nil {
		return err
	}
	for range args.Messages {
		if _, err := w.rings[0].Claim(w.id, 1); err != nil {
			return err
		}
	}
	socket, err := w.sock.File()
	if err != nil {
		return err
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleEnv+"=child")
	child.Stdin, child.ExtraFiles = os.NewFile(3, "end"), []*os.File{socket}
	if err := child.Start(); err != nil {
		return err
	}
	if err := say.Encode([2]int{w.id, args.Messages}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// childRole lives until its standard input ends.
func childRole(ctx context.Context, _ *roleArgs, _ *json.Encoder) error {
	<-ctx.Done()
	return nil
}

// What a process has forked may have its memory too: as long as one has the socket, the
// slots of the attachment stay, although the process that the daemon knows is dead.
func TestForkedWorker(t *testing.T) {
	c, args := shareRig(t, quarters, "who", 4)
	end, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	args.Messages = 5
	parent := startMember(t, "parent", args, func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{end} })
	var said [2]int
	parent.hear(&said)
	watch, err := rawAttach(&args)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.close()
	if err := parent.kill(); err == nil {
		t.Error("the parent ended by itself")
	}
	// The daemon does its work, and looks at the rings, while the child lives.
	conn := c.attach("a")
	for range 2000 {
		if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := watch.held(said[0]); n != said[1] {
		t.Errorf("the worker of a dead parent and a living child holds %d slots, want %d", n, said[1])
	}
	if !slices.ContainsFunc(c.status("a").Workers, func(w status.Worker) bool { return w.PID == parent.pid() }) {
		t.Error("it is no worker any more")
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its slots are free", func() bool { return watch.held(said[0]) == 0 })
}

// squatterRole attaches, closes its socket, and goes on writing all over the memory of
// its domain.
func squatterRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	w, err := rawAttach(args)
	if err != nil {
		return err
	}
	if err := w.sock.Close(); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := 0; ctx.Err() == nil; n++ {
		for range 1000 {
			b := w.segs[r.IntN(len(w.segs))].Bytes()
			// Words rather than payload.
			b[r.IntN(min(len(b), 16<<10))] = byte(r.Uint32())
		}
		if n == 100 {
			if err := say.Encode(n); err != nil {
				return err
			}
		}
		time.Sleep(100 * time.Microsecond) // processors are not what it is to damage
	}
	return nil
}

// A process that has closed its socket and goes on writing hurts its own domain at worst:
// the daemons stay, and another domain does not notice.
func TestSquatter(t *testing.T) {
	needRoot(t)
	c := newPair(t, sandbox.Settings{
		SocketMode: "0666",
		Extra:      "[limits]\nspill_after = \"100ms\"\n[[domain]]\nname = \"one\"\nusers = [0]\n\n[[domain]]\nname = \"two\"\nusers = [65534]\n",
	})
	startService(t, c, "b", "jobs")
	theirs := startMember(t, "service", roleArgs{Socket: c.socket("b"), Service: "theirs", Handlers: 4}, asNobody)
	var pid int
	theirs.hear(&pid)
	c.awaitService("a", "b", "jobs", "transform", 0)
	c.awaitService("a", "b", "theirs", "who", 0)
	tr := startTraffic(t, c.attach("a"), "b/jobs/transform")
	core := map[string]int{"a": c.status("a").PIDs.Core, "b": c.status("b").PIDs.Core}
	m := startMember(t, "squatter", roleArgs{Socket: c.socket("a"), Node: "b", Service: "theirs", Method: "who"}, asNobody)
	var writes int
	m.hear(&writes)
	for range 20 {
		tr.flows(t)
	}
	if err := m.kill(); err == nil {
		t.Error("the squatter ended by itself")
	}
	tr.flows(t)
	tr.undisturbed(t)
	for name, pid := range core {
		if s := c.status(name); s.PIDs.Core != pid {
			t.Errorf("the core of %s was replaced", name)
		}
	}
	eventually(t, "the squatter is gone", func() bool { return workerNamed(c.status("a"), "raw") == status.Worker{} })
	if err := theirs.kill(); err == nil {
		t.Error("a service ended by itself")
	}
}
