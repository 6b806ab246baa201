package load

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"strings"
	"time"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments/workload"
)

// completions is where all targets take requests.
const completions = "/v1/completions"

// body is what a request asks.
func (o *Options) body(r *workload.Request) (json.RawMessage, error) {
	b := map[string]any{
		"model": o.Model, "max_tokens": r.MaxTokens, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	}
	b["prompt"] = r.Text
	if r.Tokens != nil {
		b["prompt"] = r.Tokens
	}
	if r.Exact {
		b["ignore_eos"] = true
	}
	if o.Dialect == outside.VLLM {
		b["return_token_ids"] = true
	}
	maps.Copy(b, o.Extra)
	return json.Marshal(b)
}

// chunk is an event of a stream of completions.
type chunk struct {
	ID      string          `json:"id"`
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Text   string  `json:"text"`
		IDs    []int32 `json:"token_ids"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Speculation *struct {
			Drafted  int `json:"drafted"`
			Accepted int `json:"accepted"`
		} `json:"speculation"`
	} `json:"usage"`
}

// stream reads the answer of one request into its row.
type stream struct {
	row      *Row
	asked    *workload.Request
	at       int64 // of the last content
	counted  int   // tokens of chunks
	uncount  bool  // a chunk came without its tokens
	usage    bool
	hash     hash.Hash
	scratch  []byte
	finished bool
	quick    quick
}

// ask sends a request and fills in its row.
func (g *generator) ask(ctx context.Context, r *workload.Request, row *Row) {
	body, err := g.body(r)
	if err != nil {
		row.Error = err.Error()
		row.End = int64(time.Since(g.start))
		return
	}
	s := &stream{row: row, asked: r, hash: sha256.New()}
	row.Sent = int64(time.Since(g.start))
	ended, err := g.Client.Stream(ctx, completions, body, func() time.Duration { return time.Since(g.start) }, s.event)
	row.End = int64(time.Since(g.start))
	s.close(ended, err)
}

// event takes one event.
func (s *stream) event(e outside.Event) error {
	if s.quick.read(e.Data) {
		if len(s.quick.text) > 0 || len(s.quick.ids) > 0 {
			s.content(int64(e.At), s.quick.text, s.quick.ids)
		}
		return nil
	}
	var c chunk
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return fmt.Errorf("an event is not the JSON that it should be: %w", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return fmt.Errorf("the server reports an error: %.300s", c.Error)
	}
	if c.ID != "" {
		s.row.ServerID = c.ID
	}
	if u := c.Usage; u != nil {
		s.usage = true
		s.row.Prompt, s.row.Output = u.Prompt, u.Completion
		if u.Details != nil {
			s.row.Cached = u.Details.Cached
		}
		if u.Speculation != nil {
			s.row.Drafted, s.row.Accepted = u.Speculation.Drafted, u.Speculation.Accepted
		}
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	if choice.Finish != nil {
		s.row.Finish, s.finished = *choice.Finish, true
	}
	if choice.Text != "" || len(choice.IDs) > 0 {
		s.content(int64(e.At), []byte(choice.Text), choice.IDs)
	}
	return nil
}

// content takes a chunk of the answer.
func (s *stream) content(at int64, text []byte, ids []int32) {
	if s.row.First < 0 {
		s.row.First = at
	} else {
		s.row.Gaps = append(s.row.Gaps, at-s.at)
	}
	s.at = at
	s.row.Tokens = append(s.row.Tokens, len(ids))
	s.counted += len(ids)
	if len(ids) == 0 {
		s.uncount = true
		s.hash.Write(text)
		return
	}
	s.scratch = s.scratch[:0]
	for _, id := range ids {
		s.scratch = binary.LittleEndian.AppendUint32(s.scratch, uint32(id))
	}
	s.hash.Write(s.scratch)
}

// close fills in what the end of the stream decides.
func (s *stream) close(ended bool, err error) {
	r := s.row
	r.Last = s.at
	if r.First < 0 {
		r.Last = -1
	}
	if !s.usage {
		r.Output = s.counted
	}
	if s.uncount || s.counted != r.Output {
		r.Tokens = nil
	}
	switch {
	case err != nil:
	case !s.finished && !ended:
		err = errors.New("the stream was cut off before the answer's end")
	case r.First < 0:
		err = errors.New("the answer has no content")
	case r.Output < 1:
		err = errors.New("the server does not say how many tokens the answer has: neither usage nor token ids came")
	case s.asked.Exact && r.Output != s.asked.MaxTokens:
		err = fmt.Errorf("the answer has %d tokens; %d were asked for", r.Output, s.asked.MaxTokens)
	case s.asked.Tokens != nil && s.usage && r.Prompt != len(s.asked.Tokens):
		err = fmt.Errorf("the server read %d tokens of prompt; %d were sent", r.Prompt, len(s.asked.Tokens))
	}
	if err != nil {
		r.Error = strings.Join(strings.Fields(err.Error()), " ")
		return
	}
	r.OutputHash = hex.EncodeToString(s.hash.Sum(nil))
}
