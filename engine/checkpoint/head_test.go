package checkpoint

import (
	"encoding/binary"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const (
	eagleLayer = `"hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":32,"max_position_embeddings":64,"rms_norm_eps":1e-5`
	eagleFlat  = `{"architectures":["LlamaForCausalLMEagle3"],"model_type":"llama",` + eagleLayer + `,"draft_vocab_size":16}`
	medusaFlat = `{"model_type":"medusa","hidden_size":8,"vocab_size":32,"num_heads":2,"num_hidden_layers":1,"truncated_vocab_size":4}`
	eagleOne   = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","bias":true,` + eagleLayer + `}`
	dsparkFlat = `{"architectures":["Qwen3DSparkModel"],"model_type":"qwen3",` + eagleLayer + `,"num_key_value_heads":1,"head_dim":4,"rope_theta":1e6,
		"block_size":7,"mask_token_id":31,"causal":true,"markov_rank":4,"target_layer_ids":[1,4]}`
	dflashFlat = `{"architectures":["DFlashDraftModel"],"model_type":"qwen3",` + eagleLayer + `,"num_key_value_heads":1,"head_dim":4,"rope_theta":1e6,
		"block_size":16,"dflash_config":{"mask_token_id":31,"target_layer_ids":[1,4],"causal":true}}`
)

func i64(name string, values ...int64) Data {
	raw := make([]byte, 8*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(raw[8*i:], uint64(v))
	}
	return Data{Name: name, DType: I64, Shape: []int{len(values)}, Bytes: raw}
}

func TestHeadConfigs(t *testing.T) {
	c, err := ParseHeadConfig([]byte(eagleFlat))
	require.NoError(t, err)
	require.Equal(t, HeadEagle3, c.Kind)
	require.Equal(t, 16, c.DraftVocab)
	require.Equal(t, 8, c.TargetHidden)
	require.Nil(t, c.Taps)
	require.Equal(t, []int{2, 10, 17}, DefaultTaps(20))
	require.Equal(t, 10000.0, c.Layer.Rope.Theta)

	c, err = ParseHeadConfig([]byte(`{"speculators_model_type":"eagle3","speculators_version":"0.1.0","architectures":["Eagle3Speculator"],
		"transformer_layer_config":{"model_type":"llama",` + eagleLayer + `},"draft_vocab_size":16,"target_hidden_size":24,
		"norm_before_residual":true,"eagle_aux_hidden_state_layer_ids":[1,3,5]}`))
	require.NoError(t, err)
	require.Equal(t, HeadEagle3, c.Kind)
	require.True(t, c.NormBeforeResidual)
	require.Equal(t, 24, c.TargetHidden)
	require.Equal(t, []int{1, 3, 5}, c.Taps)

	c, err = ParseHeadConfig([]byte(medusaFlat))
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 4, 8}, []int{c.Heads, c.HeadLayers, c.DraftVocab, c.TargetHidden})

	c, err = ParseHeadConfig([]byte(dflashFlat))
	require.NoError(t, err)
	require.Equal(t, []int{2, 5}, c.Taps, "outputs of layers, as numbers of layers run")
	require.Equal(t, 16, c.Block)
	require.EqualValues(t, 31, c.Mask)

	c, err = ParseHeadConfig([]byte(dsparkFlat))
	require.NoError(t, err)
	require.Equal(t, HeadDSpark, c.Kind)
	require.Equal(t, []int{2, 5}, c.Taps)
	require.Equal(t, []int{7, 4, 31}, []int{c.Block, c.MarkovRank, int(c.Mask)})
	require.Equal(t, []bool{true, true, true}, []bool{c.Anchor, c.Confidence, c.ConfidenceMarkov})

	c, err = ParseHeadConfig([]byte(`{"speculators_model_type":"dspark","architectures":["DSparkDraftModel"],"aux_hidden_state_layer_ids":[2,4],"block_size":7,
		"mask_token_id":3,"markov_rank":2,"markov_head_type":"vanilla","enable_confidence_head":false,"causal":true,"draft_vocab_size":16,
		"transformer_layer_config":{"model_type":"qwen3",` + eagleLayer + `,"num_key_value_heads":1,"head_dim":4,"rope_theta":1e6}}`))
	require.NoError(t, err)
	require.Equal(t, []int{2, 4}, c.Taps, "numbers of layers run")
	require.Equal(t, []bool{false, false, true}, []bool{c.Anchor, c.Confidence, c.ConfidenceMarkov})
	require.Equal(t, 16, c.DraftVocab)

	c, err = ParseHeadConfig([]byte(eagleOne))
	require.NoError(t, err)
	require.Equal(t, HeadEagle, c.Kind)
	require.Equal(t, []int{32, 8}, []int{c.DraftVocab, c.TargetHidden})
}

