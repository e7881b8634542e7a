package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

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

// ownPrefix begins the first line of what Own writes: a comment to whoever else reads it.
const ownPrefix = "# looked up: "

// admitted is whom a domain admits, looked up.
type admitted struct {
	UIDs []uint32 `json:"uids,omitempty"`
	GIDs []uint32 `json:"gids,omitempty"`
}

// Own is TOML for another process of this program, with what names of users and groups were looked up as: what has
// become of those since is not that process's to find out. That may be of another release, with other defaults, so all keys
// are there. ParseOwn accepts it.
func (c *Config) Own() []byte { return own(c.admits(), encode(c.document())) }

// admits returns whom the domains admit, by name.
func (c *Config) admits() map[string]admitted {
	all := make(map[string]admitted, len(c.Domains))
	for _, d := range c.Domains {
		all[d.Name] = admitted{d.UIDs, d.GIDs}
	}
	return all
}

func own(admits map[string]admitted, doc []byte) []byte {
	line, err := json.Marshal(admits)
	if err != nil {
		panic(err) // numbers and strings can always be written
	}
	return slices.Concat([]byte(ownPrefix), line, []byte("\n"), doc)
}

// ParseOwn is Parse for what Own or TOML has written. Keys that it does not know are another release's, and ignored.
func ParseOwn(name string, data []byte) (*Config, error) {
	p := &parser{file: name, most: maxOwn, foreign: true}
	if line, _, ok := bytes.Cut(data, []byte("\n")); ok && bytes.HasPrefix(line, []byte(ownPrefix)) {
		// What makes no sense is looked up again.
		_ = json.Unmarshal(line[len(ownPrefix):], &p.admits)
	}
	c, errs := p.parse(data, thisSystem())
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}
