package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sourceFile writes a configuration file.
func sourceFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A flag counts over the environment, that over the file, that over the default, and each
// value says which it is.
func TestSources(t *testing.T) {
	file := sourceFile(t, oneNode+"[limits]\nworkers=1\nservices=2\nstrikes=3\n[[peer]]\nname=\"b\"\naddress=\"b:1\"\n")
	l, err := Sources{
		File: file,
		Environ: []string{"HOME=/x", "RDMAD_SOCKET=/y", "RDMAD_LIMITS_SERVICES=20", "RDMAD_LIMITS_STRIKES=30", "RDMAD_TLS_ALLOW=b",
			"RDMAD_GROUP_SEND_ENABLED=false", "RDMAD_NODE_DRAIN_TIMEOUT=3s", "RDMAD_SERVICE_HOST=10.0.0.1", "RDMAD_PORT_7471_TCP_ADDR=x"},
		Set: []string{"limits.strikes=300", "log.level=warn"},
	}.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, v := range l.Values() {
		values[v.Path] = v.Origin.String()
		if v.Applies == "" {
			t.Errorf("%+v", v)
		}
	}
	for path, want := range map[string]string{
		"limits.workers": file + ":5", "limits.services": "environment RDMAD_LIMITS_SERVICES", "limits.strikes": "flag --set limits.strikes",
		"limits.region_count": "default", "peer[0].address": file + ":10", "class[1].slots": "default", "node.drain_timeout": "environment RDMAD_NODE_DRAIN_TIMEOUT",
	} {
		if values[path] != want {
			t.Errorf("%s is from %q, want %q", path, values[path], want)
		}
	}
	if l.Limits.Workers != 1 || l.Limits.Services != 20 || l.Limits.Strikes != 300 || l.Log.Level != "warn" || l.GroupSend.Enabled || len(l.TLS.Allow) != 1 {
		t.Errorf("loaded %+v", l.Config)
	}
}

// What is wrong with a variable or a setting is said with its name, all at once.
func TestSourcesRefuse(t *testing.T) {
	file := sourceFile(t, "[agent]\ncuont=1\n")
	_, err := Sources{
		File: file,
		Environ: []string{"RDMAD_LIMITS_WORKERS=0", "RDMAD_LIMITS_WORKRES=1", "RDMAD_PEER_NAME=b", "RDMAD_NONSENSE_NAME=1", "RDMAD_SOCKETS=/y",
			"RDMAD_LIMITS_STRIKES=many", "RDMAD_GROUP_SEND_ENABLED=yes", "RDMAD_TLS_CERT=/\xff",
			"RDMAD_LIMITS_SERVICES=99999999999999999999"},
		Set: []string{"limits.servics=1", "log.level", "log.level=loud", "domain.name=x", "node.socket=/\xff", "agent.count=-99999999999999999999"},
	}.Load(t.Context())
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	want := []string{
		`environment RDMAD_LIMITS_WORKERS: limits.workers: must be 1 to 4095, got 0`,
		`environment RDMAD_LIMITS_WORKRES: unknown variable, did you mean "RDMAD_LIMITS_WORKERS"?`,
		`environment RDMAD_PEER_NAME: [[peer]] is a list, which can only be in the file`,
		`environment RDMAD_NONSENSE_NAME: unknown variable`,
		`environment RDMAD_SOCKETS: unknown variable, did you mean "RDMAD_SOCKET"?`,
		`environment RDMAD_LIMITS_STRIKES: limits.strikes: must be an integer, got a string`,
		`environment RDMAD_LIMITS_SERVICES: limits.services: must be 1 to 65535, got 99999999999999999999`,
		`flag --set agent.count: agent.count: must be 1 to 64, got -99999999999999999999`,
		`environment RDMAD_GROUP_SEND_ENABLED: group_send.enabled: must be true or false, got a string`,
		`flag --set limits.servics: unknown key, did you mean "limits.services"?`,
		`flag --set log.level: want section.key=value`,
		`flag --set log.level: log.level: must be "debug", "info", "warn" or "error", got "loud"`,
		`environment RDMAD_TLS_CERT: tls.cert: must be UTF-8`,
		`flag --set node.socket: node.socket: must be UTF-8`,
		`flag --set domain.name: [[domain]] is a list, which can only be in the file`,
		file + `:2: agent.cuont: unknown key, did you mean "count"?`,
	}
	if len(errs) != len(want) {
		t.Errorf("%d problems, want %d", len(errs), len(want))
	}
	for _, w := range want {
		if !strings.Contains(err.Error()+"\n", w+"\n") {
			t.Errorf("missing %q in\n%v", w, err)
		}
	}
}

