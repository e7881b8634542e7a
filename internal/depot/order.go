package depot

import (
	"container/list"
	"iter"
)

// inOrder are items by the order in which they have come, and by key. Whichever goes costs as much: a domain that gets new memory drops
// all that it had, the oldest first.
type inOrder struct {
	list   list.List // of *Item, the oldest first
	places map[string]*list.Element
}

// add appends an item, of whose key there is none.
func (o *inOrder) add(i *Item) {
	if o.places == nil {
		o.places = make(map[string]*list.Element)
	}
	o.places[i.Key] = o.list.PushBack(i)
}

// get returns the item of a key, or nil.
func (o *inOrder) get(key string) *Item {
	if place := o.places[key]; place != nil {
		return place.Value.(*Item)
	}
	return nil
}

// remove takes out the item of a key, if there is one.
func (o *inOrder) remove(key string) {
	if place := o.places[key]; place != nil {
		delete(o.places, key)
		o.list.Remove(place)
	}
}

func (o *inOrder) len() int { return len(o.places) }

// all yields the items, the oldest first. Nothing may be added or removed meanwhile.
func (o *inOrder) all() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for place := o.list.Front(); place != nil && yield(place.Value.(*Item)); place = place.Next() {
		}
	}
}
