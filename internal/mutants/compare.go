package mutants

import (
	"fmt"
	"reflect"

	"exacta.dev/exacta/internal/faults/trial"
)

// same says whether runs are equal in all but times.
func same(want, got []*trial.Result) bool { return differs(want, got) == "" }

// differs says where runs first differ in anything but times, or "".
func differs(want, got []*trial.Result) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d runs, %d when honest", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if w.Err != g.Err {
			return fmt.Sprintf("run %d ended with %q, %q when honest", i, g.Err, w.Err)
		}
		for n, q := range w.Requests {
			if !reflect.DeepEqual(q.Received, g.Requests[n].Received) || q.Finish != g.Requests[n].Finish {
				return fmt.Sprintf("run %d: request %s received %v (%s), %v (%s) when honest", i, q.ID, g.Requests[n].Received, g.Requests[n].Finish, q.Received, q.Finish)
			}
		}
		if len(w.Records) != len(g.Records) {
			return fmt.Sprintf("run %d has %d records, %d when honest", i, len(g.Records), len(w.Records))
		}
		for n, r := range w.Records {
			if field := unlike(timeless(r), timeless(g.Records[n])); field != "" {
				return fmt.Sprintf("run %d, record %d: %s", i, n, field)
			}
		}
		if !reflect.DeepEqual(w.Claim, g.Claim) {
			return fmt.Sprintf("run %d claims %+v, %+v when honest", i, g.Claim, w.Claim)
		}
	}
	return ""
}

// unlike names the first field in which two structs differ, with its values.
func unlike(want, got any) string {
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		if a, b := w.Field(i).Interface(), g.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("%s is %v, %v when honest", w.Type().Field(i).Name, b, a)
		}
	}
	return ""
}
