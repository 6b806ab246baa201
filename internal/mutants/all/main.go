// Command all tries mutants of the verification and commit code and prints what
// became of them. Exit code 1: fewer than 95 % of those that change behaviour
// were caught.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"exacta.dev/exacta/internal/mutants"
)

func main() {
	n := flag.Int("n", 120, "number of mutants, spread over the files; 0 is all")
	first := flag.Int("first", 0, "offset of the first one")
	file := flag.String("file", "", "only this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, *n, *first, *file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, n, first int, file string) (bool, error) {
	root, err := os.Getwd()
	if err != nil {
		return false, err
	}
	var list []mutants.Mutant
	for _, f := range mutants.Files() {
		if file != "" && f != file {
			continue
		}
		m, err := mutants.Mutate(root, f)
		if err != nil {
			return false, err
		}
		list = append(list, m...)
	}
	picked := mutants.Spread(list, n, first)
	fmt.Printf("%d of %d mutants\n", len(picked), len(list))
	results, err := mutants.Run(ctx, filepath.Join(root, "engine", "embedded"), mutants.Options{
		Root: root, Mutants: picked,
		Progress: func(done, of int, r mutants.Result) {
			fmt.Printf("%d/%d %v: %s %s: %.200s\n", done, of, r.Mutant, r.Outcome, r.By, r.Evidence)
		},
	})
	if err != nil {
		return false, err
	}
	t := mutants.Count(results)
	fmt.Print(t)
	slices.SortStableFunc(t.Missed, func(a, b mutants.Result) int { return a.Mutant.Line - b.Mutant.Line })
	for _, r := range t.Missed {
		fmt.Printf("missed: %v\n  %.300s\n  %s\n", r.Mutant, r.Evidence, mutants.Reason(r.Mutant))
	}
	return t.Holds(), nil
}
