//go:build docs

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// There is a page for every command, a page for the configuration, and completions for
// three shells; all the same the second time, and well formed where there is something
// to tell.
func TestWriteDocs(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := writeDocs(dir); err != nil {
			t.Fatal(err)
		}
	}
	written := map[string]string{}
	for i, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			name := strings.TrimPrefix(path, dir+"/")
			if i == 1 && written[name] != string(text) {
				t.Errorf("%s differs the second time", name)
			}
			written[name] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range visible(newRoot()) {
		name := "man1/" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if !strings.Contains(written[name], strings.ReplaceAll(c.Short, "-", `\-`)) && !strings.Contains(written[name], c.Short) {
			t.Errorf("%s does not say %q", name, c.Short)
		}
	}
	for name, word := range map[string]string{
		"man5/rdmad-config.5": `.B max_group_delay`, "man1/rdmad.1": "Sep 2001",
		"completions/rdmad.bash": "__start_rdmad", "completions/_rdmad": "#compdef rdmad", "completions/rdmad.fish": "complete -c rdmad",
	} {
		if !strings.Contains(written[name], word) {
			t.Errorf("%s does not have %q", name, word)
		}
	}
	page := written["man5/rdmad-config.5"]
	for _, want := range []string{"A change needs: a reload.\n", "A change needs: a restart.\n", "A change needs: a reload, and counts for processes that attach from then on.\n", "RDMAD_LIMITS_WORKERS=64"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the configuration does not say %q", want)
		}
	}
	checkForm(t, dirs[0])
}

// checkForm has the tools that use pages and completions look at them, where they are
// installed.
func checkForm(t *testing.T, dir string) {
	t.Helper()
	pages, err := filepath.Glob(dir + "/man?/*")
	if err != nil || len(pages) < 20 {
		t.Fatalf("pages %q: %v", pages, err)
	}
	for _, tool := range []struct {
		args  []string
		files []string
	}{
		{[]string{"mandoc", "-T", "lint", "-W", "error"}, pages},
		{[]string{"groff", "-man", "-z", "-ww", "-Tutf8"}, pages},
		{[]string{"bash", "-n"}, []string{dir + "/completions/rdmad.bash"}},
		{[]string{"zsh", "-n"}, []string{dir + "/completions/_rdmad"}},
		{[]string{"fish", "-n"}, []string{dir + "/completions/rdmad.fish"}},
	} {
		if _, err := exec.LookPath(tool.args[0]); err != nil {
			t.Logf("%s is not installed", tool.args[0])
			continue
		}
		for _, file := range tool.files {
			out, err := exec.Command(tool.args[0], append(tool.args[1:], file)...).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%s %s: %v\n%s", strings.Join(tool.args, " "), file, err, out)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"a-b": `a\-b`, `a\b`: `a\eb`, ".x": `\&.x`, "'x": `\&'x`, "a.b": "a.b",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
