package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Sources are what a configuration is made of. Each counts over the ones before it:
// defaults, the file, the environment, settings of the command line.
type Sources struct {
	// File is the configuration file.
	File string
	// Environ is the environment in the form of os.Environ. RDMAD_SECTION_KEY=value is a
	// key; the sections that are lists, such as [[peer]], can only be in the file.
	Environ []string
	// Set are settings, each "section.key=value".
	Set []string
}

// Origin says where a value is from.
type Origin struct {
	// From is "default", "file", "environment" or "flag".
	From string `json:"from"`
	// File and Line are where in the file it is, Name is the variable or the setting.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Name string `json:"name,omitempty"`
}

// String says it in a few words.
func (o Origin) String() string {
	switch {
	case o.From == fromFile:
		return o.File + ":" + strconv.Itoa(o.Line)
	case o.Name != "":
		return o.From + " " + o.Name
	}
	return o.From
}

const (
	fromDefault     = "default"
	fromFile        = "file"
	fromEnvironment = "environment"
	fromFlag        = "flag"
)

// Loaded is a configuration and where it is from.
type Loaded struct {
	*Config
	origins map[string]Origin
	over    map[string]override
	under   map[string]any
}

// Override is a key that has its value from the environment or from a setting: what the file
// says of it does not count, also in later reloads.
type Override struct {
	Path string `json:"path"`
	// Text is the value as a setting has it, and From where it is from.
	Text string `json:"text"`
	From string `json:"from"`
}

// Setting returns it as an element of Sources.Set.
func (o Override) Setting() string { return o.Path + "=" + o.Text }

// Overrides returns the keys that are not from the file, by their paths.
func (l *Loaded) Overrides() []Override {
	list := []Override{}
	for path, o := range l.over {
		list = append(list, Override{path, o.text, o.origin.String()})
	}
	slices.SortFunc(list, func(a, b Override) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// Value is a key of a configuration.
type Value struct {
	// Path names it: "limits.workers", or "peer[0].address" in a list.
	Path string `json:"path"`
	// Value is as TOML writes it.
	Value  any    `json:"value"`
	Origin Origin `json:"origin"`
	// Applies is what it takes to change it: "restart", or "live" with what for.
	Applies string `json:"applies"`
}

// Values returns every key, in the order of the file.
func (l *Loaded) Values() []Value {
	var list []Value
	for _, s := range sections {
		n := 1
		if s.list != nil {
			n = s.list.size(l.Config)
		}
		for i := range n {
			path := s.name
			if s.list != nil {
				path = element(s.name, i)
			}
			for _, k := range s.keys {
				at := join(path, k.name)
				list = append(list, Value{at, k.get(s.at(l.Config, i)), l.origins[at], applies[s.name+"."+k.name].String()})
			}
		}
	}
	return list
}

// InFile returns what the file has for a key that has its value from elsewhere, if anything.
func (l *Loaded) InFile(path string) (value any, ok bool) {
	value, ok = l.under[path]
	return value, ok
}

// Load reads and checks the configuration. Its errors are those of the function Load;
// problems of the environment and of settings are Errors, too. It waits for a file that is
// a pipe until ctx ends.
func (s Sources) Load(ctx context.Context) (*Loaded, error) {
	data, err := Read(ctx, s.File)
	if err != nil {
		return nil, err
	}
	over, errs := s.overrides()
	p := &parser{file: s.File, over: over, errs: errs, most: MaxFileSize}
	c, errs := p.parse(data, thisSystem())
	if len(errs) > 0 {
		return nil, errs
	}
	return &Loaded{c, p.origins, over, p.under}, nil
}

// Reload is Load for a configuration that others have been loaded from before: it does not take what the file says now for what somebody
// wants to be in force if that is nothing, as while it is being written, and does not read a pipe, which says everything once and may
// keep who opens it waiting.
func (s Sources) Reload() (*Config, error) {
	info, err := os.Stat(s.File)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read configuration: %s is not a file that can be read again", s.File)
	case info.Size() == 0:
		return nil, fmt.Errorf("read configuration: %s is empty; for the default values, give it a comment", s.File)
	}
	l, err := s.Load(context.Background()) // of a file that does not keep it waiting
	if err != nil {
		return nil, err
	}
	return l.Config, nil
}

// override is the value of a key from elsewhere than the file.
type override struct {
	value  any
	text   string
	origin Origin
}

// variablePrefix is that of the variables for keys.
const variablePrefix = "RDMAD_"

// socketVariable is the one that everybody sets who uses rdmad: it is meant by those that are nearly it.
const socketVariable = variablePrefix + "SOCKET"

// otherVariables are variables that are no keys, whatever their values: those of rdmad's own
// tools, and most of those that Kubernetes and Docker make for a service whose name begins with rdmad.
var otherVariables = regexp.MustCompile(`^RDMAD_(SOCKET|SOCKET_B|PROFILE|KILL_AT|(SANDBOX|FAULT|FAULTPOINT|TEST|LAB|TORTURE|PEERS|SHM|SLOTS|DEPOT|VERBS_SHIM|VERBS_CM)_.*|LAB|` +
	`(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?))$`)

// serviceAddress is what the remaining one of them has as its value: its name, RDMAD_PORT or
// RDMAD_..._PORT, may be that of a key, too, or of one that somebody has misspelt.
var serviceAddress = regexp.MustCompile(`^(tcp|udp|sctp)://`)

// isOther reports whether a variable is no key.
func isOther(name, value string) bool {
	return otherVariables.MatchString(name) || strings.HasSuffix(name, "_PORT") && serviceAddress.MatchString(value)
}

// WithoutKeys returns an environment, in the form of os.Environ, without the variables that Sources would read.
func WithoutKeys(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, variablePrefix) && !isOther(name, value)
	})
}

