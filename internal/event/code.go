package event

import (
	"slices"

	"github.com/rs/zerolog"
)

// Code names an event. It is what programs and people look for, so it never changes its
// meaning, while the text of the line may.
type Code string

// Info is what the table says of an event.
type Info struct {
	// Code is its name.
	Code Code
	// Level is zerolog.WarnLevel or zerolog.ErrorLevel.
	Level zerolog.Level
	// Meaning says what has happened, Cause what mostly brings it about, and Action what
	// to do, with the next command.
	Meaning, Cause, Action string
	// Shown is the test that provokes the event with real daemons or, beginning with
	// "not: ", why none does.
	Shown string
}

// codeField is the field of a log line that has the code.
const codeField = "code"

// On begins a line of l about the event, at its level and with its code.
func (c Code) On(l *zerolog.Logger) *zerolog.Event {
	level := zerolog.ErrorLevel
	if i, ok := c.Info(); ok {
		level = i.Level
	}
	return l.WithLevel(level).Str(codeField, string(c))
}

// Info returns what the table says of the event.
func (c Code) Info() (Info, bool) {
	i, ok := byCode[c]
	return i, ok
}

// All returns the table, sorted by code.
func All() []Info {
	all := make([]Info, 0, len(byCode))
	for _, i := range byCode {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Info) int {
		switch {
		case a.Code < b.Code:
			return -1
		case a.Code > b.Code:
			return 1
		}
		return 0
	})
	return all
}

// byCode is the table by code.
var byCode = func() map[Code]Info {
	m := make(map[Code]Info)
	for _, p := range parts {
		for _, i := range p.table {
			m[i.Code] = i
		}
	}
	return m
}()
