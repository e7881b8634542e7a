package config

import (
	"fmt"
	"strings"
	"time"
)

// Docs returns the reference of the configuration file as Markdown: what docs/config.md
// has between its marks.
func Docs() string {
	var b strings.Builder
	for _, s := range sections {
		head := "[" + s.name + "]"
		if s.list != nil {
			head = "[[" + s.name + "]]"
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", head, s.doc)
		if s.list == nil {
			fmt.Fprintf(&b, "Variables: `%s` and so on.\n\n", variable(s.name, s.keys[0].name))
		} else {
			b.WriteString("A list: only in the file.\n\n")
		}
		b.WriteString("| key | type | default | range | a change needs |\n|---|---|---|---|---|\n")
		for _, k := range s.keys {
			def := "required"
			if k.def != nil {
				def = "`" + literal(k.def) + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.name, k.unitOf(), cell(def), cell(k.allowed), applies[s.name+"."+k.name])
		}
		b.WriteString("\n")
		for _, k := range s.keys {
			fmt.Fprintf(&b, "- **%s.%s**: %s\n", s.name, k.name, k.doc)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// unitOf returns the type of a key for people, with the unit if it is a number of
// something.
func (k key) unitOf() string {
	switch {
	case k.typ == "integer" && strings.Contains(k.doc, "bytes"):
		return "integer, bytes"
	case k.typ == "integer" && strings.Contains(k.doc, "percent"):
		return "integer, percent"
	}
	return k.typ
}

// typeFor names the TOML type of the values of T for people.
func typeFor[T any]() string {
	switch any(*new(T)).(type) {
	case int:
		return "integer"
	case bool:
		return "boolean"
	case time.Duration:
		return "duration"
	case []string:
		return "array of strings"
	}
	return "string"
}
