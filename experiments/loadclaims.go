package experiments

import (
	"context"
	"fmt"
	"strconv"

	"exacta.dev/exacta/acceptance/outside"
)

// claims asks a server what binds a comparison. What it doesn't tell stays open.
func (t *target) claims(ctx context.Context) {
	say := func(name string, v any) {
		if text := fmt.Sprint(v); v != nil && text != "" && text != "0" && text != "-1" {
			t.Claims[name], t.Sources[name] = text, "server"
		}
	}
	var models struct {
		Data []struct {
			ID      string `json:"id"`
			Root    string `json:"root"`
			Context int    `json:"max_model_len"`
		} `json:"data"`
	}
	if t.client.Get(ctx, "/v1/models", &models) == nil && len(models.Data) > 0 {
		m := models.Data[0]
		if m.Root == "" {
			m.Root = m.ID
		}
		say("weights", weightsName(m.Root))
		say("context", m.Context)
	}
	switch t.dialect {
	case outside.VLLM:
		t.vllmClaims(ctx, say)
	case outside.SGLang:
		t.sglangClaims(ctx, say)
	case outside.LlamaCpp:
		t.llamaClaims(ctx, say)
	}
}

// vllmClaims reads the cache's configuration off the metrics, where vLLM tells it.
func (t *target) vllmClaims(ctx context.Context, say func(string, any)) {
	metrics, err := t.client.Metrics(ctx)
	if err != nil {
		return
	}
	for _, s := range metrics {
		if s.Name != "vllm:cache_config_info" {
			continue
		}
		for claim, label := range map[string]string{"kv_blocks": "num_gpu_blocks", "kv_block_tokens": "block_size", "memory_share": "gpu_memory_utilization"} {
			if v := s.Labels[label]; v != "" && v != "None" {
				say(claim, v)
			}
		}
		if n, err := strconv.ParseInt(s.Labels["kv_cache_memory_bytes"], 10, 64); err == nil {
			say("kv_bytes", n)
		}
	}
}

func (t *target) sglangClaims(ctx context.Context, say func(string, any)) {
	var info struct {
		Path      string `json:"model_path"`
		Dtype     string `json:"dtype"`
		Running   int    `json:"max_running_requests"`
		Tokens    int    `json:"max_total_num_tokens"`
		Context   int    `json:"context_length"`
		Algorithm string `json:"speculative_algorithm"`
		Steps     int    `json:"speculative_num_steps"`
	}
	if t.client.Get(ctx, "/server_info", &info) != nil && t.client.Get(ctx, "/get_server_info", &info) != nil {
		return
	}
	if info.Path != "" {
		say("weights", weightsName(info.Path))
	}
	if info.Dtype != "auto" {
		say("dtype", info.Dtype)
	}
	say("max_sequences", info.Running)
	say("kv_tokens", info.Tokens)
	say("context", info.Context)
	if info.Algorithm != "" {
		say("draft", fmt.Sprintf("%s k=%d", info.Algorithm, info.Steps))
	}
}

func (t *target) llamaClaims(ctx context.Context, say func(string, any)) {
	var props struct {
		Path    string `json:"model_path"`
		Slots   int    `json:"total_slots"`
		Default struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if t.client.Get(ctx, "/props", &props) != nil {
		return
	}
	if props.Path != "" {
		say("weights", weightsName(props.Path))
	}
	say("max_sequences", props.Slots)
	say("context", props.Default.Context)
}
