package fabrictest

import (
	"errors"

	"github.com/rdmad/rdmad/internal/fabric"
)

var attributeCases = []suiteCase{
	{"attributes", caseAttributes},
}

// An endpoint that says what it is made of says each thing once, grouped by stage, also
// while work is under way, and of a closed one there is nothing to say.
func caseAttributes(w *world) {
	a, b := w.connect(shape{})
	told, ok := a.ep.(fabric.Attributer)
	if !ok {
		w.Skip("endpoints of this provider do not say what they are made of")
	}
	for range 2 {
		list, err := told.Attributes()
		w.must(err)
		w.wellFormed(list)
		b.recv(1)
		a.post(a.writeImm(0, 64, 64, 1))
		b.take(1)
		a.take(1)
	}
	w.must(a.ep.Close())
	if list, err := told.Attributes(); !errors.Is(err, fabric.ErrClosed) || len(list) > 0 {
		w.Errorf("a closed endpoint says %+v: %v", list, err)
	}
}

// wellFormed checks a list of attributes.
func (w *world) wellFormed(list []fabric.Attribute) {
	w.Helper()
	if len(list) < 5 {
		w.Errorf("it says next to nothing: %+v", list)
	}
	type name struct{ stage, name string }
	names, stages, last := map[name]bool{}, map[string]bool{}, ""
	for _, a := range list {
		if a.Stage == "" || a.Name == "" || a.Value == "" {
			w.Errorf("something is missing: %+v", a)
		}
		if names[name{a.Stage, a.Name}] {
			w.Errorf("%s %s is told twice", a.Stage, a.Name)
		}
		if a.Stage != last && stages[a.Stage] {
			w.Errorf("%s %s is not with the others of its stage", a.Stage, a.Name)
		}
		names[name{a.Stage, a.Name}], stages[a.Stage], last = true, true, a.Stage
	}
}
