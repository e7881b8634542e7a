package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// installLimit bounds the installation of Chromium. Of that apt-get update may be tried for updateLimit: only apt-get
// install waits for another apt-get, by DPkg::Lock::Timeout.
const (
	installLimit = 10 * time.Minute
	updateLimit  = 5 * time.Minute
	updatePause  = 5 * time.Second
)

// installCommands are what installs Chromium, and a font, on Debian.
var installCommands = [][]string{
	{"apt-get", "-o", "DPkg::Lock::Timeout=300", "update"},
	{"apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"},
}

// findChromium returns the path of the browser, which it installs if it may. If there is
// none, why says how to get one.
func findChromium() (path, why string, err error) {
	if *browser != "" {
		return *browser, "", nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, "", nil
		}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", "there is no Chromium: install it, and name it by -rdmad.browser if it is not in PATH", nil
	}
	if os.Geteuid() != 0 {
		var lines []string
		for _, args := range installCommands {
			lines = append(lines, "sudo "+strings.Join(args, " "))
		}
		return "", "there is no Chromium; install it with: " + strings.Join(lines, " && "), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	fmt.Fprintln(os.Stderr, "Chromium is installed for the tests of the web page")
	update, install := installCommands[0], installCommands[1]
	err = run(ctx, update)
	for begin := time.Now(); err != nil && ctx.Err() == nil && time.Since(begin) < updateLimit; err = run(ctx, update) {
		time.Sleep(updatePause)
	}
	if err != nil {
		return "", "", err
	}
	if err := run(ctx, install); err != nil {
		return "", "", err
	}
	path, err = exec.LookPath("chromium")
	return path, "", err
}

// run runs a command that installs something.
func run(ctx context.Context, args []string) error {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// chromium is the browser of all tests: findChromium's result, and a context in which it
// runs. Each test has a profile of its own in it.
var chromium struct {
	why string
	ctx context.Context
}

// startChromium starts the browser. The caller must call stop.
func startChromium(path, dir string) (stop func(), err error) {
	allocator, free := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-renderer-backgrounding", true), chromedp.Flag("disable-background-timer-throttling", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
	)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		free()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	chromium.ctx = ctx
	return func() {
		_ = chromedp.Cancel(ctx) // it is killed otherwise
		cancel()
		free()
	}, nil
}

// needChromium skips the test where there is no browser.
func needChromium(t *testing.T) {
	t.Helper()
	if chromium.ctx == nil {
		t.Skip(chromium.why)
	}
}
