package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
)

// Secrets are taken out, and nothing else; JSON stays JSON.
func TestScrub(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"password = hunter2\nuser = bob", "password = [removed]\nuser = bob"},
		{`DB_PASSWORD="hunter2" x=1`, `DB_PASSWORD="[removed]" x=1`},
		{`{"auth_token":"abc","port":7}`, `{"auth_token":"[removed]","port":7}`},
		{`{"text":"api-key: abc, and more"}`, `{"text":"api-key: [removed], and more"}`},
		{`{"text":"{\"secret\":\"abc\"}"}`, `{"text":"{\"secret\":\"[removed]\"}"}`},
		{"rdmad run --token abc -c file", "rdmad run --token [removed] -c file"},
		{"Authorization: Bearer abc.def", "Authorization: [removed]"},
		{"Authorization: Token abcdef\nHost: x", "Authorization: [removed]\nHost: x"},
		{"Cookie: session=abc; other=def", "Cookie: [removed]"},
		{`{"text":"token=\u003cnil\u003e"}`, `{"text":"token=[removed]"}`},
		{`{"text":"password=abc\u0026def ghi"}`, `{"text":"password=[removed] ghi"}`},
		{`{"text":"{\"secret\":\"\u0026abc\"}"}`, `{"text":"{\"secret\":\"[removed]\"}"}`},
		{`{"text":"{\"secret\":\"a\\\"bc\",\"n\":1}"}`, `{"text":"{\"secret\":\"[removed]\",\"n\":1}"}`},
		{`Authorization: Digest username="bob", response="6629"`, "Authorization: [removed]"},
		{`curl -H "Authorization: Bearer abc" http://x`, `curl -H "Authorization: [removed]" http://x`},
		{`{"text":"Authorization: Digest username=\"bob\", response=\"6629\"","n":1}`, `{"text":"Authorization: [removed]","n":1}`},
		{`{"text":"Authorization: Basic YWJj=","n":1}`, `{"text":"Authorization: [removed]","n":1}`},
		{`{"text":"Cookie: a=b\nHost: x"}`, `{"text":"Cookie: [removed]\nHost: x"}`},
		{`{"Authorization":"Bearer \"abc\"","n":1}`, `{"Authorization":"[removed]","n":1}`},
		{`{"text":"{\"authorization\":\"Bearer \\\"abc\\\"\",\"n\":1}"}`, `{"text":"{\"authorization\":\"[removed]\",\"n\":1}"}`},
		{`{"Authorization":["Bearer abc"],"n":1}`, `{"Authorization":["[removed]"],"n":1}`},
		{`{"text":"Cookie: ","n":1}`, `{"text":"Cookie: ","n":1}`},
		{`Authorization: " Bearer abc"`, "Authorization: [removed]"},
		{"'Authorization': 'Bearer abc'", "'Authorization': [removed]"},
		{"\"Authorization\": Bearer abc\nHost: x", "\"Authorization\": [removed]\nHost: x"},
		{`password = "correct horse battery"`, `password = "[removed]"`},
		{`{"password":"a,b;c d","port":7}`, `{"password":"[removed]","port":7}`},
		{`{"text":"{\"password\":\"a, b\",\"x\":1}"}`, `{"text":"{\"password\":\"[removed]\",\"x\":1}"}`},
		{`{"private_key": "abc", "n": 1}`, `{"private_key": "[removed]", "n": 1}`},
		{`{"tokens": {"a": 1}, "secrets": ["b"]}`, `{"tokens": {"a": 1}, "secrets": ["b"]}`},
		{`{"text":"token=","n":1}`, `{"text":"token=","n":1}`},
		{`["password: ","x"]`, `["password: ","x"]`},
		{`{"text":"say \"password: ","n":1}`, `{"text":"say \"password: ","n":1}`},
		{`{"the password'=":"abc"}`, `{"the password'=":"abc"}`},
		{`{"pin_token": 12, "n": 1}`, `{"pin_token": "[removed]", "n": 1}`},
		{`{"Cookie":["a=b","c=d"],"x":["e"]}`, `{"Cookie":["[removed]","[removed]"],"x":["e"]}`},
		{`{"text":"-----BEGIN PRIVATE KEY-----\nMHc","n":1}`, `{"text":"[removed]","n":1}`},
		{"a token=x\n{\"text\":\"token=\",\"n\":1}\n{\"password\":\"\u003cabc\"}\npwd: y\n", "a token=[removed]\n{\"text\":\"token=\",\"n\":1}\n{\"password\":\"[removed]\"}\npwd: [removed]\n"},
		{"--password=(abc pwd=&x", "--password=[removed] pwd=[removed]"},
		{"MHcCAQ\nabc=\n-----END EC PRIVATE KEY-----\nb", "[removed]\nb"},
		{"postgres://bob:hunter2@db/x", "postgres://bob:[removed]@db/x"},
		{"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb", "a\n[removed]\nb"},
		{"-----BEGIN PRIVATE KEY-----\nMHc", "[removed]"},
		{"key = \"/etc/rdmad/a-key.pem\"", "key = \"/etc/rdmad/a-key.pem\""},
		{"tokens are words; the password was wrong", "tokens are words; the password was wrong"},
	} {
		got := string(Scrub([]byte(c.in)))
		if got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
		if json.Valid([]byte(c.in)) && !json.Valid([]byte(got)) {
			t.Errorf("%s is no JSON any more", got)
		}
	}
}

