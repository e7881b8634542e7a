package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// checkConfig: the configuration can be used.
func checkConfig(_ context.Context, e *Env) []Finding {
	const name = "config"
	if e.ConfigErr == nil {
		return good(name, "%s (digest %s)", e.ConfigFile, e.Config.Digest())
	}
	var refused config.Errors
	switch {
	case e.InForce:
		found := good(name, "%s (digest %s)", e.ConfigFile, e.Config.Digest())
		problems := []error{e.ConfigErr}
		if errors.As(e.ConfigErr, &refused) {
			problems = refused.Unwrap()
		}
		for _, problem := range problems {
			found = append(found, one(Fail, name, "correct it before the daemon reads it; what is right is in: rdmad config example", "the daemon runs on, but would not start again: %v", problem)...)
		}
		return found
	case errors.As(e.ConfigErr, &refused):
		var found []Finding
		for _, problem := range refused {
			found = append(found, one(Fail, name, "correct it; what is right is in: rdmad config example", "%v", problem)...)
		}
		return found
	case errors.Is(e.ConfigErr, fs.ErrNotExist) && !e.ConfigNamed:
		return one(Warn, name, "name the daemon's configuration with --config FILE",
			"there is no %s: the other checks assume the defaults", e.ConfigFile)
	}
	return one(Fail, name, "name the daemon's configuration with --config FILE, or print one to begin with: rdmad config example",
		"%v: the other checks assume the defaults", e.ConfigErr)
}

// checkProvider: this build has the provider that the configuration asks for.
func checkProvider(_ context.Context, e *Env) []Finding {
	const name = "provider"
	switch {
	case e.Config.Fabric.Provider == libfabric.Name && !libfabric.Built:
		return one(e.severity(), name, `go build -tags libfabric, with cgo and libfabric-dev installed; or set fabric.provider = "tcp", "verbs" or "auto"`,
			`fabric.provider = "libfabric", which this build does not have`)
	case e.wantsRDMA() && !e.Built:
		return one(e.severity(), name, "go build -tags verbs, with cgo, libibverbs-dev and librdmacm-dev installed; or set fabric.provider = \"tcp\"",
			"fabric.provider = %q: this build has no provider %s", e.Config.Fabric.Provider, verbs.Name)
	}
	return good(name, "fabric.provider = %q is built in", e.Config.Fabric.Provider)
}

// checkLibfabric: whom the daemon has to trust with its life.
func checkLibfabric(_ context.Context, e *Env) []Finding {
	const name = "libfabric"
	provider := e.Config.Libfabric.Provider
	if e.Config.Fabric.Provider != libfabric.Name || !strings.HasSuffix(provider, ";ofi_rxm") {
		return nil
	}
	kept := "others are kept out by their addresses"
	if !strings.HasPrefix(provider, "tcp;") {
		kept = "and so can others who reach its device"
	}
	return one(Warn, name, `a libfabric in which that is mended; or, where nodes and their users do not trust each other, fabric.provider = "tcp" or "verbs"`,
		"libfabric.provider = %q: with libfabric 1.17 a peer's daemon, and every process on a peer's node, can end this node's core with a few bytes; %s", provider, kept)
}

// nearest returns the lowest directory above dir that exists.
func nearest(root fs.FS, dir string) string {
	for dir != "/" && dir != "." {
		dir = path.Dir(dir)
		if _, err := fs.Stat(root, inRoot(dir)); err == nil {
			break
		}
	}
	return dir
}

// checkSocket: the directory of the workers' socket lets them in, and nobody else
// put another socket there.
func checkSocket(_ context.Context, e *Env) []Finding {
	const name = "socket"
	socket := e.Config.Node.Socket
	if e.ConfigErr != nil && !e.InForce {
		socket = e.Socket // which may be named, while the configuration is not known
	}
	dir := path.Dir(socket)
	info, err := fs.Stat(e.Root, inRoot(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if above := nearest(e.Root, dir); !e.Writable(above) {
			return one(Fail, name, fmt.Sprintf("make it for the user that runs the daemon: install -d -o USER %s; or choose a node.socket in a directory of that user's", dir),
				"%s does not exist, and this user may not make it in %s", dir, above)
		}
		return good(name, "%s does not exist; the daemon makes it", dir)
	case err != nil:
		return one(Warn, name, "run this as the user that runs the daemon, or choose another node.socket", "%v", err)
	case !info.IsDir():
		return one(Fail, name, "choose another node.socket", "%s is not a directory", dir)
	}
	perm := info.Mode().Perm()
	others := slices.ContainsFunc(e.Config.Domains, func(d config.Domain) bool { return len(d.Users)+len(d.Groups) > 0 })
	switch {
	case perm&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return one(Warn, name, fmt.Sprintf("chmod o-w %s, or move node.socket to a directory of its own", dir),
			"any user can replace the socket: %s has mode %04o", dir, perm)
	case others && perm&0o011 == 0:
		return one(Warn, name, fmt.Sprintf("chmod go+x %s", dir),
			"only its owner can reach the socket, but [[domain]] admits others: %s has mode %04o", dir, perm)
	}
	return good(name, "%s has mode %04o", dir, perm)
}

// inRoot turns an absolute path into one below Env.Root.
func inRoot(absolute string) string {
	if rel := strings.TrimPrefix(path.Clean(absolute), "/"); rel != "" {
		return rel
	}
	return "."
}
