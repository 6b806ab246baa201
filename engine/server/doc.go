// Package server answers the OpenAI-compatible HTTP interface with an engine:
// chat and text completions, whole or as server-sent events, with the draft
// strategy of the server's or the request's choice.
//
// # Who owns what
//
// One goroutine, the worker, owns the engine: nothing else touches it. Handlers
// send it requests over a channel and read what comes back from a buffer of their
// own (outbox), which the worker fills without ever waiting. A handler that does
// not keep up, because its client reads too slowly, finds its request cancelled
// when the buffer is full; a client that goes away has its request cancelled before
// the next step. So no client can slow another one down but by the work it asks for.
//
// Handlers do all that takes time and is not the engine's: JSON, templates,
// tokenizing, compiling grammars, text of tokens, writing. The worker does what has
// to be done with a step: stop strings (a string that begins in one token and ends
// in another ends the output in the step that completes it, and no token after it
// is counted) and log-probabilities, which need the step's logits.
//
// # What a request may say
//
// Fields are those of OpenAI's interface and of vLLM's additions to it, see
// chatRequest and completionRequest. A field that this server knows of and can't
// honour is an error that names it; one that it does not know is ignored, as
// clients expect. speculation: {strategy, k, rule} chooses how the answer is
// drafted, and usage.speculation tells what came of it.
//
// # Errors
//
// {"error": {message, type, param, code}} with the status: 400 for what is wrong
// with a request, 401 and 429 for keys and their limits, 404, 413, 499 (in logs:
// the client went away), 500, and 503 while the server is full or drains.
package server
