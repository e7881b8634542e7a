package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
)

// layer is one row of the import table.
type layer struct {
	// dir is a package, or with a trailing "/..." a package and all below it.
	dir string
	// may lists what it may import of this module. "/..." works as in dir.
	may []string
}

// anything may be imported.
var anything = []string{"..."}

// fabricUsers is what a provider builds on.
var fabricUsers = []string{"internal/fabric", "internal/poller", "shm"}

// perfUsers is what a tool of "rdmad perf" builds on.
var perfUsers = []string{"shm", "internal/fabric", "internal/bench/content", "internal/perf/link", "internal/perf", "internal/perf/report"}

// layers is the import table: packages import only from rows above their own.
// Every package of the module must have a row. The first row that matches
// counts. Tests may import what they like; where that would close a cycle the
// Go command itself refuses it.
var layers = []layer{
	{"internal/faultpoint", nil},
	{"internal/leaktest", nil},
	{"shm", []string{"internal/faultpoint"}},
	{"slots", []string{"internal/faultpoint", "shm"}},
	{"groupsend", []string{"internal/faultpoint", "slots", "shm"}},
	{"internal/poller", []string{"shm"}},
	{"internal/fabric", []string{"internal/poller"}},
	{"internal/fabric/ledger", fabricUsers},
	{"internal/turnstile", nil},
	{"internal/webpage", nil},
	{"internal/cgroup", nil},
	{"internal/boundedlist", nil},
	{"internal/fabric/tcp", append([]string{"internal/turnstile"}, fabricUsers...)},
	{"internal/fabric/verbs", append([]string{"internal/fabric/ledger"}, fabricUsers...)},
	{"internal/fabric/libfabric", append([]string{"internal/fabric/ledger"}, fabricUsers...)},
	{"internal/fabric/fabrictest", fabricUsers},
	{"internal/rdmasys", []string{"internal/fabric/verbs"}},
	{"internal/attach", []string{"internal/boundedlist", "internal/faultpoint", "slots", "shm"}},
	{"internal/depot", []string{"internal/faultpoint", "shm"}},
	{"internal/config", []string{"shm"}},
	{"internal/nodecert", nil},
	{"internal/event", nil},
	{"internal/counters", []string{"shm"}},
	{"internal/observe", []string{"internal/counters", "internal/event"}},
	{"internal/vault", []string{"internal/faultpoint", "slots", "shm"}},
	{"internal/sharing", []string{"slots", "shm"}},
	{"internal/printable", nil},
	{"internal/peerproto", []string{"internal/boundedlist", "internal/fabric", "internal/printable", "slots", "shm"}},
	{"internal/version", []string{"internal/attach", "internal/depot", "internal/peerproto", "shm"}},
	{"internal/status", []string{"internal/config", "internal/counters", "internal/event", "internal/version"}},
	{"internal/stages", []string{"internal/peerproto", "internal/status", "slots"}},
	{"internal/nodelog", []string{"internal/config", "internal/event"}},
	{"internal/handoff", []string{"internal/config", "internal/event", "internal/status", "internal/version", "shm"}},
	{"internal/supervisor", []string{"internal/config", "internal/counters", "internal/depot", "internal/event", "internal/faultpoint", "internal/handoff", "internal/nodecert", "internal/nodelog", "internal/printable", "internal/status", "internal/version", "shm"}},
	{"internal/agent", []string{"internal/cgroup", "internal/config", "internal/counters", "internal/event", "internal/fabric", "internal/faultpoint", "internal/attach", "internal/peerproto", "internal/sharing", "internal/stages", "internal/status", "internal/vault", "internal/poller", "groupsend", "slots", "shm"}},
	{"internal/peerauth", []string{"internal/config", "internal/event", "internal/fabric/tcp", "internal/nodecert", "internal/peerproto", "internal/printable", "internal/status", "internal/turnstile"}},
	{"internal/fabrics", []string{"internal/config", "internal/event", "internal/fabric", "internal/fabric/libfabric", "internal/fabric/tcp", "internal/fabric/verbs", "internal/rdmasys"}},
	{"internal/daemon", []string{"internal/agent", "internal/attach", "internal/cgroup", "internal/config", "internal/counters", "internal/depot", "internal/event", "internal/fabric", "internal/fabric/tcp", "internal/fabrics", "internal/faultpoint", "internal/handoff", "internal/nodecert", "internal/nodelog", "internal/observe", "internal/peerauth", "internal/peerproto", "internal/printable", "internal/status", "internal/turnstile", "internal/vault", "internal/version", "internal/webpage", "slots", "shm"}},
	{"internal/scaling", []string{"slots", "internal/vault", "internal/config"}},
	{"internal/doctor", []string{"internal/cgroup", "internal/nodecert", "internal/scaling", "internal/vault", "shm", "slots", "internal/fabric/libfabric", "internal/fabric/verbs", "internal/rdmasys", "internal/attach", "internal/config", "internal/event", "internal/status"}},
	{"internal/daemontest", []string{"internal/leaktest", "internal/daemon", "internal/supervisor", "internal/handoff", "internal/nodelog", "internal/status", "internal/version", "internal/event", "internal/attach", "internal/config", "slots"}},
	{"internal/exchange", nil},
	{"client", []string{"internal/cgroup", "internal/faultpoint", "internal/attach", "internal/exchange", "slots", "shm"}},
	{"server", []string{"internal/cgroup", "internal/faultpoint", "internal/attach", "internal/exchange", "groupsend", "slots", "shm"}},
	{"internal/tenant", []string{"internal/daemon", "server"}},
	{"server/node", []string{"internal/config", "internal/daemon", "internal/handoff", "internal/nodelog", "internal/supervisor", "internal/tenant", "internal/version", "server"}},
	{"internal/bench/content", nil},
	{"internal/bench/cputime", nil},
	{"internal/bench/latency", nil},
	{"internal/bench/chart", nil},
	{"internal/bench/workers", nil},
	{"internal/bench/...", []string{"shm", "client", "server", "internal/bench/content", "internal/bench/cputime", "internal/bench/latency", "internal/bench/workers"}},
	{"internal/perf/link", []string{"internal/printable"}},
	{"internal/perf", []string{"shm", "internal/poller", "internal/fabric", "internal/perf/link"}},
	{"internal/perf/report", []string{"internal/perf"}},
	{"internal/perf/plot", []string{"internal/bench/chart", "internal/perf", "internal/perf/report"}},
	{"internal/perf/perftest", []string{"internal/fabric", "internal/fabric/tcp", "internal/fabric/libfabric", "internal/fabric/fabrictest", "internal/perf"}},
	{"internal/perf/pingpong", perfUsers},
	{"internal/perf/blast", perfUsers},
	{"internal/perf/randomfill", perfUsers},
	{"internal/perf/rc", perfUsers},
	{"internal/perf/atomics", perfUsers},
	{"cmd/...", anything},
	{"examples/...", []string{"client", "server"}},
	{"grpcx/internal/greeter", nil},
	{"grpcx", []string{"client", "server"}},
	{"grpcx/examples/...", []string{"server", "grpcx", "grpcx/internal/greeter"}},
	{"otelx/...", []string{"client", "server"}},
	{"packaging/...", nil},
	{"deploy/kubernetes", nil},
	{"bench/...", []string{"shm", "client", "server", "server/node", "internal/bench/...", "cmd/..."}},
	{"internal/slotmodel", nil},
	{"test/...", anything},
	{"internal/repocheck", nil},
}

