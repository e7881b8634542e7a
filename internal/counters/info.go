package counters

import "reflect"

// Info describes a counter.
type Info struct {
	// Name is what it is called in JSON, in status and in "rdmad counters".
	Name string
	// Unit is what is counted.
	Unit string
	// Help says what it means, as a sentence.
	Help string
	// Gauge: it can fall.
	Gauge bool
}

// Infos returns the counters of one of the structs of this package, such as AgentCounts,
// in the order of its fields.
func Infos[T any]() []Info {
	t := reflect.TypeFor[T]()
	list := make([]Info, t.NumField())
	for i := range list {
		tag := t.Field(i).Tag
		list[i] = Info{Name: tag.Get("json"), Unit: tag.Get("unit"), Help: tag.Get("help"), Gauge: tag.Get("kind") == "gauge"}
	}
	return list
}

// Values returns the values of such a struct, in the order of Infos.
func Values[T any](s *T) []uint64 {
	v := reflect.ValueOf(s).Elem()
	list := make([]uint64, v.NumField())
	for i := range list {
		list[i] = v.Field(i).Uint()
	}
	return list
}

// AddTo adds the values of such a struct to m, by name.
func AddTo[T any](m map[string]uint64, s *T) {
	values := Values(s)
	for i, info := range Infos[T]() {
		m[info.Name] += values[i]
	}
}
