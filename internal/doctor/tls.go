package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/rdmasys"
)

// soon is how long before their end certificates are worth a warning.
const soon = 30 * 24 * time.Hour

// checkTLS: the files of [tls] are there, belong together and to this node, and are
// valid for a while.
func checkTLS(_ context.Context, e *Env) []Finding {
	const name = "tls"
	c := e.Config.TLS
	if c.Mode != config.TLSRequired {
		return good(name, `tls.mode = %q: peers are believed what they say, and what nodes say to each other is not encrypted`, c.Mode)
	}
	m, err := nodecert.Load(e.openFile, nodecert.Files{Cert: c.Cert, Key: c.Key, CA: c.CA})
	if err != nil {
		return one(Fail, name, tlsRemedy(err), "%v", err)
	}
	now := time.Now()
	if err := m.Usable(e.Config.Node.Name, now); err != nil {
		return one(Fail, name, "make it a certificate: "+nodecert.Renewal(e.Config.Node.Name), "%s: %v", c.Cert, err)
	}
	found := append(e.checkExpiry(m, now), e.checkData()...)
	if len(found) == 0 {
		data := ""
		if c.Data == config.TLSDataTLS {
			data = "; data connections have TLS too"
		}
		found = good(name, "%s is for %s until %s%s", c.Cert, nodecert.URI(m.Node), m.Leaf.NotAfter.UTC().Format(time.DateOnly), data)
	}
	return found
}

// openFile opens a file as the daemon does: something else than a file is not waited for, and errors have the whole path.
func (e *Env) openFile(path string) (fs.File, error) {
	info, err := fs.Stat(e.Root, inRoot(path))
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	var f fs.File
	if err == nil {
		f, err = e.Root.Open(inRoot(path))
	}
	if p := new(fs.PathError); errors.As(err, &p) {
		err = &fs.PathError{Op: "open", Path: path, Err: p.Err}
	}
	return f, err
}

// tlsRemedy says what to do about files of [tls] that are not good.
func tlsRemedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "run this as the user that runs the daemon, who must be able to read the files"
	case errors.Is(err, fs.ErrNotExist):
		return "make the files with rdmad certs init and copy them there, or correct the paths in [tls]"
	case errors.Is(err, nodecert.ErrMode):
		return "see docs/security.md" // the error says what to do
	}
	return "rdmad certs init makes the files; see docs/security.md"
}

// checkExpiry: neither the certificate nor an authority expires soon.
func (e *Env) checkExpiry(m *nodecert.Material, now time.Time) (found []Finding) {
	const name = "tls"
	c := e.Config.TLS
	if left := m.Leaf.NotAfter.Sub(now); left < soon {
		found = append(found, one(Warn, name, "make a new one, which the daemon takes without a restart: "+nodecert.Renewal(e.Config.Node.Name),
			"%s expires on %s, in %s", c.Cert, m.Leaf.NotAfter.UTC().Format(time.DateOnly), plural(int(left/(24*time.Hour)), "day"))...)
	}
	for _, a := range m.Authorities {
		if a.NotAfter.Sub(now) < soon {
			found = append(found, one(Warn, name, "make a new authority in another directory, and give all nodes both ca.pem in one file before the new certificates",
				"%s: the authority %q expires on %s", c.CA, a.Subject.String(), a.NotAfter.UTC().Format(time.DateOnly))...)
		}
	}
	return found
}

// checkData: data is encrypted, or it is said that this is known, and the fabric can do what is asked for.
func (e *Env) checkData() (found []Finding) {
	const name = "tls"
	data, provider, peers := e.Config.TLS.Data, e.Config.Fabric.Provider, len(e.Config.Peers) > 0
	if provider == "tcp" && data == "" && peers {
		found = append(found, one(Warn, name, `encrypt them with tls.data = "tls"; or use a network you trust, or IPsec, and say so with tls.data = "plain"`,
			`fabric.provider = "tcp": data connections have no TLS`)...)
	}
	if data != config.TLSDataTLS || provider != "auto" || !peers || !e.Built || e.DevicesErr != nil {
		return found
	}
	if d, _, err := rdmasys.Choose(e.Devices, e.Config.Verbs.Device, e.Config.Verbs.Port, e.Config.Verbs.GIDIndex); err == nil {
		found = append(found, one(Fail, name, `set fabric.provider = "tcp", or tls.data = "plain" and see docs/security.md`,
			`tls.data = "tls", but fabric.provider = "auto" would choose %s, and RDMA cannot encrypt: the daemon will not start`, d.Name)...)
	}
	return found
}
