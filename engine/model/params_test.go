package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels/ref"
)

// TestStepParams holds the parameters that a model says a step reads to the
// multiply-adds that a step of one row executes.
func TestStepParams(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			be := ref.New()
			defer func() { require.NoError(t, be.Close()) }()
			r := newRunner(t, be, name)
			r.run(0, []int32{5, 6, 7}, nil)
			before := be.Work()
			r.run(3, []int32{8}, nil)
			require.EqualValues(t, r.m.StepParams(), be.Work().Sub(before).MACs)
		})
	}
}
