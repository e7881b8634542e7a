package boundedlist_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/boundedlist"
)

type element struct {
	A []int
	B string
}

// list has a bound of three.
type list []element

func (l *list) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]element)(l), 3, "elements")
}

// Lists within the bound are what encoding/json makes of them, whatever is in their elements; longer ones are refused.
func TestDecode(t *testing.T) {
	for data, good := range map[string]bool{
		`{}`: true, `{"L":null}`: true, `{"L":[]}`: true, `{"L": [ ] }`: true, `{"L":[{}]}`: true, `{"L":[null,{},{"A":[1,2,3,4,5]}]}`: true,
		`{"L":[{"B":"],[{,,,,\"\\"},{"B":"\\\\\",,,,,\u005c"},{"c":{"d":[[],[],[],[],[]]}}]}`: true,
		`{"L":[{},{},{},{}]}`: false, `{"L":[{},{},{}],"l":[1,2,3,4]}`: false, `{"L":[{"B":"\\"},{},{},{}]}`: false,
		`{"L":5}`: false, `{"L":{}}`: false, `{"L":"[,,,,,,,]"}`: false, `{"L":[1]}`: false,
	} {
		var got struct{ L list }
		var want struct{ L []element }
		if err := json.Unmarshal([]byte(data), &got); (err == nil) != good {
			t.Errorf("%s: %v", data, err)
		}
		if err := json.Unmarshal([]byte(data), &want); good && (err != nil || !reflect.DeepEqual([]element(got.L), want.L)) {
			t.Errorf("%s: %+v, want %+v, %v", data, got.L, want.L, err)
		}
	}
}

// Of a list that comes twice the last one counts, and nothing of the first is in it.
func TestListThatComesTwice(t *testing.T) {
	var got struct{ L list }
	if err := json.Unmarshal([]byte(`{"L":[{"A":[9,9],"B":"x"},{"B":"y"},{"B":"z"}],"l":[{},{"A":[1]}]}`), &got); err != nil {
		t.Fatal(err)
	}
	if want := (list{{}, {A: []int{1}}}); !reflect.DeepEqual(got.L, want) {
		t.Errorf("%+v, want %+v", got.L, want)
	}
}

// Nothing is made of a list that is too long.
func TestLongListsTakeNothing(t *testing.T) {
	var l list
	if err := json.Unmarshal([]byte(`[`+strings.Repeat("{},", 1000)+`{}]`), &l); err == nil || err.Error() != "more than 3 elements" || cap(l) > 0 {
		t.Errorf("%v, and there is room for %d", err, cap(l))
	}
}
