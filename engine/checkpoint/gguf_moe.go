package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// moeTensors are the names of a layer whose feed-forward part is a mixture. In a name,
// E stands for the number of an expert: the file has the experts of a layer in one
// tensor [E, rows, columns], which appears as a matrix for each.
var moeTensors = map[string]string{
	"blk.N.ffn_gate_inp.weight":  "model.layers.N.mlp.gate.weight",
	"blk.N.ffn_gate_exps.weight": "model.layers.N.mlp.experts.E.gate_proj.weight",
	"blk.N.ffn_up_exps.weight":   "model.layers.N.mlp.experts.E.up_proj.weight",
	"blk.N.ffn_down_exps.weight": "model.layers.N.mlp.experts.E.down_proj.weight",
}

// addExperts adds the matrices of a tensor of experts.
func (ck *Checkpoint) addExperts(t Tensor, rows ggufRows) error {
	if len(t.Shape) != 3 {
		return fmt.Errorf("shape %v; experts must have three dimensions", t.Shape)
	}
	name, n := t.Name, t.Shape[0]
	t.Shape = t.Shape[1:]
	size := rows.kind.Size(t.Len())
	for e := range n {
		one := t
		one.Name = strings.Replace(name, ".E.", "."+strconv.Itoa(e)+".", 1)
		one.data = t.data[e*size : (e+1)*size : (e+1)*size]
		rows.data = one.data
		if rows.kind.Block() > 1 {
			one.rows = rows
		}
		ck.tensors[one.Name] = one
	}
	return nil
}

// moe fills in the mixture of a model of Qwen3, whose weights of a token's experts are
// divided by their sum: the format has no key for that.
func (g *ggufFields) moe(name string) {
	if _, ok := g.head.Values[name+".expert_count"]; !ok {
		return
	}
	for field, key := range map[string]string{
		"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
	} {
		g.keys[field] = name + "." + key
		g.take(field, name+"."+key)
	}
	g.out["norm_topk_prob"] = true
	if _, ok := g.out["intermediate_size"]; !ok {
		g.out["intermediate_size"] = g.out["moe_intermediate_size"]
	}
}
