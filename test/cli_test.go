package test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/version"
)

// Command lines that need no daemon.
func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.toml"), filepath.Join(dir, "bad.toml")
	for file, text := range map[string]string{
		good: config.Example(),
		bad:  "[node]\nnam = \"a\"\n[agent]\ncount = 0\nidle = \"never\"\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := filepath.Join(dir, "none.sock")
	for _, c := range []struct {
		args   string
		status int
		words  []string
	}{
		{"", 0, []string{"Usage:", "sandbox", "bench", "status"}},
		{"help call", 0, []string{"Usage:", "--answer-size"}},
		{"help rdmad", 0, []string{"Usage:", "Look at a node:"}},
		{"help rdmad call", 0, []string{"Usage:", "--answer-size"}},
		{"help rdma", 2, []string{"no command is called \"rdma\""}},
		{"status --socket " + good, 1, []string{good + " is no socket"}},
		{"completion bash", 0, []string{"complete"}},
		{"version", 0, []string{"rdmad " + version.Version, "revision ", runtime.Version(), "providers: tcp", "ABI 4.4", "peer protocol "}},
		{"--version", 0, []string{"rdmad " + version.Version, "revision ", "peer protocol "}},
		{"--version extra", 2, []string{`unknown command "extra"`}},
		{"version --json", 0, []string{`"version": "` + version.Version + `"`, `"abi": "4.4"`}},
		{"nonsense", 2, []string{`unknown command "nonsense"`, "rdmad --help"}},
		{"statu", 2, []string{`did you mean "status"`}},
		{"status --nonsense", 2, []string{"--nonsense", "rdmad status --help"}},
		{"status extra", 2, []string{"extra"}},
		{"call", 2, []string{"a target"}},
		{"call x y z", 2, []string{"a target"}},
		{"ping", 2, []string{"name of a node"}},
		{"ping b -n 0", 2, []string{"--count 0"}},
		{"trace extra", 2, []string{"extra"}},
		{"trace --count 0", 2, []string{"a trace of 0 requests", "rdmad trace --help"}},
		{"trace --sample 0", 2, []string{"--sample 0"}},
		{"trace --timeout 0s", 2, []string{"want more than 0"}},
		{"trace --service a/b", 2, []string{`"a/b"`}},
		{"echo --workers 0", 2, []string{"--workers 0"}},
		{"devices extra", 2, []string{"extra"}},
		{"help bench", 0, []string{"Processor time is that of", "services, also those of this node, and other nodes are not in it"}},
		{"help doctor", 0, []string{"Exit status: 0", "--peer"}},
		{"bench nonsense", 2, []string{"rdmad bench --help"}},
		{"bench call --size 1XB", 2, []string{"--size", "8KiB"}},
		{"bench call --size 3000000000", 2, []string{"size 3000000000: want 0 to 1073741824 bytes"}},
		{"bench call --size 99999999999999999999", 2, []string{"--size", "want at most 1099511627776 bytes"}},
		{"call b/echo/echo hi --answer-size 2GiB", 2, []string{"--answer-size 2147483648: no answer has more than 1073741824 bytes"}},
		{"bench call --clients 0", 2, []string{"0 clients"}},
		{"bench call --target b/echo/echo", 2, []string{`target "b/echo/echo": want the name of a node, such as "b"`}},
		{"bench call --depth -1", 2, []string{"depth -1"}},
		{"bench call --count 5 --duration 1s", 2, []string{"count", "duration"}},
		{"bench pages --count 1 --clients 2", 2, []string{"1 messages for 2 clients"}},
		{"bench-worker", 1, nil},
		{"sandbox", 2, []string{"a command after --"}},
		{"config example", 0, []string{"[node]", "[[class]]", "Default:"}},
		{"config check -c " + good, 0, []string{"ok "}},
		{"config check --json -c " + good, 0, []string{`"ok": true`, `"digest": "`}},
		{"config check -c " + bad, 2, []string{bad + ":2: node.nam: ", `did you mean "name"`, bad + ":4: agent.count: ", bad + ":5: agent.idle: "}},
		{"config check --json -c " + bad, 2, []string{`"ok": false`, `"key": "agent.count"`, `"line": 4`}},
		{"config check -c " + dir + "/none.toml", 2, []string{"none.toml", "rdmad config example"}},
		{"config check -c " + good + " --set limits.workers=0", 2, []string{"flag --set limits.workers: limits.workers: must be 1 to 4095, got 0"}},
		{"config check --json -c " + good + " --set limits.workrs=1", 2, []string{`"from": "flag --set limits.workrs"`, `did you mean \"limits.workers\"`}},
		{"config show -c " + good + " --set limits.workers=7", 0, []string{"# digest ", "workers = 7", "# flag --set limits.workers", good + ":"}},
		{"config show --json -c " + good, 0, []string{`"path": "limits.workers"`, `"from": "file"`, `"applies": "live, for`}},
		{"config show -c " + bad, 2, []string{bad + ":4: agent.count: "}},
		{"config docs", 0, []string{"## [limits]", "| `workers` | integer | `1024` | 1 to 4095 | live"}},
		{"config explain-memory -c " + good, 0, []string{"class small", "8192 x 128", "RLIMIT_MEMLOCK", "RLIMIT_NOFILE"}},
		{"config explain-memory --workers -1 -c " + good, 2, []string{"--workers -1: want 0 to 4095"}},
		{"config diff -c " + good + " --socket " + none, 1, []string{none, "not running"}},
		{"config diff --socket " + none, 1, []string{none, "not running"}},
		{"config diff a b", 2, []string{"got 2 arguments"}},
		{"config diff " + dir + "/none.toml", 2, []string{"none.toml"}},
		{"reload --socket " + none, 1, []string{none, "not running"}},
		{"reload now", 2, []string{"rdmad reload --help"}},
		{"run --set nonsense -c " + good, 2, []string{"flag --set nonsense: want section.key=value"}},
		{"run -c " + bad, 2, []string{bad + ":4: agent.count: "}},
		{"run -c " + dir + "/none.toml", 2, []string{"none.toml"}},
		{"core", 1, []string{"rdmad run"}},
		{"status --socket " + none, 1, []string{none, "not running", "rdmad run -c"}},
		{"call a/b/c --socket " + none, 1, []string{none, "not running"}},
		{"call b//x --socket " + none, 2, []string{`target "b//x"`, "rdmad call --help"}},
		{"ping b --interval -1s --socket " + none, 2, []string{"--interval -1s", "negative"}},
		{"ping b --socket " + none, 1, []string{none, "not running"}},
		{"trace --socket " + none, 1, []string{none, "not running"}},
		{"echo --socket " + none, 1, []string{none, "not running"}},
		{"bench call --socket " + none, 1, []string{none, "not running"}},
	} {
		r := run(t, rdmad(t, strings.Fields(c.args)...))
		r.check(t, "rdmad "+c.args, c.status, c.words...)
		if c.status == 1 && strings.Count(r.errOut, "\n") > 1 {
			t.Errorf("rdmad %s: more than one line:\n%s", c.args, r.errOut)
		}
		if c.status == 0 && r.errOut != "" {
			t.Errorf("rdmad %s: complains: %s", c.args, r.errOut)
		}
	}
}

