// Package hub finds and fetches models in the cache that the Hugging Face libraries
// share, so that a model that another program has fetched is there for this one, and
// the other way around.
//
// # The cache
//
// A model ORG/NAME has a folder models--ORG--NAME in the cache (HF_HUB_CACHE, or hub
// in HF_HOME, or ~/.cache/huggingface/hub): blobs/HASH holds contents,
// snapshots/COMMIT/PATH are links to them, and refs/REVISION names the commit.
// [Find] looks there and nowhere else.
//
// # Fetching
//
// [Pull] asks HF_ENDPOINT (https://huggingface.co) for the files of a revision and
// fetches those that a model is loaded from. Contents go to a name ending in
// .incomplete first, from where a later call resumes, and get their own name when size
// and hash (SHA-256, or Git's of small files) are right; the revision is written last,
// so that a model is found whole or not at all. A server may ignore ranges, cut
// connections, redirect, or ask for patience (429, 503): all of these end in the right
// bytes or in an error that says what happened. A token (HF_TOKEN) goes to the
// endpoint's own host alone, and into no message.
//
// The layout and the protocol: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
// and https://huggingface.co/docs/hub/api.
package hub
