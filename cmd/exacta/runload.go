package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

// runLoad runs a load experiment. Requests that failed make exit code 1.
func runLoad(cmd *cobra.Command, o *options, dir, name string, text []byte) error {
	cfg, err := experiments.ParseLoadExperiment(name, text)
	if err != nil {
		return err
	}
	p := newProgress(cmd.ErrOrStderr())
	sum, err := experiments.RunLoad(cmd.Context(), cfg, experiments.RunOptions{Dir: dir, Version: version(), Progress: p.show})
	p.clear()
	if err != nil && !(errors.Is(err, experiments.ErrInterrupted) && sum != nil) {
		return err
	}
	out := cmd.OutOrStdout()
	if o.json {
		return errors.Join(printJSON(out, sum), err)
	}
	if e := experiments.LoadTable(out, sum); e != nil {
		return errors.Join(e, err)
	}
	fmt.Fprintf(out, "requests, cells and summary.json in %s\n", sum.Dir)
	for _, c := range sum.Cells {
		if err == nil && c.FirstErr != "" {
			err = errFalse
		}
	}
	return err
}
