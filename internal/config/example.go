package config

import (
	"fmt"
	"strconv"
	"strings"
)

// exampleWidth is where comments of Example are wrapped.
const exampleWidth = 90

const exampleIntro = "Configuration of rdmad, the daemon that owns a node's RDMA queue pairs.\n" +
	"Every key is shown with its default, so this file means the same as an empty one. Sizes are in bytes. " +
	`Durations are strings with a unit: "10s", "250ms", "50us". Unknown keys are errors. ` +
	"All problems of a file are reported at once, each with its line. " +
	"What a reload applies and what needs a restart is said by man 5 rdmad-config and docs/config.md, of a change by rdmad config diff."

// Example returns a documented configuration file in which every key has its
// default. It is the config.toml that ships with rdmad.
func Example() string {
	var b strings.Builder
	comment(&b, exampleIntro)
	for _, s := range sections {
		b.WriteString("\n")
		comment(&b, s.doc)
		switch {
		case s.list == nil:
			fmt.Fprintf(&b, "[%s]\n", s.name)
			s.write(&b, "", nil, true)
		case len(s.list.elements) == 0:
			fmt.Fprintf(&b, "#\n# [[%s]]\n", s.name)
			s.write(&b, "# ", s.list.sample, true)
		default:
			for i, e := range s.list.elements {
				if i > 0 {
					b.WriteString("\n")
				}
				fmt.Fprintf(&b, "[[%s]]\n", s.name)
				s.write(&b, "", e, i == 0)
			}
		}
	}
	return b.String()
}

// write prints the keys of one table with values of the element, or else their
// defaults. The prefix comments the whole table out.
func (s section) write(b *strings.Builder, prefix string, elem map[string]any, documented bool) {
	for _, k := range s.keys {
		if documented {
			comment(b, k.doc)
			limits := "Range: " + k.allowed + "."
			switch k.def {
			case nil:
				limits += " Required."
			default:
				limits += " Default: " + literal(k.def) + "."
			}
			comment(b, limits)
		}
		v, ok := elem[k.name]
		if !ok {
			v = k.def
		}
		fmt.Fprintf(b, "%s%s = %s\n", prefix, k.name, literal(v))
	}
}

// comment prints text as wrapped comment lines.
func comment(b *strings.Builder, text string) {
	for paragraph := range strings.Lines(text) {
		line := "#"
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+1+len(word) > exampleWidth {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
}

// literal writes a default in TOML. Defaults are plain ASCII, for which Go's
// quoting is TOML's.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = literal(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}
