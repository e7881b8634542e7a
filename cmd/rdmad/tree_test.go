package main

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
)

// visible returns the commands that help, man pages and completions show.
func visible(c *cobra.Command) []*cobra.Command {
	found := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			found = append(found, visible(sub)...)
		}
	}
	return found
}

// Every command says what it is for, in short and at length, and shows how it is used;
// so does every flag.
func TestEveryCommandIsDescribed(t *testing.T) {
	commands := visible(newRoot())
	if len(commands) < 20 {
		t.Fatalf("only %d commands", len(commands))
	}
	for _, c := range commands {
		path := c.CommandPath()
		switch {
		case c.Short == "", !unicode.IsUpper(rune(c.Short[0])), strings.HasSuffix(c.Short, "."), strings.Contains(c.Short, "\n"):
			t.Errorf("%s: Short is %q: want one line that begins with a capital letter and has no full stop", path, c.Short)
		case c.Long == "" && !described(c):
			t.Errorf("%s: no Long", path)
		case c.Example == "":
			t.Errorf("%s: no Example", path)
		}
		if _, command, _ := strings.Cut(c.UseLine(), " -- "); strings.Contains(command, "[flags]") {
			t.Errorf("%s: %q has flags behind what is another command's", path, c.UseLine())
		}
		checkFlags(t, c)
	}
}

// described reports that the description of the parent is the command's, too.
func described(c *cobra.Command) bool { return c.HasParent() && c.Parent().Name() == "bench" }

// The commands of all examples exist, and have the flags and as many arguments as the
// examples give them.
func TestExamplesOfCommands(t *testing.T) {
	seen := 0
	for _, c := range visible(newRoot()) {
		own := false
		for line := range strings.Lines(c.Example) {
			for _, command := range exampleCommands(line) {
				seen++
				used := checkCommandLine(t, c.CommandPath(), command)
				own = own || used == c.CommandPath() || strings.HasPrefix(used, c.CommandPath()+" ")
			}
		}
		if c.Example != "" && !own {
			t.Errorf("%s: no example uses it", c.CommandPath())
		}
	}
	if seen < 20 {
		t.Errorf("only %d examples", seen)
	}
}

// exampleCommands returns the rdmad commands of a line of an example, each as words.
// That of a sandbox is one of its own.
func exampleCommands(line string) [][]string {
	line, _, _ = strings.Cut(line, "#")
	var found [][]string
	words := strings.Fields(line)
	if end := slices.IndexFunc(words, func(w string) bool { return slices.Contains([]string{"|", "&&", ";"}, w) }); end >= 0 {
		words = words[:end]
	}
	for i := len(words) - 1; i >= 0; i-- {
		if words[i] == "rdmad" && (i == 0 || words[i-1] == "--") {
			command := words[i:]
			if redirected := strings.IndexFunc(strings.Join(command, " "), func(r rune) bool { return r == '<' || r == '>' }); redirected >= 0 {
				command = strings.Fields(strings.Join(command, " ")[:redirected])
			}
			found = append(found, command)
		}
	}
	return found
}

// checkCommandLine parses a command line as execute would, without running it, and
// returns the path of its command.
func checkCommandLine(t *testing.T, where string, words []string) string {
	t.Helper()
	c, args, err := newRoot().Find(words[1:])
	if err == nil {
		err = c.ParseFlags(args)
	}
	if err == nil {
		err = c.ValidateArgs(c.Flags().Args())
	}
	if err == nil && c.HasSubCommands() && c.HasParent() && len(c.Flags().Args()) > 0 {
		err = chooseCommand(c, c.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: example %q: %v", where, strings.Join(words, " "), err)
		return ""
	}
	return c.CommandPath()
}

func TestExampleCommands(t *testing.T) {
	for line, want := range map[string]string{
		"  rdmad call x - < a > b":                  "rdmad call x -",
		"  rdmad sandbox -- rdmad bench call  # so": "rdmad bench call;rdmad sandbox -- rdmad bench call",
		"  cp x y":             "",
		"  rdmad trace | less": "rdmad trace",
	} {
		var got []string
		for _, c := range exampleCommands(line) {
			got = append(got, strings.Join(c, " "))
		}
		if strings.Join(got, ";") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
