package config

import (
	"bytes"
	"reflect"

	"github.com/BurntSushi/toml"
)

// TOML writes the configuration as a document that means the same on this machine,
// whatever the environment: the keys that are not at their defaults, without comments.
// Parse accepts it, or ParseOwn if it is long.
func (c *Config) TOML() []byte {
	normal := Default()
	doc := make(map[string]any)
	for _, s := range sections {
		if s.list == nil {
			if table := s.changed(s.at(c, 0), s.at(normal, 0)); len(table) > 0 {
				doc[s.name] = table
			}
			continue
		}
		mine, usual := s.tables(c), s.tables(normal)
		if !reflect.DeepEqual(mine, usual) {
			doc[s.name] = mine
		}
	}
	// The name is not left to the name of the machine.
	if node, ok := doc["node"].(map[string]any); ok {
		node["name"] = c.Node.Name
	} else {
		doc["node"] = map[string]any{"name": c.Node.Name}
	}
	return encode(doc)
}

// document returns the configuration with all its keys as the TOML decoder would.
func (c *Config) document() map[string]any {
	doc := make(map[string]any)
	for _, s := range sections {
		if s.list != nil {
			doc[s.name] = s.tables(c)
			continue
		}
		table := make(map[string]any, len(s.keys))
		for _, k := range s.keys {
			table[k.name] = k.get(s.at(c, 0))
		}
		doc[s.name] = table
	}
	return doc
}

// encode writes a document as TOML.
func encode(doc map[string]any) []byte {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(doc); err != nil {
		// Strings, numbers, booleans and lists of them can always be written.
		panic(err)
	}
	return b.Bytes()
}

// changed returns the keys of one table whose values differ from those of another.
func (s section) changed(src, normal any) map[string]any {
	table := make(map[string]any)
	for _, k := range s.keys {
		if v := k.get(src); !reflect.DeepEqual(v, k.get(normal)) {
			table[k.name] = v
		}
	}
	return table
}

// tables returns the elements of an array of tables.
func (s section) tables(c *Config) []map[string]any {
	list := make([]map[string]any, s.list.size(c))
	for i := range list {
		list[i] = make(map[string]any, len(s.keys))
		for _, k := range s.keys {
			list[i][k.name] = k.get(s.at(c, i))
		}
	}
	return list
}

// maxOwn is the largest document that ParseOwn reads: what Parse accepts may be longer in
// the form that TOML gives it.
const maxOwn = 8 * MaxFileSize

// ParseOwn is Parse for what TOML has written.
func ParseOwn(name string, data []byte) (*Config, error) {
	c, errs := (&parser{file: name, most: maxOwn}).parse(data, thisSystem())
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}
