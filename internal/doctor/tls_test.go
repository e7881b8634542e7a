package doctor

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rdmad/rdmad/internal/nodecert"
)

// secure gives the machine the files of [tls], with a certificate as requested, and a
// configuration that names them.
func (m *machine) secure(t *testing.T, valid time.Duration, r nodecert.Request, extra string) {
	t.Helper()
	a, err := nodecert.NewAuthority("test", valid)
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"ca.pem": ca, "a.pem": cert, "a-key.pem": key} {
		m.files["tls/"+name] = &fstest.MapFile{Data: data, Mode: 0o600}
	}
	m.Config = parse(t, twoNodes+"[tls]\nmode = 'required'\ncert = '/tls/a.pem'\nkey = '/tls/a-key.pem'\nca = '/tls/ca.pem'\n"+extra)
}

func TestTLS(t *testing.T) {
	const year = 365 * 24 * time.Hour
	m := healthy(t)
	m.expect(t, "tls", OK, `tls.mode = "off"`)
	later := time.Now().Add(year)
	plain := "data = 'plain'\n"
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, plain)
	m.expect(t, "tls", OK, "/tls/a.pem is for rdmad://node/a until "+later.UTC().Format(time.DateOnly))
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, "")
	m.expect(t, "tls", Warn, "data connections have no TLS", `tls.data = "tls"`, `tls.data = "plain"`)
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, "data = 'tls'\n")
	m.expect(t, "tls", OK, "data connections have TLS too")
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, "data = 'tls'\n[fabric]\nprovider = 'auto'\n")
	m.expect(t, "tls", Fail, "would choose mlx5_0", `fabric.provider = "tcp"`)
	m.Config.Peers = nil // which opens no fabric
	m.expect(t, "tls", OK, "data connections have TLS too")
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: time.Now().Add(20*24*time.Hour + time.Hour)}, plain)
	m.expect(t, "tls", Warn, "in 20 days", "rdmad certs init --dir DIR --force a")
	m.secure(t, 24*time.Hour, nodecert.Request{Node: "a", Until: time.Now().Add(time.Hour)}, plain)
	m.expect(t, "tls", Warn, "the authority", "both ca.pem")
	m.secure(t, 2*year, nodecert.Request{Node: "a", From: time.Now().Add(-time.Hour), Until: time.Now().Add(-time.Minute)}, plain)
	m.expect(t, "tls", Fail, "expired on", "rdmad certs init --dir DIR --force a")
	m.secure(t, 2*year, nodecert.Request{Node: "a", From: time.Now().Add(time.Hour), Until: later}, plain)
	m.expect(t, "tls", Fail, "is not valid before")
	m.secure(t, 2*year, nodecert.Request{Node: "b", Until: later}, plain)
	m.expect(t, "tls", Fail, `for node "b", but node.name is "a"`)

	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, plain)
	m.files["tls/a-key.pem"].Mode = 0o644
	m.expect(t, "tls", Fail, "/tls/a-key.pem has mode 0644", "chmod 0600 /tls/a-key.pem")
	m.files["tls/a-key.pem"].Mode = fs.ModeDir | 0o700
	m.expect(t, "tls", Fail, "is not a file")
	delete(m.files, "tls/a-key.pem")
	m.expect(t, "tls", Fail, "tls.key", "copy them there")
	m.secure(t, 2*year, nodecert.Request{Node: "a", Until: later}, plain)
	m.files["tls/ca.pem"] = m.files["tls/a.pem"]
	m.expect(t, "tls", Fail, "not that of an authority", "rdmad certs init")
}