func TestHeadConfigErrors(t *testing.T) {
	for _, c := range []struct{ text, old, new, want string }{
		{eagleFlat, "LlamaForCausalLMEagle3", "GPT2LMHeadModel", `architectures[0] is "GPT2LMHeadModel"; no such draft head is known`},
		{eagleFlat, `"draft_vocab_size":16`, `"draft_vocab_size":33`, "draft_vocab_size is 33; it can't be above vocab_size, which is 32"},
		{eagleFlat, `"num_hidden_layers":1`, `"num_hidden_layers":2`, "num_hidden_layers is 2; an EAGLE head has one layer"},
		{eagleFlat, `"draft_vocab_size":16`, `"fc_norm":true`, "fc_norm is true; a norm for each feature is not supported"},
		{eagleFlat, `"draft_vocab_size":16`, `"eagle_config":{"eagle_aux_hidden_state_layer_ids":[-1]}`, "eagle_config.eagle_aux_hidden_state_layer_ids is [-1]"},
		{eagleFlat, `"draft_vocab_size":16`, `"attention_bias":true`, "attention_bias is true"},
		{medusaFlat, `"num_heads":2`, `"heads":2`, "medusa_num_heads is missing"},
		{medusaFlat, `"num_heads":2`, `"num_heads":2,"medusa_fc_bias":true`, "biases are not supported"},
		{dflashFlat, `"causal":true`, `"causal":false`, "dflash_config.causal is false; attention inside the block must be causal"},
		{dflashFlat, `"mask_token_id":31`, `"mask_token_id":32`, "dflash_config.mask_token_id is 32"},
		{dflashFlat, `"block_size":16`, `"block_size":1`, "block_size is 1"},
		{dsparkFlat, `"markov_rank":4`, `"markov_rank":0`, "markov_rank is 0"},
		{dsparkFlat, `"causal":true`, `"markov_head_type":"rnn","causal":true`, `markov_head_type is "rnn"; only "vanilla" is supported`},
		{dsparkFlat, `"causal":true,`, ``, "causal is false; attention inside the block must be causal"},
		{dsparkFlat, `"target_layer_ids":[1,4]`, `"draft_adapter_rank":2`, "target_layer_ids is missing"},
		{eagleOne, `"bias":true`, `"layernorms":true`, "layernorms is true"},
	} {
		require.Contains(t, c.text, c.old)
		_, err := ParseHeadConfig([]byte(strings.Replace(c.text, c.old, c.new, 1)))
		require.ErrorContains(t, err, c.want)
	}
}

// Heads lie in a directory of their own or in the folder heads of a checkpoint,
// and their tensors go by one name whatever the layout.
func TestHeadFiles(t *testing.T) {
	files := map[string]string{
		configFile: smallConfig, singleFile: weights(t, bf16("lm_head.weight", 4)),
		"heads/eagle3/config.json":                eagleFlat,
		"heads/eagle3/model.safetensors":          weights(t, bf16("layers.0.hidden_norm.weight", 8), bf16("model.norm.weight", 8), i64("d2t", 0, 5)),
		"heads/medusa/config.json":                medusaFlat,
		"heads/medusa/medusa_lm_head.safetensors": weights(t, bf16("0.0.linear.weight", 8), bf16("0.0.linear.bias", 8), bf16("1.1.weight", 8)),
		"heads/first/config.json":                 eagleOne,
		"heads/first/model.safetensors":           weights(t, bf16("fusion_fc.bias", 8), bf16("transformer.mlp.up_proj.weight", 8)),
		"heads/dflash/config.json":                dflashFlat,
		"heads/dflash/pytorch_model.bin":          "?",
	}
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	ck, err := OpenFS(fsys, "inside")
	require.NoError(t, err)
	h, err := ck.OpenHead("eagle3")
	require.NoError(t, err)
	require.Equal(t, "inside/heads/eagle3", h.Name())
	require.True(t, h.Has("midlayer.hidden_norm.weight"))
	require.True(t, h.Has("norm.weight"))
	ids, err := h.Ints("d2t", 2)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 5}, ids)
	_, err = h.Ints("d2t", 3)
	require.ErrorContains(t, err, `tensor "d2t" is I64 [2]; it must be I64 or I32 with 3 elements`)
	_, err = h.Tensor("fc.weight")
	require.ErrorContains(t, err, `head inside/heads/eagle3 (eagle3) has no tensor "fc.weight" (it has 3 tensors)`)
	require.NoError(t, h.Close())

	m, err := ck.OpenHead("medusa")
	require.NoError(t, err)
	for _, name := range []string{"blocks.0.layers.0.weight", "blocks.0.layers.0.bias", "lm_heads.1.weight"} {
		require.True(t, m.Has(name), name)
	}
	e, err := ck.OpenHead("first")
	require.NoError(t, err)
	require.True(t, e.Has("fc.bias") && e.Has("layers.0.mlp.up_proj.weight"), "names of the speculators library")
	_, err = ck.OpenHead("dflash")
	require.ErrorContains(t, err, "a head's weights must be in safetensors format")
	_, err = ck.OpenHead("eagle")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ck.OpenHead("../heads/eagle3")
	require.ErrorContains(t, err, "is not the name of a head")

	d := dir(t, map[string]string{configFile: eagleFlat, singleFile: weights(t, bf16("midlayer.x", 4), bf16("layers.0.x", 4))})
	_, err = OpenHead(d)
	require.ErrorContains(t, err, `are the same tensor "midlayer.x"`)
}
