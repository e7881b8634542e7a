package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMissingPackages(t *testing.T) {
	listed := "installed one\nnot-installed two\nconfig-files three\ninstalled four-dev\n"
	got := missingPackages([]string{"one", "two", "three", "four", "four-dev"}, listed)
	if want := []string{"two", "three", "four"}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
	if got := missingPackages([]string{"one"}, ""); !slices.Equal(got, []string{"one"}) {
		t.Errorf("of nothing: missing %q", got)
	}
}

// What fails while another has the lists is tried again, within bounds.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		calls := 0
		fails := func(times int) func() error {
			calls = 0
			return func() error {
				if calls++; calls <= times {
					return busy
				}
				return nil
			}
		}
		if err := again(t.Context(), time.Minute, time.Second, fails(3)); err != nil || calls != 4 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if err := again(t.Context(), 10*time.Second, time.Second, fails(100)); !errors.Is(err, busy) || calls != 11 {
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := again(ctx, time.Minute, time.Second, fails(100)); !errors.Is(err, busy) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

func TestParseKernel(t *testing.T) {
	for shown, want := range map[string]kernel{
		"Package: linux-image-amd64\nVersion: 6.1.192-2\nDepends: linux-image-6.1.0-56-amd64 (= 6.1.192-2)\nSize: 1\n": {"linux-image-6.1.0-56-amd64", "6.1.192-2"},
		"Depends: other, linux-image-6.12.48+deb13-amd64 (= 6.12.48-1), more\n":                                        {"linux-image-6.12.48+deb13-amd64", "6.12.48-1"},
	} {
		if got, err := parseKernel(shown); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	if k, err := parseKernel("N: Unable to locate package\n"); err == nil || !strings.Contains(err.Error(), "apt-get update") {
		t.Errorf("without a kernel: %v, %v", k, err)
	}
	if got := (kernel{"linux-image-6.1.0-56-amd64", "x"}).release(); got != "6.1.0-56-amd64" {
		t.Errorf("the release is %q", got)
	}
}

func TestModuleFiles(t *testing.T) {
	shown := "insmod /d/lib/modules/1/kernel/a.ko \nbuiltin b\ninsmod /d/c.ko.xz option=1\n"
	got, err := moduleFiles(shown)
	if want := []string{"/d/lib/modules/1/kernel/a.ko", "/d/c.ko.xz"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := moduleFiles("install /bin/sh\n"); err == nil {
		t.Error("an unknown line is no error")
	}
	for file, want := range map[string]string{"/d/a.ko": "a.ko", "/d/c.ko.xz": "c.ko"} {
		if got := moduleName(file); got != want {
			t.Errorf("%s is called %s, want %s", file, got, want)
		}
	}
}

// Whatever an image is made from changes its key.
func TestImageKey(t *testing.T) {
	base := kernel{"linux-image-1-amd64", "1"}
	script, list := []byte("script"), []module{{name: "a"}, {name: "b"}}
	keys := []string{
		imageKey(base, script, list),
		imageKey(kernel{base.pkg, "2"}, script, list),
		imageKey(kernel{"linux-image-2-amd64", base.version}, script, list),
		imageKey(base, []byte("script "), list),
		imageKey(base, script, list[:1]),
		imageKey(base, script, []module{{name: "a"}, {name: "b", optional: true}}),
		imageKey(base, script, []module{{name: "b"}, {name: "a"}}),
	}
	if again := imageKey(base, slices.Clone(script), slices.Clone(list)); again != keys[0] {
		t.Errorf("the key is %s and then %s", keys[0], again)
	}
	slices.Sort(keys)
	if n := len(slices.Compact(slices.Clone(keys))); n != len(keys) {
		t.Errorf("%d keys for %d images: %q", n, len(keys), keys)
	}
}

func TestVirtualCPU(t *testing.T) {
	for name, want := range map[string]int{"CPU 0/TCG\n": 0, "CPU 11/TCG": 11} {
		if got, ok := virtualCPU(name); !ok || got != want {
			t.Errorf("%q is CPU %d, %t", name, got, ok)
		}
	}
	for _, name := range []string{"", "qemu-system-x86\n", "CPU 0/KVM", "CPU x/TCG", "xCPU 0/TCG", "CPU 99999999999999999999/TCG"} {
		if n, ok := virtualCPU(name); ok {
			t.Errorf("%q is CPU %d", name, n)
		}
	}
}

func TestExitStatus(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -15 $$": 143} {
		if got := exitStatus(exec.Command("sh", "-c", script).Run()); got != want {
			t.Errorf("%s: status %d, want %d", script, got, want)
		}
	}
	if got := exitStatus(errors.New("other")); got != statusFailed {
		t.Errorf("another error: status %d, want %d", got, statusFailed)
	}
}

func TestArchive(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("no cpio to read the archive with: apt-get install cpio")
	}
	var b bytes.Buffer
	a := &archive{w: &b}
	a.dir("d")
	a.file("d/three", []byte("abc"), 0o755)
	a.device("console", 5, 1)
	a.file("last", nil, 0o644)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	list := exec.Command("cpio", "-tv", "--numeric-uid-gid", "--quiet")
	list.Stdin = bytes.NewReader(b.Bytes())
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := []string{"drwxr-xr-x d", "-rwxr-xr-x d/three", "crw------- console", "-rw-r--r-- last"}
	var got []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		got = append(got, words[0]+" "+words[len(words)-1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConsole(t *testing.T) {
	var log bytes.Buffer
	c := newConsole(&log)
	text := strings.Repeat("line\r\n", 2*tailLines) + "[ 1.0] BUG: bad\r\n" + readyLine + "\r\n" + strings.Repeat("x", 2*maxLine)
	for b := range slices.Chunk([]byte(text), 7) {
		if n, err := c.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
	}
	select {
	case <-c.ready:
	default:
		t.Error("the guest is not ready")
	}
	if log.String() != text {
		t.Error("the log is not what was written")
	}
	tail := strings.Split(c.tail(), "\n")
	if len(tail) != tailLines+1 || tail[tailLines-1] != readyLine || len(tail[tailLines]) != maxLine {
		t.Errorf("the tail is %q", tail)
	}
	if got := c.complaints(); !slices.Equal(got, []string{"[ 1.0] BUG: bad"}) {
		t.Errorf("the complaints are %q", got)
	}
}

func TestPayload(t *testing.T) {
	kernel := make([]byte, 4096)
	copy(kernel[bootMagic:], "HdrS")
	kernel[bootSectors] = 1
	kernel[bootPayload], kernel[bootPayloadLength] = 16, 20
	copy(kernel[1024+16:], "\xfd7zXZ\x00 and more")
	if got, want := string(payload(kernel)), "\xfd7zXZ\x00 and more"; !strings.HasPrefix(got, want) || len(got) != 16 {
		t.Errorf("the payload is %q", got)
	}
	for what, change := range map[string]func([]byte) []byte{
		"short":    func(b []byte) []byte { return b[:bootHeaderEnd-1] },
		"no magic": func(b []byte) []byte { b[bootMagic] = 0; return b },
		"cut off":  func(b []byte) []byte { return b[:1024+16+19] },
		"not xz":   func(b []byte) []byte { b[1024+16] = 0; return b },
		"empty":    func(b []byte) []byte { b[bootPayloadLength] = 3; return b },
	} {
		if got := payload(change(slices.Clone(kernel))); got != nil {
			t.Errorf("%s: the payload is %q", what, got)
		}
	}
}

func TestEntryNote(t *testing.T) {
	other := "\x04\x00\x00\x00\x02\x00\x00\x00\x12\x00\x00\x00GNU\x00ab\x00\x00"
	entry := "\x04\x00\x00\x00\x04\x00\x00\x00\x12\x00\x00\x00Xen\x00abcd"
	for notes, want := range map[string]bool{
		"": false, other: false, entry: true, other + entry: true, entry[:len(entry)-1]: false,
		"\xff\xff\xff\xff\xff\xff\xff\xff\x12\x00\x00\x00Xen\x00": false,
	} {
		if got := hasEntryNote([]byte(notes)); got != want {
			t.Errorf("%q: %t, want %t", notes, got, want)
		}
	}
	if startable([]byte("no ELF file")) {
		t.Error("what is no ELF file can be started")
	}
}