// Command lines that talk to a daemon.
func TestCommands(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "post", 0)
	for _, test := range []struct {
		args   string
		status int
		words  []string
	}{
		{"call b/echo/echo hello", 0, []string{"hello"}},
		{"call echo/echo hello", 0, []string{"hello"}},
		{"call b/bench/page --answer-size 3MiB", 1, []string{"b/bench/page", "want a size"}},
		{"call b/jobs/fail why", 1, []string{"b/jobs/fail: no: why"}},
		{"call b/jobs/panic", 1, []string{"on purpose"}},
		{"call b/jobs/hang --timeout 50ms", 1, []string{"b/jobs/hang", "--timeout"}},
		{"call b/nothing/here", 1, []string{"b/nothing/here", "rdmad status"}},
		{"call c/echo/echo", 1, []string{`"c"`}},
		{"call echo", 2, []string{"node/service/method"}},
		{"ping b -n 3 -i 1ms", 0, []string{"a to b: 3 answers", "min/avg/max", "bootstrap connection", "not the data path"}},
		{"ping a -n 3 -i 1ms", 0, []string{"a is this node, and its daemon answers"}},
		{"ping b -n 2 -i 1ms --json", 0, []string{`"to": "b"`, `"round_trip_us"`}},
		{"ping c", 1, []string{`"c"`, "no such service"}},
		{"status", 0, []string{"node a", "PEER", "connected", "echo", "COUNTER", "requests_sent"}},
		{"trace --service none --timeout 50ms", 1, []string{"no request that matches was made within 50ms"}},
		{"trace --domain none", 1, []string{"permission denied", `"none"`}},
		{"bench call --count 1000 --warmup 10ms", 0, []string{"full round trip", "p99.9", "calls/s", "requests/group", "a.core", "total"}},
		{"bench call --count 1000 --warmup 0s --depth 8 --size 1000 --json", 0, []string{`"messages": 1000`, `"mismatches": 0`, `"p50_us"`}},
		{"bench stream --count 2000 --clients 2 --depth 16 --size 8KiB --json", 0, []string{`"messages": 2000`, `"size_bytes": 8192`}},
		{"bench pages --duration 200ms --warmup 10ms --target b --json", 0, []string{`"size_bytes": 8192`, `"target": "b/bench/page"`}},
		{"bench oneway --count 20000 --clients 2 --warmup 10ms --json", 0, []string{`"messages": 20000`}},
		{"bench oneway --duration 100ms --warmup 10ms", 0, []string{"messages/s"}},
		{"bench call --target c", 1, []string{"worker process 1 of 1: c/echo/echo: no such service", `"c"`, "(rdmad echo, on the node that is to answer, serves it; see what there is with: rdmad status)\n"}},
		{"bench oneway --target c", 1, []string{"rdmad: c/bench/count: no such service", "(rdmad echo, on the node that is to answer, serves it; see what there is with: rdmad status)\n"}},
		{"bench pages --size 1MiB --count 20 --warmup 0s --depth 2 --json", 0, []string{`"mismatches": 0`}},
		{"bench pages --size 32MiB --count 2 --warmup 0s --json", 0, []string{`"mismatches": 0`}},
		{"bench pages --size 2GiB --count 1 --warmup 0s", 2, []string{"1073741824"}},
	} {
		r := runInTime(t, func() *exec.Cmd {
			cmd := rdmad(t, strings.Fields(test.args)...)
			cmd.Env = append(cmd.Env, "RDMAD_SOCKET="+c.socket("a"))
			return cmd
		})
		r.check(t, "rdmad "+test.args, test.status, test.words...)
		if test.status == 1 && strings.Count(r.errOut, "\n") > 1 {
			t.Errorf("rdmad %s: more than one line:\n%s", test.args, r.errOut)
		}
	}
}

// An answer is printed as it is, whatever its bytes; the payload may come from
// standard input.
func TestCallBytes(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	payload := make([]byte, 300)
	for i := range payload {
		payload[i] = byte(i)
	}
	call := func(args ...string) ran {
		cmd := exec.Command(programs.rdmad, append([]string{"call", "--socket", c.socket("a"), "b/echo/echo", "-"}, args...)...)
		cmd.Stdin = strings.NewReader(string(payload))
		r := run(t, cmd)
		r.check(t, "call", 0)
		return r
	}
	if r := call(); r.out != string(payload) {
		t.Errorf("answer %q", r.out)
	}
	var r struct {
		Request int     `json:"request_bytes"`
		Size    int     `json:"answer_bytes"`
		Answer  string  `json:"answer_base64"`
		Time    float64 `json:"round_trip_us"`
	}
	if err := json.Unmarshal([]byte(call("--json").out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Answer != base64.StdEncoding.EncodeToString(payload) || r.Request != 300 || r.Size != 300 || r.Time <= 0 {
		t.Errorf("%+v", r)
	}
}
