package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
)

// The command follows requests of other processes, for people and for programs. The names
// of the members of its JSON are what others rely on.
func TestTraceCommand(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	c.awaitService("a", "b", "echo", "echo", 0)
	command := func(args ...string) *running {
		cmd := rdmad(t, args...)
		cmd.Env = append(cmd.Env, "RDMAD_SOCKET="+c.socket("a"))
		return begin(t, cmd)
	}
	load := command("bench", "call", "--clients", "2", "--depth", "4", "--duration", "30m", "--target", "b") // it is killed
	eventually(t, "the load has begun", func() bool { return workerNamed(c.status("a"), "bench-call").PID != 0 })
	var r ran
	// The other end has some seconds to tell its stages, in which a machine may stand still: then once more.
	for range 5 {
		r = command("trace", "--count", "3", "--sample", "5", "--worker", "bench-call", "--timeout", "60s").end()
		if !strings.Contains(r.out, "the other end tells no stages") {
			break
		}
	}
	r.check(t, "rdmad trace", 0, "request 3: b/echo/echo of bench-call", "answered", "handled by echo", "STAGE", "claim", "inbox", "total", "path: tcp to", "group of", "work request")
	r = command("trace", "--count", "2", "--json", "--timeout", "60s").end()
	r.check(t, "rdmad trace --json", 0)
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	list, _ := got["traces"].([]any)
	if len(list) != 2 || got["node"] != "a" || got["ended"] != "count" {
		t.Fatalf("%v", got)
	}
	for path, want := range map[string]string{
		"":       "ended node seen skipped traces",
		"traces": "answer_bytes caller detail domain from handler kind method outcome path request_bytes service stages to total_ns",
		"caller": "id name pid",
		"stages": "clock known ns stage",
		"detail": "collected_ns completed_ns given_ns posted_ns taken_ns",
		"path":   "address answer_group_messages class group_messages group_slots inline lane local number provider queued redispatched resent slot slots slots_per_wr wrs",
	} {
		of := got
		if path != "" {
			of = list[0].(map[string]any)
		}
		switch path {
		case "", "traces":
		case "stages":
			of = of[path].([]any)[0].(map[string]any)
		default:
			of = of[path].(map[string]any)
		}
		var keys []string
		for k := range of {
			if k != "notes" {
				keys = append(keys, k)
			}
		}
		if slices.Sort(keys); strings.Join(keys, " ") != want {
			t.Errorf("%q has %q", path, strings.Join(keys, " "))
		}
	}
	_ = load.cmd.Process.Kill()
	_ = load.end()
}

// Commands that make one call and end have stamps, and their names.
func TestTraceOfBriefCommands(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	c.awaitService("a", "b", "echo", "echo", 0)
	const calls = 3
	r := begin(t, rdmad(t, "trace", "--count", fmt.Sprint(calls), "--service", "echo", "--timeout", "60s", "--json", "--socket", c.socket("a")))
	traced := func() bool {
		return slices.ContainsFunc(c.status("a").Workers, func(w status.Worker) bool { return w.Name == "rdmad-trace" })
	}
	eventually(t, "the trace has begun", traced)
	pids := map[int]bool{}
	for traced() {
		call := begin(t, rdmad(t, "call", "b/echo/echo", "hello", "--socket", c.socket("a")))
		call.end().check(t, "rdmad call", 0, "hello")
		pids[call.cmd.Process.Pid] = true
	}
	got := r.end()
	got.check(t, "rdmad trace", 0)
	var list struct{ Traces []status.Trace }
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Traces) != calls {
		t.Errorf("%d traces", len(list.Traces))
	}
	for _, tr := range list.Traces {
		for _, s := range tr.Stages[:2] { // claim and queue
			if !s.Known {
				t.Errorf("nothing of %s: %v", s.Stage, tr.Notes)
			}
		}
		if tr.Caller.Name != "rdmad-call" || !pids[tr.Caller.PID] {
			t.Errorf("the caller is %+v", tr.Caller)
		}
	}
}

// A daemon that is upgraded ends the trace, with one clear line.
func TestTraceDuringUpgrade(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	cmd := rdmad(t, "trace", "--service", "nobody", "--timeout", "40s", "--socket", c.socket("a"))
	r := begin(t, cmd)
	eventually(t, "the trace has begun", func() bool {
		return slices.ContainsFunc(c.status("a").Workers, func(w status.Worker) bool { return w.Name == "rdmad-trace" })
	})
	run(t, rdmad(t, "upgrade", "--socket", c.socket("a"))).check(t, "rdmad upgrade", 0)
	got := r.end()
	got.check(t, "rdmad trace", 1, "the trace has ended after 0 of 1 requests", "upgraded")
	if strings.Count(got.errOut, "\n") != 1 {
		t.Errorf("not one line: %s", got.errOut)
	}
}
