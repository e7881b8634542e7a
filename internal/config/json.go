package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// digestLength is the number of hex digits of Digest: short enough to read out,
// long enough that two files in use do not share one by chance.
const digestLength = 12

// MarshalJSON writes the configuration with the names and forms of the TOML
// file. Domains also have "uids" and "gids", the ids that were looked up. Equal
// configurations give equal bytes.
func (c Config) MarshalJSON() ([]byte, error) {
	doc := make(map[string]any, len(sections))
	for _, s := range sections {
		if s.list == nil {
			doc[s.name] = s.values(s.at(&c, 0))
			continue
		}
		list := make([]any, s.list.size(&c))
		for i := range list {
			list[i] = s.values(s.at(&c, i))
		}
		doc[s.name] = list
	}
	return json.Marshal(doc)
}

// values returns the keys of one table with their values.
func (s section) values(src any) map[string]any {
	table := make(map[string]any, len(s.keys))
	for _, k := range s.keys {
		table[k.name] = k.get(src)
	}
	if d, ok := src.(*Domain); ok {
		table["uids"] = append([]uint32{}, d.UIDs...)
		table["gids"] = append([]uint32{}, d.GIDs...)
	}
	return table
}

// Digest returns a short fingerprint of the effective configuration. Comments,
// order and keys left at their defaults do not change it, and neither does who asks.
func (c *Config) Digest() string {
	canonical, err := c.withoutAsker().MarshalJSON()
	if err != nil {
		// Strings, numbers, booleans and lists of them always marshal.
		panic(err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])[:digestLength]
}

// withoutAsker returns the configuration without the ids that domains which name nobody have from the process that has read it.
// Of the daemon they are the user that runs it, whoever else reads the same file; Compare leaves them out, too.
func (c *Config) withoutAsker() Config {
	same := *c
	same.Domains = slices.Clone(c.Domains)
	for i := range same.Domains {
		if d := &same.Domains[i]; len(d.Users) == 0 && len(d.Groups) == 0 {
			d.UIDs = nil
		}
	}
	return same
}
