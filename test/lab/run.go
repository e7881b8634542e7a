package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// runOptions are the flags of lab run.
type runOptions struct {
	timeout time.Duration
	memory  int
	console string
}

func newRun() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT]...",
		Short: "Start a guest and run a command of the host beside it",
		Long: "run installs what is missing (as root), makes the guest's image (once), starts a guest, runs the\n" +
			"command on the host with " + addressEnv + " in its environment, so that lab exec finds the guest, and\n" +
			"stops the guest. It ends with the exit status of the command.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return run(o, args, progress{os.Stderr}) },
	}
	c.Flags().SetInterspersed(false)
	c.Flags().DurationVar(&o.timeout, "timeout", 20*time.Minute, "most time for all of it; then the status is 124")
	c.Flags().IntVar(&o.memory, "memory", 4096, "memory of the guest in MiB, of which the host gives what is used")
	c.Flags().StringVar(&o.console, "console", "", "keep what the guest writes on its console in this file")
	return c
}

// run does what the command says.
func run(o runOptions, args []string, p progress) error {
	// What is started dies with the thread that has started it, and this one lives
	// as long as the process.
	runtime.LockOSThread()
	ctx, stop := limit(o.timeout)
	defer stop()
	// Only root's PATH has the tools for modules.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	missing, err := possible(ctx)
	if err != nil {
		return err
	}
	cache, err := imageCache()
	if err != nil {
		return err
	}
	img, dir, token, remove, err := prepare(ctx, cache, missing, p)
	if err != nil {
		return err
	}
	defer remove()

	start := time.Now()
	log := o.console
	if log == "" {
		log = filepath.Join(dir, "console")
	}
	g, err := bootGuest(ctx, img, dir, o.memory, func() (*console, error) {
		f, err := os.Create(log)
		if err != nil {
			return nil, err
		}
		return newConsole(f), nil
	})
	if err != nil {
		return err
	}
	defer g.stop()
	p.say("guest up in %.1f s, %s", time.Since(start).Seconds(), g.pinned)
	err = runCommand(ctx, args, g, guestAddress{token, fmt.Sprintf("127.0.0.1:%d", g.port)})
	if lines := g.console.complaints(); len(lines) > 0 {
		p.say("the guest's kernel has complained:\n%s", strings.Join(lines, "\n"))
	}
	return err
}

// prepare makes everything that the guest needs, with the cache locked: another
// lab waits and then finds it made.
func prepare(ctx context.Context, cache string, missing []string, p progress) (img image, dir, token string, remove func(), err error) {
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return img, "", "", nil, err
	}
	defer unlock()
	if len(missing) > 0 {
		start := time.Now()
		p.say("installing %s", strings.Join(missing, " "))
		if err := installPackages(ctx, missing); err != nil {
			return img, "", "", nil, err
		}
		p.say("installed in %.1f s", time.Since(start).Seconds())
	}
	start := time.Now()
	k, err := currentKernel(ctx)
	if err != nil {
		return img, "", "", nil, err
	}
	img, built, err := findImage(ctx, cache, k)
	if err != nil {
		return img, "", "", nil, err
	}
	if built {
		p.say("image %s built in %.1f s", filepath.Base(img.dir), time.Since(start).Seconds())
	} else {
		p.say("image %s cached", filepath.Base(img.dir))
	}
	dir, token, remove, err = makeRunDir(ctx, cache)
	return img, dir, token, remove, err
}

// limit returns a context that ends after a time and when this process is told to
// end.
func limit(timeout time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, stop := context.WithTimeoutCause(ctx, timeout,
		&statusError{statusTimeout, fmt.Errorf("no end after %v; lab run --timeout sets the limit", timeout)})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := (<-signals).(syscall.Signal)
		cancel(&statusError{statusSignalled + int(s), interrupted{s}})
	}()
	return ctx, stop
}
