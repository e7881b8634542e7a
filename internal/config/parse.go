package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// MaxFileSize is the largest configuration file that is read, in bytes. It has
// room for thousands of peers.
const MaxFileSize = 256 << 10

// Load reads and checks a configuration file. A file that was read but is
// refused gives Errors, one that cannot be read an error that wraps the cause,
// such as fs.ErrNotExist.
func Load(path string) (*Config, error) {
	data, err := Read(context.Background(), path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Read reads a configuration file without checking it; at most one byte more
// than Parse accepts. It waits for what a pipe says until ctx ends; a read that
// nobody waits for any more ends with the process.
func Read(ctx context.Context, path string) ([]byte, error) {
	type outcome struct {
		data []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		data, err := readAll(path)
		done <- outcome{data, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("read configuration: %w", o.err)
		}
		return o.data, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("read configuration: %s: %w", path, ctx.Err())
	}
}

func readAll(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileSize+1))
}

// Parse checks a configuration. The name is what Errors call the file. Keys that
// the document does not have get their defaults, so an empty document is the
// default configuration.
func Parse(name string, data []byte) (*Config, error) {
	c, errs := parse(name, data, thisSystem())
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// Default returns the configuration of an empty file.
func Default() *Config {
	c, errs := parse("defaults", nil, thisSystem())
	if len(errs) > 0 {
		// Only a bug in the table of keys can do this; the tests exclude it.
		panic(errs)
	}
	return c
}

// parser collects the problems of one document.
type parser struct {
	file  string
	lines *lineIndex
	errs  Errors
	// bad has the paths of keys that were refused on their own. Checks that
	// compare several keys leave these alone.
	bad map[string]bool
	// over are values that count instead of those of the document, under what the document
	// has there, and origins is where each value is from. most is how long the document may be.
	over    map[string]override
	under   map[string]any
	origins map[string]Origin
	most    int
	// admits is whom domains admit, by name, where that has been looked up.
	admits map[string]admitted
	// foreign: the document may be another release's, with keys that this one does not know.
	foreign bool
	// syntax is why the decoder has refused the document, unless it has not.
	syntax Error
}

// parse is Parse on a given system.
func parse(file string, data []byte, sys system) (*Config, Errors) {
	return (&parser{file: file, most: MaxFileSize}).parse(data, sys)
}

// parse reads and checks the document.
func (p *parser) parse(data []byte, sys system) (*Config, Errors) {
	if len(data) > p.most {
		return nil, Errors{{File: p.file, Line: 1, Reason: fmt.Sprintf("the file has more than %d bytes", p.most)}}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as the decoder does
	lines := indexLines(data)
	if lines.tooDeep > 0 {
		return nil, Errors{{File: p.file, Line: lines.tooDeep, Reason: fmt.Sprintf("nested more than %d levels deep", maxDepth)}}
	}
	p.lines, p.bad, p.origins, p.under = lines, map[string]bool{}, map[string]Origin{}, map[string]any{}
	doc, errs := p.decode(string(data))
	if len(errs) > 0 {
		return nil, append(p.errs, errs...).sorted()
	}
	c := new(Config)
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = s.name
		p.section(c, s, doc[s.name])
	}
	p.unknown("", doc, names)
	p.check(c, sys)
	if len(p.errs) == 0 && p.syntax.File != "" {
		// A value that cannot be read where nothing is looked at, such as in what a setting stands for.
		p.errs = append(p.errs, p.syntax)
	}
	return c, p.errs.sorted()
}

// syntaxError converts an error of the TOML decoder in a text.
func syntaxError(file, text string, err error) Error {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return Error{File: file, Line: 1, Reason: oneLine(err.Error())}
	}
	line := pe.Position.Line
	if at := pe.Position.Start; (strings.Contains(pe.Message, `'\n'`) || strings.Contains(pe.Message, "\n")) && at >= 0 && at < len(text) {
		// The decoder has gone on to the next line when it says that one ends too soon.
		line = 1 + strings.Count(text[:at], "\n")
	}
	return Error{File: file, Line: max(1, line), Key: oneLine(pe.LastKey), Reason: oneLine(pe.Message)}
}

