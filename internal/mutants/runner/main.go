// Command runner makes the runs that tell a mutant from the honest engine: small
// ones of several strategies, rules and engine options on the model in a folder.
// It writes what was asked, recorded and received to a file.
package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"

	"exacta.dev/exacta/internal/mutants/runs"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: runner MODEL REQUESTS OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func run(model, requests, out string) error {
	in, err := os.Open(requests)
	if err != nil {
		return err
	}
	var todo []runs.Todo
	if err := errors.Join(gob.NewDecoder(in).Decode(&todo), in.Close()); err != nil {
		return err
	}
	results, err := runs.Make(model, todo)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(results), f.Close())
}