// matches reports whether a directory is what a pattern of the table means.
func matches(pattern, dir string) bool {
	base, below := strings.CutSuffix(pattern, "...")
	if !below {
		return dir == pattern
	}
	return base == "" || strings.HasPrefix(dir+"/", base)
}

// checkImports returns the imports that the table does not allow. Directories of
// other modules within the repository that have no row are left out.
func checkImports(tree fs.FS, all []goFile) []string {
	var problems []string
	missing := map[string]bool{}
	for _, f := range all {
		if f.dir == "." {
			problems = append(problems, fmt.Sprintf("%s: the root of the repository is not a package", f.path))
			continue
		}
		row := slices.IndexFunc(layers, func(l layer) bool { return matches(l.dir, f.dir) })
		if row < 0 && otherModule(tree, f.dir) {
			continue
		}
		if row < 0 {
			if !missing[f.dir] {
				missing[f.dir] = true
				problems = append(problems, fmt.Sprintf("%s: this package is not in the import table: "+
					"add a row for it to layers in internal/repocheck/imports_test.go, above all that may import it", f.dir))
			}
			continue
		}
		if f.test {
			continue
		}
		for _, name := range f.imports {
			dir, ours := strings.CutPrefix(name, modulePath)
			allowed := slices.ContainsFunc(layers[row].may, func(p string) bool { return matches(p, dir) })
			if ours && !allowed && !sameProgram(layers[row].dir, f.dir, dir) {
				problems = append(problems, fmt.Sprintf("%s: %s may not import %s", f.path, f.dir, dir))
			}
		}
	}
	return problems
}

