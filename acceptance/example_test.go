package acceptance_test

import (
	"fmt"
	"log"
	"os"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// A run's records go to disk, are read back, and give its figures.
func Example() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	w, err := acceptance.NewWriter(dir, acceptance.Meta{Run: "tuesday", Provenance: map[string]string{"model": "embedded"}})
	if err != nil {
		log.Fatal(err)
	}
	for step, accepted := range []engine.Accepted{3, 0, 1} { // of 3 drafts each
		err := w.Record(&engine.Record{
			Request: "0-mtp.k3.greedy.c1.r0/p1", Step: int64(step), SeqStep: int32(step), Phase: engine.Decode, Drafter: "mtp", Rule: "greedy",
			KPlanned: 3, KExecuted: 3, Accepted: accepted, NextKind: engine.NextCorrection, EmittedIDs: make([]int32, accepted.Length()),
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := acceptance.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	points := acceptance.NewGroup(acceptance.ByPoint)
	for record, err := range r.All() {
		if err != nil {
			log.Fatal(err)
		}
		points.Add(record)
	}
	for _, point := range points.Order {
		s := points.By[point].Summary()
		fmt.Printf("%s, %s: accept length %.2f, by position %.2f\n", r.Meta().Run, point, s.AcceptLength, s.AcceptanceByPosition)
	}
	// Output:
	// tuesday, 0-mtp.k3.greedy.c1.r0: accept length 2.33, by position [0.67 0.33 0.33]
}
