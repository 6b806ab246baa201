// Package fakeserver is a server for tests that speaks as vLLM, SGLang,
// llama-server or a bare OpenAI-compatible server does, in the parts that package
// outside uses. It decodes nothing itself: a Script gives, for each prompt, the
// tokens, drafts and verdicts of a decoding, either of the Toy model here or of
// recorded runs of the real engine (Recorded).
//
// A server is honest, or has one Fault. Faults of decoding (a token changed,
// thresholds, simulated acceptance) change what is sent; faults of counting
// change what is said of it; neither tells the other. Faults of transport (a
// status, an HTML page, a cut stream, an endless body) are fields of the Server.
package fakeserver
