package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	qemu = "qemu-system-x86_64"
	// guestCPUs is how many CPUs a guest has.
	guestCPUs = 2
	// stopGrace is how long QEMU may take to end when it is asked to.
	stopGrace = 5 * time.Second
	// portTries is how often another port is tried when somebody has been faster.
	portTries = 5
	// portTaken is part of what QEMU says then.
	portTaken = "host forwarding"
)

// guest is a running virtual machine.
type guest struct {
	cmd     *exec.Cmd
	console *console
	port    int
	// pinned says what became of pinning its CPUs.
	pinned string
	// ended is closed when QEMU has ended.
	ended chan struct{}
}

// qemuArgs returns the command line of a guest whose command port is the host's
// port on the loopback interface.
func qemuArgs(img image, runDir string, memory, port int) []string {
	// Commas separate options; a doubled one is a comma.
	share := func(tag, path string) []string {
		return []string{
			"-fsdev", "local,id=" + tag + ",security_model=none,readonly=on,multidevs=remap,path=" + strings.ReplaceAll(path, ",", ",,"),
			"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag,
		}
	}
	args := []string{
		"-name", "rdmad-lab,debug-threads=on", // the names of threads are for pinning
		// KVM is left alone: where it is offered it may still not work.
		"-accel", "tcg,thread=multi", "-cpu", "max",
		"-machine", "q35", // starts a second faster than the default one
		"-smp", strconv.Itoa(guestCPUs), "-m", strconv.Itoa(memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", img.kernel(), "-initrd", img.initrd(),
		"-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off hugepages=32",
		// The guest reaches nothing but the answers to who connects to its port.
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:7", port),
		"-device", "virtio-net-pci,netdev=net,romfile=",
	}
	args = append(args, share("host", "/")...)
	args = append(args, share("live", "/")...)
	return append(args, share("run", runDir)...)
}

// startGuest starts a guest. The calling goroutine must be locked to its thread
// and stay so: the guest dies with that thread.
func startGuest(img image, runDir string, memory int, c *console) (*guest, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	g := &guest{
		cmd:     exec.Command(qemu, qemuArgs(img, runDir, memory, port)...),
		console: c,
		port:    port,
		ended:   make(chan struct{}),
	}
	g.cmd.Stdout, g.cmd.Stderr = c, c
	// A group of its own keeps the terminal's signals away from it.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guest: %w", err)
	}
	go func() {
		_ = g.cmd.Wait() // how it ended is on the console
		close(g.ended)
	}()
	return g, nil
}

// bootGuest starts a guest and waits until it takes commands. As startGuest it
// needs a locked thread.
func bootGuest(ctx context.Context, img image, runDir string, memory int, newConsole func() (*console, error)) (*guest, error) {
	for try := 1; ; try++ {
		c, err := newConsole()
		if err != nil {
			return nil, err
		}
		g, err := startGuest(img, runDir, memory, c)
		if err != nil {
			return nil, err
		}
		err = g.await(ctx)
		if err == nil {
			return g, nil
		}
		g.stop()
		if try == portTries || !strings.Contains(c.tail(), portTaken) {
			return nil, fmt.Errorf("starting the guest: %w; its console ended with:\n%s", err, c.tail())
		}
	}
}

// await waits until the guest takes commands.
func (g *guest) await(ctx context.Context) error {
	begun := g.console.begun
	for {
		select {
		case <-begun:
			// Now QEMU has its threads. Starting is faster with them pinned, too.
			pinned, err := pinCPUs(g.cmd.Process.Pid, guestCPUs)
			if err != nil && !strings.Contains(g.console.tail(), portTaken) {
				return err
			}
			g.pinned, begun = pinned, nil
		case <-g.console.ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-g.ended:
			return errGuestDied
		}
	}
}

// stop ends the guest. It has nothing that would have to be saved.
func (g *guest) stop() {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := g.cmd.Process.Signal(s); err != nil {
			break // it has ended
		}
		select {
		case <-g.ended:
			return
		case <-time.After(stopGrace):
		}
	}
	<-g.ended
}

// errGuestDied says that the guest has not lived as long as the command.
var errGuestDied = errors.New("the guest has died")
