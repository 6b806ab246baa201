// Command openaigo runs OpenAI's package for Go against a server: openaigo URL. It is
// a module of its own, so that exacta does not depend on the package.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "openai-go:", err)
		os.Exit(1)
	}
	fmt.Println("openai-go v3: ok")
}

func check(url string) error {
	ctx := context.Background()
	client := openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	models, err := client.Models.List(ctx)
	if err != nil {
		return err
	}
	model := models.Data[0].ID
	ask := openai.ChatCompletionNewParams{
		Model: model, MaxCompletionTokens: openai.Int(20), Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Reverse a string.")},
	}
	whole, err := client.Chat.Completions.New(ctx, ask)
	if err != nil {
		return err
	}
	var usage struct {
		Speculation struct{ Emitted int64 } `json:"speculation"`
	}
	if err := json.Unmarshal([]byte(whole.Usage.RawJSON()), &usage); err != nil {
		return err
	}
	if usage.Speculation.Emitted != whole.Usage.CompletionTokens {
		return fmt.Errorf("usage %s", whole.Usage.RawJSON())
	}
	stream := client.Chat.Completions.NewStreaming(ctx, ask)
	sum := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		sum.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if got, want := sum.Choices[0].Message.Content, whole.Choices[0].Message.Content; got != want {
		return fmt.Errorf("the stream says %q, the whole answer %q", got, want)
	}
	plain, err := client.Chat.Completions.New(ctx, ask, option.WithJSONSet("speculation", map[string]any{"strategy": "none"}))
	if err != nil {
		return err
	}
	if plain.Choices[0].Message.Content != whole.Choices[0].Message.Content {
		return errors.New("drafts changed the answer")
	}
	ask.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "look_up", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"key": map[string]any{"enum": []string{"a", "b"}}}, "required": []string{"key"}},
	})}
	ask.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	ask.MaxCompletionTokens = openai.Int(100)
	called, err := client.Chat.Completions.New(ctx, ask)
	if err != nil {
		return err
	}
	if calls := called.Choices[0].Message.ToolCalls; len(calls) != 1 || calls[0].Function.Name != "look_up" {
		return fmt.Errorf("tool calls %v", calls)
	}
	ask.Model = "other"
	_, err = client.Chat.Completions.New(ctx, ask)
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != 404 {
		return fmt.Errorf("model other: %w", err)
	}
	return nil
}
