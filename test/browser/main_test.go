package browser

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// limit bounds every wait.
const limit = 4 * time.Minute

var (
	browser     = flag.String("rdmad.browser", "", "the program of Chromium, or of another browser of that family, instead of looking for one")
	screenshots = flag.String("rdmad.screenshots", "", "a directory that keeps what the tests have seen")
)

// rdmad is the program that TestMain has built.
var rdmad string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (status int) {
	flag.Parse()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "rdmad-browser-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	path, why, err := findChromium()
	if err != nil {
		return fail(err)
	}
	if chromium.why = why; why != "" {
		fmt.Fprintln(os.Stderr, "the tests of the web page are skipped:", why)
		return m.Run()
	}
	rdmad = filepath.Join(dir, "rdmad")
	build := exec.Command("go", "build", "-o", rdmad, "./cmd/rdmad")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build rdmad: %w\n%s", err, out))
	}
	stop, err := startChromium(path, filepath.Join(dir, "profile"))
	if err != nil {
		return fail(err)
	}
	status = m.Run()
	stop()
	for end := time.Now().Add(limit); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return fail(fmt.Errorf("goroutines are left: %w", err))
		}
	}
	return status
}