// A private key that was put where its path belongs is in no reason, however it was put there.
func TestSecretsAreNotQuoted(t *testing.T) {
	const secret = "MHcCAQEEIDoq"
	refused := func(what string, s Sources) {
		t.Helper()
		_, err := s.Load(t.Context())
		if err == nil || !strings.Contains(err.Error(), "tls") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"cert", "key", "ca"} {
		for _, document := range []string{
			"[tls]\n%s = '" + secret + "'\n",
			"[tls]\n%s = \"\"\"-----BEGIN EC PRIVATE KEY-----\n" + secret + "\n-----END EC PRIVATE KEY-----\"\"\"\n",
			"[tls]\n%s = " + secret + "\n",
			"[tls]\n%s = " + secret + "\n[log]\n[log]\n",
			"[tls]\n%s = [" + secret + "]\n",
			"tls = {%s = " + secret + "}\n[log]\n[log]\n",
		} {
			document = fmt.Sprintf(document, name)
			refused(document, Sources{File: sourceFile(t, document)})
		}
		refused(name+" of the environment", Sources{File: sourceFile(t, ""), Environ: []string{variable("tls", name) + "=" + secret}})
		refused(name+" of a setting", Sources{File: sourceFile(t, ""), Set: []string{"tls." + name + "=" + secret}})
	}
}

// What cannot be read is refused in a file also where a setting counts over it, whatever is in it.
func TestSourcesOverUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		"[limits]\nworkers = 12_\n":                        `2: limits.workers: must be 1 to 4095, got 12_ (not a value of TOML)`,
		"[limits]\nworkers = [0x]\n":                       `2: limits.workers: not a hexadecimal number: '0x]'`,
		"[limits]\nworkers = 12_\n[agent]\ncount = 0x # a": `2: limits.workers: must be 1 to 4095, got 12_ (not a value of TOML)|4: agent.count: must be 1 to 64, got 0x (not a value of TOML)`,
	} {
		file := sourceFile(t, text)
		_, err := Sources{File: file, Set: []string{"limits.workers=5"}}.Load(t.Context())
		if want = file + ":" + strings.ReplaceAll(want, "|", "\n"+file+":"); err == nil || err.Error() != want {
			t.Errorf("%q: got\n%v\nwant\n%s", text, err, want)
		}
	}
}

// A key of the file, or a default, that does not go with a setting or a variable is a problem of that, not of the file.
func TestSourcesClash(t *testing.T) {
	tls := `flag --set tls.mode: tls.%s: is required with tls.mode = "required"; rdmad certs init makes the files and prints their paths`
	for _, c := range []struct {
		text, set, environ string
		want               []string
	}{
		{text: "", set: "tls.mode=required", want: []string{fmt.Sprintf(tls, "ca"), fmt.Sprintf(tls, "cert"), fmt.Sprintf(tls, "key")}},
		{text: "", environ: "RDMAD_LIMITS_SPILL_AFTER=2m", want: []string{`environment RDMAD_LIMITS_SPILL_AFTER: limits.spill_timeout: must be 0s or at least limits.spill_after, which is 2m0s, got `}},
		{text: "[[peer]]\nname=\"b\"\naddress=\"b:1\"\n", set: "node.name=b", want: []string{`flag --set node.name: peer[0].name: "b" is the name of this node`}},
		{text: "[tls]\ndata=\"tls\"\n", set: "tls.mode=off", want: []string{`flag --set tls.mode: tls.data: "tls" needs tls.mode = "required"`}},
		{text: "[observe]\nlisten=\"127.0.0.1:5\"\n", set: "node.listen=127.0.0.1:5", want: []string{`flag --set node.listen: observe.listen: "127.0.0.1:5" has the port of node.listen`}},
		{text: "[observe]\ncounters=\"/run/x\"\n", set: "node.socket=/run/x", want: []string{`flag --set node.socket: observe.counters: "/run/x" is node.socket`}},
		{text: "[observe]\ncounters=\"/run/x\"\n", set: "observe.socket=/run/x", want: []string{`flag --set observe.socket: observe.counters: "/run/x" is observe.socket`}},
	} {
		src := Sources{File: sourceFile(t, oneNode+c.text)}
		if c.set != "" {
			src.Set = []string{c.set}
		}
		if c.environ != "" {
			src.Environ = []string{c.environ}
		}
		_, err := src.Load(t.Context())
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != len(c.want) {
			t.Errorf("%q with %s%s: %v", c.text, c.set, c.environ, err)
			continue
		}
		for i, w := range c.want {
			if !strings.HasPrefix(errs[i].Error(), w) {
				t.Errorf("%q with %s%s: %v, want %s", c.text, c.set, c.environ, errs[i], w)
			}
		}
	}
}

