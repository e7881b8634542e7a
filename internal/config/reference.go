package config

// SectionDoc describes one table of the configuration file.
type SectionDoc struct {
	// Name is the table's, and List says that a file may have several of it, as [[Name]].
	Name string
	List bool
	// Doc is what the table is for.
	Doc string
	// Keys are its keys, in the order of the example.
	Keys []KeyDoc
}

// KeyDoc describes one key.
type KeyDoc struct {
	// Name is the key's, Doc its meaning, and Allowed its range, in words.
	Name, Doc, Allowed string
	// Default is the default as TOML. Empty: the key is required.
	Default string
	// Applies is what it takes for a changed value to count.
	Applies Applies
}

// Reference returns a description of every key that a file may have, in the order of
// Example and made of the same table.
func Reference() []SectionDoc {
	var docs []SectionDoc
	for _, s := range sections {
		d := SectionDoc{Name: s.name, List: s.list != nil, Doc: s.doc}
		for _, k := range s.keys {
			of := KeyDoc{Name: k.name, Doc: k.doc, Allowed: k.allowed, Applies: applies[s.name+"."+k.name]}
			if k.def != nil {
				of.Default = literal(k.def)
			}
			d.Keys = append(d.Keys, of)
		}
		docs = append(docs, d)
	}
	return docs
}