// variable returns the name of the variable for a key.
func variable(section, key string) string {
	return variablePrefix + strings.ToUpper(section+"_"+key)
}

// overrides reads the environment and the settings.
func (s Sources) overrides() (map[string]override, Errors) {
	over := make(map[string]override)
	var errs Errors
	paths := make(map[string]string)
	var names, dotted []string
	for _, sec := range sections {
		for _, k := range sec.keys {
			if sec.list == nil {
				name := variable(sec.name, k.name)
				paths[name] = sec.name + "." + k.name
				names, dotted = append(names, name), append(dotted, sec.name+"."+k.name)
			}
		}
	}
	for _, entry := range s.Environ {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || isOther(name, text) {
			continue
		}
		origin := Origin{From: fromEnvironment, Name: name}
		switch path, known := paths[name]; {
		case !known:
			errs = append(errs, Error{File: origin.String(), Reason: unknownOverride("variable", name, append(names, socketVariable))})
		case !utf8.ValidString(text):
			errs = append(errs, Error{File: origin.String(), Key: path, Reason: notUTF8})
		default:
			over[path] = override{decoded(path, text), text, origin}
		}
	}
	for _, entry := range s.Set {
		path, text, ok := strings.Cut(entry, "=")
		path = strings.TrimSpace(path)
		origin := Origin{From: fromFlag, Name: "--set " + path}
		switch {
		case !ok:
			errs = append(errs, Error{File: origin.String(), Reason: "want section.key=value"})
		case !slices.Contains(dotted, path):
			errs = append(errs, Error{File: origin.String(), Reason: unknownOverride("key", path, dotted)})
		case !utf8.ValidString(text):
			errs = append(errs, Error{File: origin.String(), Key: path, Reason: notUTF8})
		default:
			text = strings.TrimSpace(text)
			over[path] = override{decoded(path, text), text, origin}
		}
	}
	return over, errs
}

// notUTF8 is the reason to refuse a value that could not be in a file, in which the core gets it.
const notUTF8 = "must be UTF-8"

// unknownOverride says what is wrong with a name that is none.
func unknownOverride(what, name string, names []string) string {
	for _, s := range sections {
		prefix := s.name + "."
		if what == "variable" {
			prefix = variable(s.name, "")
		}
		if s.list != nil && strings.HasPrefix(name, prefix) {
			return fmt.Sprintf("[[%s]] is a list, which can only be in the file", s.name)
		}
	}
	if near := closest(name, names); near != "" {
		return fmt.Sprintf("unknown %s, did you mean %q?", what, near)
	}
	return "unknown " + what
}

// decoded turns text into what the TOML decoder would give for the key's type, if it
// can; otherwise the key refuses it as what it is.
func decoded(path, text string) any {
	section, name, _ := strings.Cut(path, ".")
	for _, s := range sections {
		for _, k := range s.keys {
			if s.name != section || k.name != name {
				continue
			}
			switch k.def.(type) {
			case int64:
				switch n, err := strconv.ParseInt(text, 10, 64); {
				case err == nil:
					return n
				case errors.Is(err, strconv.ErrRange):
					return unreadable(text) // as in a file, so that the key says its range
				}
			case bool:
				if text == "true" || text == "false" {
					return text == "true"
				}
			case []any:
				list := []any{}
				for _, part := range strings.Split(text, ",") {
					if part = strings.TrimSpace(part); part != "" {
						list = append(list, part)
					}
				}
				return list
			}
		}
	}
	return text
}
