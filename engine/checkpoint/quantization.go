package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// quantization is what a config.json says of quantised weights.
type quantization struct {
	Method string // quant_method; empty where the weights are not quantised
	Block  [2]int // weight_block_size: elements that share a scale; 0: not given
}

// knownMethods are the values of quant_method whose layouts scaledWeights knows.
var knownMethods = []string{"fp8", "fbgemm_fp8", "mxfp4", "nvfp4", "modelopt", "compressed-tensors"}

// quantizationOf reads it from the first of several objects that has it.
func quantizationOf(list ...*fields) quantization {
	var found quantization
	for _, f := range list {
		if q := parseQuantization(f); found.Method == "" {
			found = q
		}
	}
	return found
}

// readQuantization reads it from the text of a config.json that was parsed before.
func readQuantization(text []byte) quantization {
	var err error
	top := parseFields(configFile, text, &err)
	if nested := top.object("text_config"); nested != nil {
		return quantizationOf(nested, top)
	}
	return quantizationOf(top)
}

// parseQuantization reads quantization_config, or the older compression_config.
func parseQuantization(f *fields) (q quantization) {
	for _, key := range []string{"quantization_config", "compression_config"} {
		o := f.object(key)
		if o == nil || len(o.m) == 0 {
			continue
		}
		q.Method = o.text("quant_method", "")
		if !slices.Contains(knownMethods, q.Method) {
			o.fail("quant_method", quoted(q.Method), "weights quantised so are not supported; known are "+strings.Join(knownMethods, ", ")+", and BF16 checkpoints")
		}
		var block []int
		if o.decode("weight_block_size", &block, "two numbers") {
			if len(block) != 2 || block[0] < 1 || block[1] < 1 {
				o.fail("weight_block_size", fmt.Sprint(block), "it must be two positive numbers")
				return q
			}
			q.Block = [2]int(block)
		}
	}
	return q
}

// quoted is a text for an error, empty for an empty one, which is then missing.
func quoted(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%q", s)
}
