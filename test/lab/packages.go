package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// packages are the Debian packages that the lab needs on the host: to make and
// run the guest, and, as the guest has the host's files, for what runs in it.
var packages = []string{
	"qemu-system-x86", "busybox-static", "kmod", "xz-utils",
	"iproute2", "rdma-core", "ibverbs-providers", "libibverbs-dev", "librdmacm-dev",
	"ibverbs-utils", "perftest", "rdmacm-utils", "libfabric-dev", "libfabric-bin",
}

// missingPackages returns which of the wanted packages are not among those that
// dpkg-query lists as "installed NAME".
func missingPackages(wanted []string, listed string) []string {
	installed := map[string]bool{}
	for line := range strings.Lines(listed) {
		if state, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && state == "installed" {
			installed[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return installed[name] })
}

// listPackages returns the wanted packages that are not installed.
func listPackages(ctx context.Context) ([]string, error) {
	args := append([]string{"dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\n"}, packages...)
	out, err := output(ctx, "", args...)
	if err != nil && !isExit(err) {
		return nil, err
	}
	// It also fails when it does not know a package, and lists the others.
	return missingPackages(packages, out), nil
}

// installCommands are the commands that install packages.
func installCommands(missing []string) [][]string {
	return [][]string{
		{"apt-get", "-o", "DPkg::Lock::Timeout=300", "update"},
		append([]string{"apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"}, missing...),
	}
}

// Only apt-get install waits for another apt-get, by DPkg::Lock::Timeout. One that cannot have the lists at once fails, so
// that is tried again for updateLimit.
const (
	updateLimit = 5 * time.Minute
	updatePause = 5 * time.Second
)

// installPackages installs packages.
func installPackages(ctx context.Context, missing []string) error {
	commands := installCommands(missing)
	if err := again(ctx, updateLimit, updatePause, func() error {
		_, err := output(ctx, "", commands[0]...)
		return err
	}); err != nil {
		return err
	}
	_, err := output(ctx, "", commands[1]...)
	return err
}

// again calls f until it succeeds, at most for the limit.
func again(ctx context.Context, limit, pause time.Duration, f func() error) error {
	for end := time.Now().Add(limit); ; {
		err := f()
		if err == nil || !time.Now().Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
