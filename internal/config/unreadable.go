package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// unreadable is a value that TOML does not have, as it stands in the document: 0x, 1e400, a word without quotes. No key
// accepts one.
type unreadable string

// String says what it is, after "got".
func (l unreadable) String() string {
	text := oneLine(string(l))
	// TOML writes numbers as Go does.
	_, integer := strconv.ParseInt(string(l), 0, 64)
	_, float := strconv.ParseFloat(string(l), 64)
	if errors.Is(integer, strconv.ErrRange) || errors.Is(float, strconv.ErrRange) {
		return text
	}
	return text + " (not a value of TOML)"
}

// refused is the problem of a key that has it, with what is allowed, whether what is not may be shown, and how a string is read.
func (l unreadable) refused(allowed string, withheld bool, read func(string) error) error {
	switch {
	case read(string(l)) == nil:
		return fmt.Errorf("must be in quotes: %q", string(l))
	case withheld:
		return fmt.Errorf("must be %s; what is there is not shown, as it may be a secret", allowed)
	}
	return fmt.Errorf("must be %s, got %v", allowed, l)
}

// oneLine returns text with what would not stay on a line, or on a terminal, as Go writes it.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// withheld reports whether what stands at a path must not be shown: it is of a key that withholds its values, or has one in it.
func withheld(path string) bool {
	for _, s := range sections {
		for _, k := range s.keys {
			if at := join(s.name, k.name); k.withheld && (path == s.name || path == at || strings.HasPrefix(path, at+".")) {
				return true
			}
		}
	}
	return false
}

// unreadables are those of a document, in their order.
type unreadables []unreadable

// mark begins the string that stands for one while the document is decoded. Nobody writes such a string.
const mark = "\x00literal "

// in returns a decoded value with them in the place of the strings that stand for them.
func (l unreadables) in(v any) any {
	switch v := v.(type) {
	case string:
		if number, marked := strings.CutPrefix(v, mark); marked {
			if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(l) {
				return l[i]
			}
		}
	case []any:
		for i := range v {
			v[i] = l.in(v[i])
		}
	case []map[string]any:
		for _, table := range v {
			l.in(table)
		}
	case map[string]any:
		for name := range v {
			v[name] = l.in(v[name])
		}
	}
	return v
}

// decode returns what the document has. The decoder ends at the first value that it cannot read, but what is behind that has
// its problems, too: it gets strings in the place of such values then.
func (p *parser) decode(text string) (map[string]any, Errors) {
	var doc map[string]any
	_, err := toml.Decode(text, &doc)
	if err == nil {
		return doc, nil
	}
	p.syntax = syntaxError(p.file, text, err)
	var found unreadables
	var places []bareValue
	var b strings.Builder
	rest := 0
	for _, v := range p.lines.bare {
		var alone map[string]any
		if _, err := toml.Decode("x = "+text[v.start:v.end], &alone); err == nil {
			continue
		}
		fmt.Fprintf(&b, `%s"\u0000%s%d"`, text[rest:v.start], mark[1:], len(found))
		found, places, rest = append(found, unreadable(text[v.start:v.end])), append(places, v), v.end
	}
	b.WriteString(text[rest:])
	doc = nil
	if _, err := toml.Decode(b.String(), &doc); err != nil {
		last := syntaxError(p.file, b.String(), err)
		errs := Errors{last}
		for i, v := range places {
			if v.line >= last.Line {
				continue
			}
			got := found[i].String()
			if withheld(v.path) {
				got = "what is not a value of TOML"
			}
			errs = append(errs, Error{File: p.file, Line: v.line, Key: v.path, Reason: "got " + got})
		}
		return nil, errs
	}
	found.in(doc)
	return doc, nil
}
