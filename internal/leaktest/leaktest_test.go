package leaktest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/leaktest"
)

// leftEnv makes the test binary leave a goroutine behind that ends after a second.
const leftEnv = "RDMAD_LEAK_TEST"

func TestMain(m *testing.M) { leaktest.Main(m) }

// A goroutine that takes longer than goleak looks, and ends, is no leak.
func TestGoroutineThatEnds(t *testing.T) {
	if os.Getenv(leftEnv) != "" {
		go time.Sleep(time.Second)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGoroutineThatEnds$")
	cmd.Env = append(os.Environ(), leftEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}
