package supervisor

import (
	"os/exec"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A core that is told to stop before it listens has stopped well; one that fails has not.
func TestStopOfACore(t *testing.T) {
	for _, c := range []struct {
		script string
		well   bool
	}{
		{"exec sleep 600", true},
		{"trap 'exit 0' TERM; echo; while :; do sleep 0.01; done", true},
		{"trap 'exit 1' TERM; echo; while :; do sleep 0.01; done", false},
		{"trap 'kill -KILL $$' TERM; echo; while :; do sleep 0.01; done", false},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if c.script[0] == 't' {
			_, _ = out.Read(make([]byte, 1)) // the trap is set
		}
		core := &runningCore{cmd: cmd, ended: make(chan struct{})}
		go func() {
			core.err = cmd.Wait()
			close(core.ended)
		}()
		if err := core.stop(time.Minute, zerolog.Nop()); (err == nil) != c.well {
			t.Errorf("%s: %v", c.script, err)
		}
	}
}
