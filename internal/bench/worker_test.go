package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A worker process that cannot work says why.
func TestWorkerReportsErrors(t *testing.T) {
	missing := t.TempDir() + "/none.sock"
	for _, c := range []struct{ in, want string }{
		{"", "read the job"},
		{"{\n", "read the job"},
		{`{"clients":0}` + "\n", "0 clients"},
		{`{"workload":"call","clients":1,"depth":1,"duration_ns":1000,"socket":"` + missing + `"}` + "\n", "not running"},
	} {
		var out bytes.Buffer
		if err := Worker(context.Background(), strings.NewReader(c.in), &out); err == nil {
			t.Errorf("%q: no error", c.in)
		}
		var r report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || !strings.Contains(r.Error, c.want) {
			t.Errorf("%q: reported %q, want %q", c.in, out.String(), c.want)
		}
	}
}

// A run ends with the first worker process that does not do its part.
func TestCrew(t *testing.T) {
	spec := &Spec{Workload: Call, Size: 1, Clients: 3, Depth: 1, Duration: time.Second}
	ready := func(_ int, r report) bool { return r.Ready }
	for _, c := range []struct{ script, want string }{
		{`read job; echo '{"ready":true}'; read go; echo '{"ready":true}'`, ""},
		{`read job; echo '{"error":"broken"}'`, "broken"},
		{`read job; echo '{"error":"echo/echo: no such service","unserved":true}'`, "of 3: echo/echo: no such service (rdmad echo, on the node"},
		{`read job; exit 3`, "exit status 3"},
		{`exit 0`, "ended early"},
		{`read job; echo nonsense; read go`, "worker process"},
		{`read job; read go`, "did not finish"},
	} {
		crew, err := start(spec, []string{"sh", "-c", c.script}, false)
		if err == nil {
			limit := 2 * time.Minute
			if c.want == "did not finish" {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := within(context.Background(), limit, "the test")
			if err = crew.each(ctx, ready); err == nil {
				if err = crew.Proceed(spec.Clients); err == nil {
					err = crew.each(ctx, ready)
				}
			}
			cancel()
			pids := crew.PIDs()
			crew.Kill()
			for i, pid := range pids {
				if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
					t.Errorf("%q: process %d is left: %v", c.script, i, err)
				}
			}
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.script, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: error %v, want %q", c.script, err, c.want)
		}
	}
}
