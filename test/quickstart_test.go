package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// commandBlock is a block of commands that are run, of a page, and the output that is
// printed below them, if there is one.
var commandBlock = regexp.MustCompile("(?ms)^```sh run\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?")

// pageCommands are the commands of a block, and the output that the page says they have.
// A line of it may end with "...", for anything.
type pageCommands struct{ commands, output string }

func commandsOf(page string) []pageCommands {
	var found []pageCommands
	for _, m := range commandBlock.FindAllStringSubmatch(page, -1) {
		found = append(found, pageCommands{m[1], m[2]})
	}
	return found
}

// sameOutput compares what a block printed with what the page says. On a page every
// output ends its line, and what rdmad call prints into a file does not.
func sameOutput(got, want string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSuffix(want, "\n") + "\n")
	pattern = strings.ReplaceAll(pattern, `\.\.\.`+"\n", ".*\n")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSuffix(got, "\n") + "\n")
}

func TestPageCommands(t *testing.T) {
	page := "# X\n```sh\nno\n```\n```sh run\na\nb\n```\n\ntext\n```sh run\nc\n```\n\n```text\nC ...\nD\n```\n"
	got := commandsOf(page)
	if len(got) != 2 || got[0] != (pageCommands{"a\nb\n", ""}) || got[1] != (pageCommands{"c\n", "C ...\nD\n"}) {
		t.Errorf("%q", got)
	}
	if !sameOutput("C 1.2\nD\n", "C ...\nD\n") || sameOutput("C 1\nE\n", "C ...\nD\n") || sameOutput("C 1\nD\nE\n", "C ...\nD\n") {
		t.Error("outputs are compared wrongly")
	}
}

// The commands of the quick start work as they are printed, one after the other in one
// shell and an empty directory, print what the page says, and leave nothing behind.
func TestQuickStart(t *testing.T) {
	page, err := os.ReadFile("../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := commandsOf(string(page))
	if len(blocks) < 6 {
		t.Fatalf("found only %q", blocks)
	}
	dir, err := os.MkdirTemp("", "rdmad-quickstart-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// Unix sockets have short paths, so it is not t.TempDir. What a block prints goes to a
	// file of its own, and so does the number of the last block that went well.
	outputs := t.TempDir()
	var script strings.Builder
	script.WriteString("set -eu\n")
	for i, b := range blocks {
		fmt.Fprintf(&script, "{\n%s} > %s/%d\necho %d > %s/done\n", b.commands, outputs, i, i, outputs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script.String())
	shell.Dir = dir
	shell.Env = []string{"PATH=" + filepath.Dir(programs.rdmad) + ":" + os.Getenv("PATH"), "HOME=" + dir}
	// Whatever is left of it is stopped with it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	var complaints bytes.Buffer
	shell.Stderr = &complaints
	err = shell.Run()
	if killed := syscall.Kill(-shell.Process.Pid, syscall.SIGKILL); killed == nil {
		t.Error("processes are left")
	}
	for i, b := range blocks {
		text, readErr := os.ReadFile(filepath.Join(outputs, fmt.Sprint(i)))
		if readErr != nil {
			break // not reached
		}
		if b.output != "" && !sameOutput(string(text), b.output) {
			t.Errorf("%s\nprinted %q, and the page says %q", b.commands, text, b.output)
		}
	}
	if err != nil {
		last, _ := os.ReadFile(filepath.Join(outputs, "done"))
		logs, _ := exec.Command("sh", "-c", "tail -n 20 "+dir+"/*/*.log").Output()
		t.Fatalf("%v after block %s%s\n%s", err, last, complaints.String(), logs)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