// Each form of secrets is found, and all forms are needed.
func TestEachSecret(t *testing.T) {
	for i, s := range secrets {
		if got := string(Scrub([]byte(s.before))); got != s.after {
			t.Errorf("%s: %s became %s, want %s", s.name, s.before, got, s.after)
		}
		others := slices.Delete(slices.Clone(secrets), i, i+1)
		if string(scrubOf(others, []byte(s.before))) == s.after {
			t.Errorf("%s: %s is found without it", s.name, s.before)
		}
	}
}

// JSON stays JSON, whatever its strings say.
func FuzzScrub(f *testing.F) {
	for _, s := range []string{"token=", `password: "`, `{"secret":"\"a"}`, "-----BEGIN PRIVATE KEY-----", "Authorization: Bearer \\", "x://u:p@'", "\xff token=\xfe"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		var in bytes.Buffer
		e := json.NewEncoder(&in)
		e.SetEscapeHTML(len(name)%2 == 0)
		if err := e.Encode(map[string]any{name: value, "n": []any{value, 1}}); err != nil {
			t.Fatal(err)
		}
		if got := Scrub(in.Bytes()); !json.Valid(got) {
			t.Errorf("%q became %q", in.Bytes(), got)
		}
	})
}

// A part that hangs, even one that does not heed its context, keeps no other from coming,
// and the file says why it is not there.
func TestPartsHang(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	parts := []Part{
		{Name: "z.txt", What: "the first", Limit: time.Minute, Collect: func(context.Context) ([]byte, error) { return []byte("here"), nil }},
		{Name: "deaf.txt", Limit: 10 * time.Millisecond, Collect: func(context.Context) ([]byte, error) { <-forever; return nil, nil }},
		{Name: "heeds.txt", Limit: 10 * time.Millisecond, Collect: func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) }},
		{Name: "fails.txt", Limit: time.Minute, Collect: func(context.Context) ([]byte, error) { return nil, errors.New("a token: abc\nin two lines") }},
		{Name: "a.txt", What: "the last", Limit: time.Minute, Collect: func(context.Context) ([]byte, error) { return []byte("half"), errors.New("the rest is gone") }},
	}
	had := Collect(t.Context(), parts)
	text := string(manifest("title", time.Unix(0, 0), had))
	for _, want := range []string{
		"z.txt: 4 bytes: the first\na.txt: 4 bytes: the last (the rest is gone)\n", "deaf.txt: it took too long: not within 10ms", "heeds.txt: it took too long",
		"fails.txt: a token: [removed] in two lines\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if missing := strings.Join(Missing(had), " "); missing != "deaf.txt heeds.txt fails.txt" {
		t.Errorf("missing %q", missing)
	}
	var a, b bytes.Buffer
	for _, out := range []io.Writer{&a, &b} {
		if err := WriteTo(out, "name", "title", time.Unix(1e9, 5), had); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same parts are not the same bytes")
	}
}

