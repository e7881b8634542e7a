// Package doctor looks for what keeps a node from working, or from working as its
// configuration says.
//
// Each check is a small function of an Env, which is all that it may look at: the
// configuration, the file system, the RDMA devices and the daemon's status. It
// returns findings: OK, WARN or FAIL, with what was found and one thing to do
// about it. Checks of RDMA are made only where the configuration wants it; what is
// missing is a failure for fabric.provider = "verbs" and a warning for "auto",
// which can do without.
//
// doctor.go has the types and the list of checks; setup.go, tls.go, rdma.go, memory.go,
// limits.go and daemon.go have the checks; plan.go computes what a configuration
// needs, and proc.go reads /proc.
package doctor