// No section has a name by which a variable of something else would be one of its keys.
func TestVariablesAreKeys(t *testing.T) {
	for _, s := range sections {
		for _, k := range s.keys {
			if name := variable(s.name, k.name); otherVariables.MatchString(name) {
				t.Errorf("%s is taken for a variable of something else", name)
			}
		}
	}
}

// What Kubernetes makes for services whose names begin with rdmad is no key, also where its name is that of one; a key
// that somebody has misspelt is none of these.
func TestVariablesOfServices(t *testing.T) {
	services := []string{
		"RDMAD_PORT=tcp://10.0.0.1:7471", "RDMAD_SERVICE_HOST=10.0.0.1", "RDMAD_SERVICE_PORT=7471", "RDMAD_PORT_7471_TCP_ADDR=10.0.0.1",
		"RDMAD_VERBS_PORT=tcp://10.0.0.2:1", "RDMAD_VERBS_PORT_1_TCP=tcp://10.0.0.2:1", "RDMAD_VERBS_PORT_1_TCP_PORT=1", "RDMAD_VERBS_SERVICE_HOST=10.0.0.2",
		"RDMAD_VERBS_SERVICE_PORT=1", "RDMAD_VERBS_SERVICE_PORT_DATA=1", "RDMAD_NODE_PORT=udp://10.0.0.3:2",
	}
	l, err := Sources{File: sourceFile(t, oneNode), Environ: services}.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if over := l.Overrides(); len(over) != 0 {
		t.Errorf("taken for keys: %+v", over)
	}
	if kept := WithoutKeys(services); len(kept) != len(services) {
		t.Errorf("what is left: %v", kept)
	}
	l, err = Sources{File: sourceFile(t, oneNode), Environ: []string{"RDMAD_VERBS_PORT=2"}}.Load(t.Context())
	if err != nil || l.Verbs.Port != 2 {
		t.Errorf("verbs.port: %v", err)
	}
	for _, misspelt := range []string{"RDMAD_VERB_PORT=2", "RDMAD_VERBS_PROT_PORT=2", "RDMAD_NODE_PORT=7471", "RDMAD_PORT=7471"} {
		if _, err := (Sources{File: sourceFile(t, oneNode), Environ: []string{misspelt}}).Load(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown variable") {
			t.Errorf("%s: %v", misspelt, err)
		}
	}
}

// What is read again is a file that says something.
func TestReloadOfNothing(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, file := range map[string]string{
		"is empty":                          sourceFile(t, ""),
		"not a file that can be read again": pipe,
		"no such file":                      filepath.Join(dir, "none"),
	} {
		if _, err := (Sources{File: file}).Reload(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
	c, err := Sources{File: sourceFile(t, oneNode), Set: []string{"log.level=warn"}}.Reload()
	if err != nil || c.Log.Level != "warn" {
		t.Errorf("%v, %v", c, err)
	}
}