// A file is there as a whole or not at all, and nobody else may read it.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	good := func(w io.Writer) error { _, err := io.WriteString(w, "content"); return err }
	bad := func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return errors.New("on purpose")
	}
	if err := WriteFile(file, bad); err == nil {
		t.Error("no error")
	}
	left(t, dir)
	for range 2 {
		if err := WriteFile(file, good); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(file, bad); err == nil {
		t.Error("no error")
	}
	left(t, dir, "out")
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 || info.Size() != 7 {
		t.Errorf("%v, %v", info, err)
	}
	for _, none := range []string{dir, "/dev/full", filepath.Join(dir, "missing", "out"), filepath.Join(file, "out")} {
		if err := WriteFile(none, good); err == nil {
			t.Errorf("%s was written", none)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, good); err == nil {
		t.Error("a symbolic link was followed or replaced")
	}
	left(t, dir, "link", "out")
}

// left checks which files are in a directory.
func left(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("%s has %v, want %v", dir, names, want)
	}
}

// The file of a daemon that does not answer is what the command line of "rdmad run" says, and of no other program.
func TestStartedWith(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "rdmad.sock")
	for _, script := range []string{"run", "serve"} { // read by a shell that has the arguments of a daemon
		if err := os.WriteFile(filepath.Join(dir, script), []byte("read line"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "-c", "/x.toml"}, "/x.toml"},
		{[]string{"run", "-c=/x.toml"}, "/x.toml"},
		{[]string{"run", "-c/x.toml"}, "/x.toml"},
		{[]string{"run", "--config", "x.toml"}, filepath.Join(dir, "x.toml")},
		{[]string{"run", "--config=/x.toml", "--set", "log.level=debug"}, "/x.toml"},
		{[]string{"run"}, ""},
		{[]string{"serve", "-c", "5"}, ""},
	} {
		cmd := exec.Command("/bin/sh")
		cmd.Args, cmd.Dir = append([]string{"rdmad"}, c.args...), dir
		cmd.ExtraFiles = []*os.File{boundTo(t, socket)} // by which it is seen to be the daemon
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(config.PIDFile(socket), fmt.Appendln(nil, cmd.Process.Pid), 0o600); err != nil {
			t.Fatal(err)
		}
		got, ok := startedWith(socket)
		nobody := AskStarted(t.Context(), socket)
		if got != c.want || ok != (c.want != "") || nobody.Source != got {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
		_ = in.Close()
		_ = cmd.Wait()
		_ = cmd.ExtraFiles[0].Close()
		if got, ok := startedWith(socket); ok {
			t.Errorf("%q: %q of a process that has ended", c.args, got)
		}
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	}
}

// boundTo returns a socket with a path on which nobody listens.
func boundTo(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), path)
}

// What lies where a daemon's process id should be is no reason to wait, nor to take something else for one: others send
// signals to it.
func TestPIDFileOfNoDaemon(t *testing.T) {
	for what, put := range map[string]func(file string) error{
		"a pipe":                func(file string) error { return unix.Mkfifo(file, 0o600) },
		"a directory":           func(file string) error { return os.Mkdir(file, 0o700) },
		"all processes":         func(file string) error { return os.WriteFile(file, []byte("-1\n"), 0o600) },
		"the group of a caller": func(file string) error { return os.WriteFile(file, []byte("0\n"), 0o600) },
		"a text":                func(file string) error { return os.WriteFile(file, []byte("rdmad"), 0o600) },
		"a stranger's":          func(file string) error { return os.WriteFile(file, fmt.Appendln(nil, os.Getpid()), 0o600) },
		"nothing":               func(string) error { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "rdmad.sock")
			if err := put(config.PIDFile(socket)); err != nil {
				t.Fatal(err)
			}
			answered := make(chan error, 1)
			go func() {
				pids, err := Processes(socket)
				if err == nil {
					err = fmt.Errorf("processes %v", pids)
				} else {
					err = nil
				}
				answered <- err
			}()
			select {
			case err := <-answered:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it is waited for")
			}
		})
	}
}
