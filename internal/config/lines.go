package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// lineIndex maps the path of a key to the line it stands on. Tables are indexed
// by their header, elements of arrays of tables with a number: "class[1]",
// "class[1].slots". What stands inside an inline table or an array value has no
// entry of its own and is found at the key of that value.
type lineIndex struct {
	lines map[string]int
	// count is the number of elements seen of each array of tables.
	count map[string]int
	// tooDeep is the first line on which a value or a key is nested more than
	// maxDepth levels deep, or 0. Nothing after it is indexed.
	tooDeep int
	// bare is where values stand that are no strings, arrays or inline tables.
	bare []bareValue
}

// bareValue is where a value stands in a document: from start up to end, on a line, in what the key at path has.
type bareValue struct {
	start, end, line int
	path             string
}

// maxDepth is far above what a configuration needs. The decoder takes time and
// memory that grow with the square of the depth, so it must not see more.
const maxDepth = 32

// at returns the line of the path, else that of the closest enclosing key that
// has one, else 1.
func (x *lineIndex) at(path string) int {
	for path != "" {
		if line, ok := x.lines[path]; ok {
			return line
		}
		path = parent(path)
	}
	return 1
}

// parent cuts the last step, a ".key" or an "[n]", off a path. Dots within
// quoted keys only cost an extra step.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// join appends a key to a path, quoted unless it is a bare key of TOML.
func join(path, key string) string {
	if !bareKey(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// element is the path of the nth element of an array of tables.
func element(path string, n int) string {
	return fmt.Sprintf("%s[%d]", path, n)
}

func bareKey(key string) bool {
	for i := range len(key) {
		if !isBare(key[i]) {
			return false
		}
	}
	return key != ""
}

func isBare(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// indexLines scans a TOML document. It never fails: judging the document is the
// decoder's job, and bytes that make no sense here are skipped up to the end of
// their line. Up to the first error of a document it sees what the decoder sees.
func indexLines(doc []byte) *lineIndex {
	x := &lineIndex{lines: map[string]int{}, count: map[string]int{}}
	s := scanner{doc: doc, line: 1}
	table := ""
	for {
		s.skipBlank(true)
		if s.pos >= len(s.doc) || s.tooDeep > 0 {
			x.tooDeep = s.tooDeep
			return x
		}
		if s.doc[s.pos] == '[' {
			table = x.header(&s)
		} else {
			line := s.line
			path := x.note(table, s.dottedKey(), line)
			s.skipBlank(false)
			if s.peek() == '=' {
				s.pos++
				for _, b := range s.skipValue() {
					b.path = path
					x.bare = append(x.bare, b)
				}
			}
		}
		s.skipLine()
	}
}

// header reads a [table] or [[array]] header and returns the path that the keys
// below it belong to.
func (x *lineIndex) header(s *scanner) string {
	line := s.line
	s.pos++
	array := s.peek() == '['
	if array {
		s.pos++
	}
	path := ""
	keys := s.dottedKey()
	for i, key := range keys {
		path = join(path, key)
		if _, ok := x.lines[path]; !ok {
			x.lines[path] = line
		}
		if array && i == len(keys)-1 {
			x.count[path]++
		}
		// Below an array of tables a name means the latest element.
		if n := x.count[path]; n > 0 {
			path = element(path, n-1)
			if _, ok := x.lines[path]; !ok {
				x.lines[path] = line
			}
		}
	}
	return path
}

// note records the line of a dotted key and of the tables it implies. The first
// line of a path wins. It returns the path of the key.
func (x *lineIndex) note(table string, keys []string, line int) string {
	path := table
	for _, key := range keys {
		path = join(path, key)
		if _, ok := x.lines[path]; !ok {
			x.lines[path] = line
		}
	}
	return path
}

// scanner walks a document and counts its lines.
type scanner struct {
	doc  []byte
	pos  int
	line int
	// tooDeep is the first line of excessive depth, or 0.
	tooDeep int
}

// deep notes the line if the depth is excessive, and says whether it is.
func (s *scanner) deep(depth int) bool {
	if depth > maxDepth && s.tooDeep == 0 {
		s.tooDeep = s.line
	}
	return depth > maxDepth
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.doc) {
		return s.doc[s.pos]
	}
	return 0
}

// next consumes a byte.
func (s *scanner) next() {
	if s.doc[s.pos] == '\n' {
		s.line++
	}
	s.pos++
}

// skipBlank skips spaces and tabs and, with newlines, also line ends and
// comments.
func (s *scanner) skipBlank(newlines bool) {
	for s.pos < len(s.doc) {
		switch c := s.doc[s.pos]; {
		case c == ' ' || c == '\t':
			s.pos++
		case newlines && (c == '\n' || c == '\r'):
			s.next()
		case newlines && c == '#':
			s.skipComment()
		default:
			return
		}
	}
}

// skipComment skips up to the end of the line, not past it.
func (s *scanner) skipComment() {
	for s.pos < len(s.doc) && s.doc[s.pos] != '\n' {
		s.pos++
	}
}

// skipLine skips the rest of the line and its end.
func (s *scanner) skipLine() {
	s.skipComment()
	if s.pos < len(s.doc) {
		s.next()
	}
}

// dottedKey reads a.b."c d" and returns its parts, as many as make sense.
func (s *scanner) dottedKey() []string {
	var keys []string
	for {
		s.skipBlank(false)
		key, ok := s.simpleKey()
		if !ok {
			return keys
		}
		keys = append(keys, key)
		s.skipBlank(false)
		if s.deep(len(keys)) || s.peek() != '.' {
			return keys
		}
		s.pos++
	}
}

// simpleKey reads one bare or quoted key.
func (s *scanner) simpleKey() (string, bool) {
	start := s.pos
	if q := s.peek(); q == '"' || q == '\'' {
		s.skipString()
		raw := string(s.doc[start:s.pos])
		if q == '"' {
			if key, err := strconv.Unquote(raw); err == nil {
				return key, true
			}
		}
		return strings.Trim(raw, string(q)), true
	}
	for s.pos < len(s.doc) && isBare(s.doc[s.pos]) {
		s.pos++
	}
	return string(s.doc[start:s.pos]), s.pos > start
}

// skipValue skips a value: up to the end of the line, or further while brackets
// or a multi-line string are open. It stops at the line end, not past it, or
// where the depth becomes excessive, be it of brackets or of the dotted keys of
// an inline table. It returns the bare values.
func (s *scanner) skipValue() (bare []bareValue) {
	depth, dots := 0, 0
	// A value comes next, not the key of an inline table; and which of the open brackets are arrays.
	wanted, array := true, [maxDepth + 2]bool{}
	for s.pos < len(s.doc) && !s.deep(depth) && !s.deep(dots) {
		c := s.doc[s.pos]
		if wanted && !strings.ContainsRune(" \t\r\n"+endsBare, rune(c)) {
			wanted = false
			text, rest := s.doc[s.pos:], bytes.IndexAny(s.doc[s.pos:], endsBare)
			if rest >= 0 {
				text = text[:rest]
			}
			bare = append(bare, bareValue{start: s.pos, end: s.pos + len(bytes.TrimRight(text, " \t\r")), line: s.line})
		}
		switch c {
		case '"', '\'':
			wanted = false
			s.skipString()
			continue
		case '#':
			s.skipComment()
			continue
		case '[', '{':
			depth++
			dots = 0
			wanted = c == '['
			array[max(0, depth)] = wanted
		case ']', '}':
			wanted = false
			depth--
		case ',':
			wanted = array[max(0, depth)]
			dots = 0
		case '=':
			wanted = true
			dots = 0
		case '.':
			dots++
		case '\n':
			if depth <= 0 {
				return bare
			}
		}
		s.next()
	}
	return bare
}

// endsBare is what a bare value ends before.
const endsBare = "\n\"'#,=[]{}"

// skipString skips a string of any of TOML's four kinds. A single-line string
// that is not closed ends with its line.
func (s *scanner) skipString() {
	quote := s.doc[s.pos]
	multi := strings.Repeat(string(rune(quote)), 3)
	if s.startsWith(multi) {
		s.pos += 3
		for s.pos < len(s.doc) && !s.startsWith(multi) {
			s.skipChar(quote)
		}
		// Up to two more quotes belong to the text before the closing three.
		s.pos = min(s.pos+3, len(s.doc))
		for range 2 {
			if s.peek() == quote {
				s.pos++
			}
		}
		return
	}
	s.pos++
	for s.pos < len(s.doc) && s.doc[s.pos] != quote {
		if s.doc[s.pos] == '\n' {
			return
		}
		s.skipChar(quote)
	}
	s.pos = min(s.pos+1, len(s.doc))
}

// startsWith reports whether the text comes next.
func (s *scanner) startsWith(text string) bool {
	return bytes.HasPrefix(s.doc[s.pos:], []byte(text))
}

// skipChar skips one character of a string; in a basic string a backslash takes
// the byte after it along.
func (s *scanner) skipChar(quote byte) {
	if quote == '"' && s.doc[s.pos] == '\\' && s.pos+1 < len(s.doc) {
		s.next()
	}
	s.next()
}
