package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// system runs a command of the system for a limited time.
func system(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return text, nil
}

// inNamespace prefixes a command with what runs it in a network namespace.
func inNamespace(namespace string, argv ...string) []string {
	if namespace == "" {
		return argv
	}
	return append([]string{"ip", "netns", "exec", namespace}, argv...)
}

// destroy aborts all connections to a port, in the namespace that is named.
func destroy(ctx context.Context, namespace string, port int) error {
	_, err := system(ctx, inNamespace(namespace, "ss", "-K", "-t", "state", "established",
		fmt.Sprintf("( dport = :%d or sport = :%d )", port, port))...)
	return err
}

// destroyWorks tries it on a connection of its own and says why it does not work.
func destroyWorks(ctx context.Context) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	if err := destroy(ctx, "", portOf(l.Addr().String())); err != nil {
		return "ss -K fails: " + err.Error()
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	var b [1]byte
	var timeout net.Error
	if _, err := c.Read(b[:]); errors.As(err, &timeout) && timeout.Timeout() {
		return "ss -K destroys nothing: it needs CAP_NET_ADMIN and a kernel with CONFIG_INET_DIAG_DESTROY"
	}
	return ""
}

// namespaces are two network namespaces with a wire between them.
type namespaces struct{ names, devices [2]string }

// wireAddress is the address of each end of the wire.
func wireAddress(i int) string { return fmt.Sprintf("10.213.77.%d", i+1) }

// newNamespaces makes namespaces. They must be removed, also after an error.
func newNamespaces(ctx context.Context) (*namespaces, error) {
	pid := os.Getpid()
	w := &namespaces{}
	for i, end := range []string{"a", "b"} {
		w.names[i], w.devices[i] = fmt.Sprintf("torture-%d-%s", pid, end), fmt.Sprintf("tt%d%s", pid, end)
	}
	steps := [][]string{
		{"ip", "netns", "add", w.names[0]}, {"ip", "netns", "add", w.names[1]},
		{"ip", "link", "add", w.devices[0], "netns", w.names[0], "type", "veth", "peer", "name", w.devices[1], "netns", w.names[1]},
	}
	for i := range w.names {
		steps = append(steps,
			[]string{"ip", "-n", w.names[i], "addr", "add", wireAddress(i) + "/24", "dev", w.devices[i]},
			[]string{"ip", "-n", w.names[i], "link", "set", w.devices[i], "up"},
			[]string{"ip", "-n", w.names[i], "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if _, err := system(ctx, s...); err != nil {
			return w, err
		}
	}
	return w, nil
}

// remove removes the namespaces, and with them the wire.
func (w *namespaces) remove() error {
	var errs []error
	for _, name := range w.names {
		if _, err := os.Stat("/run/netns/" + name); err != nil {
			continue
		}
		_, err := system(context.Background(), "ip", "netns", "del", name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func needsNamespaces(r *run) string {
	if r.wire == nil {
		return "only with --netns"
	}
	return ""
}

// linkDown takes a node's interface down for some time.
func linkDown(i *injection) error {
	e := i.rng.IntN(2)
	undone := context.WithoutCancel(i.ctx) // also when the run is interrupted
	set := func(state string) error {
		_, err := system(undone, "ip", "-n", i.wire.names[e], "link", "set", i.wire.devices[e], state)
		return err
	}
	if err := set("down"); err != nil {
		return err
	}
	i.pause(i.between(100*time.Millisecond, 3*time.Second))
	if err := set("up"); err != nil {
		return err
	}
	return i.answeredAgain(now(), unmeasured)
}

// impairments are what netem is told, one at a time.
var impairments = [][]string{
	{"loss", "5%"}, {"delay", "20ms", "10ms"}, {"delay", "5ms", "reorder", "25%", "50%"}, {"duplicate", "10%"}, {"corrupt", "1%"},
}

// cannotNetem tries whether the kernel has netem.
func cannotNetem(r *run) string {
	if why := needsNamespaces(r); why != "" {
		return why
	}
	tc := []string{"tc", "-n", r.wire.names[0], "qdisc"}
	dev := []string{"dev", r.wire.devices[0], "root"}
	if _, err := system(r.ctx, append(append(append([]string(nil), tc...), "add"), append(dev, "netem", "loss", "0%")...)...); err != nil {
		return "no netem (CONFIG_NET_SCH_NETEM): " + err.Error()
	}
	if _, err := system(r.ctx, append(append(append([]string(nil), tc...), "del"), dev...)...); err != nil {
		return err.Error()
	}
	return ""
}

// netem impairs what a node sends for some time.
func netem(i *injection) error {
	e, how := i.rng.IntN(2), impairments[i.rng.IntN(len(impairments))]
	set := []string{"tc", "-n", i.wire.names[e], "qdisc", "add", "dev", i.wire.devices[e], "root", "netem"}
	if _, err := system(i.ctx, append(set, how...)...); err != nil {
		return err
	}
	i.pause(i.between(500*time.Millisecond, 5*time.Second))
	undone := context.WithoutCancel(i.ctx)
	if _, err := system(undone, "tc", "-n", i.wire.names[e], "qdisc", "del", "dev", i.wire.devices[e], "root"); err != nil {
		return err
	}
	return i.answeredAgain(now(), unmeasured)
}
