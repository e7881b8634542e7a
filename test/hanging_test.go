package test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// wantHanging checks that a command blames the daemon of its own node, in one line, and says
// what to do next.
func wantHanging(t *testing.T, what string, r ran) {
	t.Helper()
	r.check(t, what, 1, "the daemon does not answer on ", "rdmad support-bundle")
	if strings.Count(r.errOut, "\n") != 1 {
		t.Errorf("%s: not one line:\n%s", what, r.errOut)
	}
}

// A call by a core that hangs says that it hangs, whether it hung before or during the call.
// A handler that takes too long is something else.
func TestCallOfHangingCore(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "sleep", 0)
	core := c.status("a").PIDs.Core
	slowly := func(timeout string) *exec.Cmd {
		cmd := rdmad(t, "call", "b/jobs/sleep", "-", "--timeout", timeout, "--socket", c.socket("a"))
		cmd.Stdin = bytes.NewReader(encoded(600_000))
		return cmd
	}
	call := func(timeout string) ran {
		return run(t, slowly(timeout))
	}
	runInTime(t, func() *exec.Cmd { return slowly("200ms") }).check(t, "a call of a slow handler", 1, "deadline", "give it longer with --timeout")

	resume := halt(t, core)
	wantHanging(t, "a call", call("200ms"))
	wantHanging(t, "a ping", run(t, rdmad(t, "ping", "b", "--timeout", "200ms", "--socket", c.socket("a"))))
	resume()

	// The core halts while the call is under way; if it is over before that, once more.
	for received := c.status("b").Counters["requests_received"]; ; {
		b := begin(t, slowly("5s"))
		eventually(t, "the request is with its handler", func() bool { return c.status("b").Counters["requests_received"] > received })
		resume := halt(t, core)
		r := b.end()
		resume()
		if received = c.status("b").Counters["requests_received"]; strings.Contains(r.errOut, "give it longer") {
			continue
		}
		wantHanging(t, "a call under way", r)
		return
	}
}

// Commands that do nothing but attach to a core that hangs, or that have less time than a look takes, say that it hangs.
func TestToolsOfHangingCore(t *testing.T) {
	c := newCluster(t, sandbox.Settings{}, "a")
	c.start("a")
	defer halt(t, c.status("a").PIDs.Core)()
	var begun []*running
	var names []string
	for _, args := range []string{"echo", "bench call", "trace --timeout 200ms", "reload --timeout 200ms"} {
		names = append(names, args)
		begun = append(begun, begin(t, rdmad(t, append(strings.Fields(args), "--socket", c.socket("a"))...)))
	}
	for i, b := range begun {
		wantHanging(t, names[i], b.end())
	}
}
