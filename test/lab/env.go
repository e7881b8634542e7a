package main

import (
	"slices"
	"strings"
)

const (
	// addressEnv tells a command on the host where its guest is.
	addressEnv = "RDMAD_LAB"
	// guestEnv is set for everything that runs in a guest.
	guestEnv = "RDMAD_LAB_GUEST"
)

// passedOn reports whether the guest gets a variable of the host. Most of the
// host's environment is about the host.
func passedOn(name string) bool {
	switch name {
	case addressEnv, guestEnv:
		return false
	case "PATH", "LANG":
		return true
	}
	return strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "RDMAD_")
}

// guestEnvironment returns the environment of a program in the guest: what is
// passed on of the host's, what is so in every guest, and what is asked for.
func guestEnvironment(host, extra []string, dir string) []string {
	env := []string{"HOME=/tmp", "TMPDIR=/tmp", "USER=root", "PWD=" + dir, guestEnv + "=1"}
	for _, kv := range host {
		if name, _, ok := strings.Cut(kv, "="); ok && passedOn(name) {
			env = append(env, kv)
		}
	}
	for _, kv := range extra {
		name, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		env = append(env, kv)
	}
	return env
}

// lookupEnv returns the value of a variable in an environment.
func lookupEnv(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
