package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findProgram returns the path of the request's program. Programs that are not
// part of the host's system may have been built a moment ago. Where the guest
// does not see such a file as it is now, the path is one where it does.
func (a *agent) findProgram(req request) (string, error) {
	path, err := lookProgram(req)
	if err != nil || a.live == "" || ofSystem(path) {
		return path, err
	}
	live, dev, err := resolveLive(a.live, path)
	if err != nil {
		return path, nil // it is the guest's own, if it is anywhere
	}
	var here unix.Stat_t
	if unix.Stat(path, &here) == nil && here.Dev == dev {
		return path, nil
	}
	return live, nil
}

// lookProgram returns the absolute path of the request's program.
func lookProgram(req request) (string, error) {
	name := req.Args[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(req.Dir, name)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(lookupEnv(req.Env, "PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// ofSystem reports whether a file belongs to the host's system, which does not
// change while a guest runs.
func ofSystem(path string) bool {
	for _, dir := range []string{"/usr/", "/bin/", "/sbin/", "/lib", "/etc/", "/opt/"} {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	return false
}

// resolveLive returns the path of a file of the host below live, and the device
// that it is on. Symbolic links lead where they do on the host.
func resolveLive(live, path string) (string, uint64, error) {
	root, err := os.Open(live)
	if err != nil {
		return "", 0, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return "", 0, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return "", 0, err
	}
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return resolved, stat.Dev, err
}