// sameProgram reports that a package below a "/..." row imports a part of the
// same program: of the same directory directly under the row's.
func sameProgram(pattern, from, to string) bool {
	base, below := strings.CutSuffix(pattern, "...")
	if !below {
		return false
	}
	from, ok := strings.CutPrefix(from, base)
	program, _, _ := strings.Cut(from, "/")
	return ok && program != "" && strings.HasPrefix(to+"/", base+program+"/")
}

// moduleOf returns the directory of the module that a directory belongs to.
func moduleOf(tree fs.FS, dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := fs.Stat(tree, dir+"/go.mod"); err == nil {
			break
		}
	}
	return dir
}

// otherModule reports whether the directory belongs to a nested module.
func otherModule(tree fs.FS, dir string) bool { return moduleOf(tree, dir) != "." }

func TestImports(t *testing.T) {
	report(t, checkImports(repository, goFiles(t, repository)))
}

// The table itself must only point up, or it would allow cycles.
func TestImportTable(t *testing.T) {
	for i, l := range layers {
		for _, may := range l.may {
			if may == "..." {
				continue
			}
			above := slices.ContainsFunc(layers[:i], func(o layer) bool { return matches(may, o.dir) })
			below := slices.ContainsFunc(layers[i:], func(o layer) bool { return matches(may, o.dir) })
			if !above || below {
				t.Errorf("%s may import %s, which is not a row above it", l.dir, may)
			}
		}
	}
}

func TestImportRule(t *testing.T) {
	src := func(imports ...string) string {
		s := "package x\n"
		for _, i := range imports {
			s += "import _ \"" + i + "\"\n"
		}
		return s
	}
	const m = modulePath
	bad := tree(map[string]string{
		"shm/a.go":                      src("os", "golang.org/x/sys/unix"),
		"shm/b.go":                      src(m + "slots"),
		"shm/b_test.go":                 src(m + "slots"),
		"slots/a.go":                    src(m + "shm"),
		"internal/config/a.go":          src(m+"shm", m+"internal/attach"),
		"internal/daemon/a.go":          src(m+"internal/fabric/tcp", m+"client"),
		"internal/new/a.go":             src(),
		"internal/new/b.go":             src(),
		"internal/daemon/part/a.go":     src(),
		"examples/one/main.go":          src(m+"client", m+"examples/one/part", "github.com/spf13/cobra"),
		"examples/one/part/a.go":        src(m + "slots"),
		"examples/two/main.go":          src(m + "examples/one/part"),
		"cmd/rdmad/main.go":             src(m + "internal/daemon"),
		"internal/bench/load/a.go":      src(m+"client", m+"internal/daemon"),
		"grpcx/go.mod":                  "module x",
		"grpcx/a.go":                    src(m+"client", "google.golang.org/grpc", m+"internal/attach"),
		"bench/peer/go.mod":             "module peer",
		"bench/peer/sub/a.go":           src(m + "client"),
		"main.go":                       src(),
		"internal/config/testdata/x.go": "not Go",
	})
	expect(t, checkImports(bad, goFiles(t, bad)),
		"shm/b.go: shm may not import slots",
		"internal/config/a.go: internal/config may not import internal/attach",
		"internal/daemon/a.go: internal/daemon may not import client",
		"internal/new: this package is not in the import table",
		"internal/daemon/part: this package is not in the import table",
		"examples/one/part/a.go: examples/one/part may not import slots",
		"examples/two/main.go: examples/two may not import examples/one/part",
		"internal/bench/load/a.go: internal/bench/load may not import internal/daemon",
		"grpcx/a.go: grpcx may not import internal/attach",
		"main.go: the root")
}
