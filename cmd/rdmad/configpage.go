//go:build docs

package main

import (
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/config"
)

// configPage returns the man page of the configuration file, made of the table that
// the file itself is read by.
func configPage(source string, sections []config.SectionDoc) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"RDMAD-CONFIG\" \"5\" \"\" %q \"rdmad\"\n", source)
	b.WriteString(".nh\n.ad l\n.SH NAME\nrdmad-config \\- configuration of rdmad, /etc/rdmad/config.toml\n.SH DESCRIPTION\n")
	paragraph(&b, "The file is TOML, and is read by the daemon when it starts and when it is told to reload it (rdmad reload, SIGHUP). An empty one is valid: every key has a default, other than those of the "+
		"lists [[class]], [[domain]] and [[peer]]. Unknown keys are errors. Sizes are in bytes. Durations are strings with a unit: \"10s\", \"250ms\", \"50us\".")
	b.WriteString(".PP\n")
	paragraph(&b, `"rdmad config check" tells all problems of a file at once, each with its line, and "rdmad config example" prints a file with every key at its default.`)
	b.WriteString(".PP\n")
	paragraph(&b, "Variables of the environment count over the file: RDMAD_SECTION_KEY, such as RDMAD_LIMITS_WORKERS=64, with commas in lists of names. Over these "+
		"counts --set section.key=value of rdmad run. The lists [[class]], [[domain]] and [[peer]] can only be in the file.")
	for _, s := range sections {
		title := "[" + s.Name + "]"
		if s.List {
			title = "[" + title + "]"
		}
		fmt.Fprintf(&b, ".SH %s\n", roff(title))
		paragraph(&b, s.Doc)
		for _, k := range s.Keys {
			fmt.Fprintf(&b, ".TP\n.B %s\n", roff(k.Name))
			paragraph(&b, k.Doc)
			limits := "Range: " + k.Allowed + ". Required."
			if k.Default != "" {
				limits = "Range: " + k.Allowed + ". Default: " + k.Default + "."
			}
			b.WriteString(".br\n")
			paragraph(&b, limits)
			b.WriteString(".br\n")
			paragraph(&b, "A change needs: "+needs(k.Applies)+".")
		}
	}
	b.WriteString(".SH FILES\n.TP\n.I /etc/rdmad/config.toml\nwhere the daemon and the tools look by default\n")
	b.WriteString(".SH SEE ALSO\n.BR rdmad (1),\n.BR rdmad\\-config\\-check (1),\n.BR rdmad\\-config\\-example (1),\n.BR rdmad\\-doctor (1)\n")
	return b.String()
}

// needs says what it takes for a changed value to count.
func needs(a config.Applies) string {
	switch {
	case !a.Live:
		return "a " + a.String()
	case a.Scope == "":
		return "a reload"
	}
	return "a reload, and counts " + a.Scope
}

// paragraph writes running text.
func paragraph(b *strings.Builder, text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		b.WriteString(roff(strings.TrimSpace(line)) + "\n")
	}
}

// roff escapes what roff would take for its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
