package faults

import (
	"cmp"
	"slices"
	"strconv"
)

// sortByClass orders faults by class: B by number, then E, then the 8 % cases.
func sortByClass(list []Fault) {
	key := func(id string) (int, int) {
		n, _ := strconv.Atoi(id[1:])
		switch id[0] {
		case 'B':
			return 0, n
		case 'E':
			return 1, n
		}
		return 2, int(id[1])
	}
	slices.SortStableFunc(list, func(a, b Fault) int {
		ka, na := key(a.ID)
		kb, nb := key(b.ID)
		return cmp.Or(cmp.Compare(ka, kb), cmp.Compare(na, nb))
	})
}