// fail records a problem of the key at path.
func (p *parser) fail(path, format string, args ...any) { p.clash(path, path, format, args...) }

// clash records that the value of the key at path does not go with that of another. If only the other one is from the
// environment or a setting, the file is not what has to be changed.
func (p *parser) clash(path, with, format string, args ...any) {
	p.bad[path] = true
	e := Error{File: p.file, Line: p.lines.at(path), Key: path, Reason: fmt.Sprintf(format, args...)}
	o, over := p.over[path]
	if !over {
		o, over = p.over[with]
	}
	if over {
		e.File, e.Line = o.origin.String(), 0
	}
	p.errs = append(p.errs, e)
}

// section reads one section; v is nil when the document does not have it.
func (p *parser) section(c *Config, s section, v any) {
	if s.list != nil {
		p.elements(c, s, v)
		return
	}
	table, ok := v.(map[string]any)
	if v != nil && !ok {
		p.fail(s.name, "must be a table, written [%s]; got %s", s.name, typeName(v))
	}
	p.table(s.name, s.keys, s.at(c, 0), table)
}

// elements reads the elements of an array of tables.
func (p *parser) elements(c *Config, s section, v any) {
	var list []map[string]any
	switch v := v.(type) {
	case nil:
		list = s.list.elements
	case []map[string]any:
		list = v
	case []any:
		for _, e := range v {
			if table, ok := e.(map[string]any); ok {
				list = append(list, table)
			}
		}
		if len(list) != len(v) {
			p.fail(s.name, "must be tables only, each written [[%s]]", s.name)
		}
	default:
		p.fail(s.name, "must be an array of tables, each written [[%s]]; got %s", s.name, typeName(v))
		return
	}
	if n := len(list); n < s.list.least && !p.bad[s.name] {
		p.fail(s.name, "at least one is needed; leave it out to get the default")
	}
	for i, table := range list {
		path := element(s.name, i)
		if s.list.most > 0 && i == s.list.most {
			p.fail(path, "at most %d are possible, got %d", s.list.most, len(list))
		}
		s.list.grow(c)
		p.table(path, s.keys, s.at(c, i), table)
		for _, k := range s.keys {
			if v == nil {
				p.origins[join(path, k.name)] = Origin{From: fromDefault}
			}
		}
	}
}

// table reads the keys of one table into the struct dst.
func (p *parser) table(path string, keys []key, dst any, table map[string]any) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
		at := join(path, k.name)
		v, ok := table[k.name]
		p.origins[at] = Origin{From: fromDefault}
		if ok {
			p.origins[at] = Origin{From: fromFile, File: p.file, Line: p.lines.at(at)}
		}
		if o, over := p.over[at]; over {
			if ok {
				p.under[at] = v
			}
			if l, is := v.(unreadable); is {
				// It does not count, but the file has to be changed all the same.
				p.errs = append(p.errs, Error{File: p.file, Line: p.lines.at(at), Key: at, Reason: k.set(dst, l).Error()})
			}
			v, ok, p.origins[at] = o.value, true, o.origin
		}
		switch {
		case !ok && k.def == nil:
			p.fail(at, "is required")
			continue
		case !ok:
			v = k.def
		}
		if err := k.set(dst, v); err != nil {
			p.fail(at, "%v", err)
		}
	}
	p.unknown(path, table, names)
}

// unknown reports the keys of a table that are not among the names.
func (p *parser) unknown(path string, table map[string]any, names []string) {
	if p.foreign {
		return
	}
	for name, v := range table {
		if slices.Contains(names, name) {
			continue
		}
		what := "key"
		switch v.(type) {
		case map[string]any, []map[string]any:
			what = "section"
		}
		if near := closest(name, names); near != "" {
			p.fail(join(path, name), "unknown %s, did you mean %q?", what, near)
		} else {
			p.fail(join(path, name), "unknown %s", what)
		}
	}
}
