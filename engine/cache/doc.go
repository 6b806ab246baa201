// Package cache decides which page of KV memory belongs to whom, and which
// results of earlier prompts a new one can use again. It holds numbers, never
// data: the pages and snapshots themselves live behind kernels.Caches, and the
// scheduler turns what this package decides into operations on them.
//
// # Pages
//
// A page has room for kernels.PageTokens positions of every attention layer,
// the target's and the drafters'. [Pages] hands pages out and counts in how
// many page tables each one stands. A page without references is free, or idle
// if the prefix cache keeps it. Free pages come back last in, first out, so
// that memory that was just touched is touched again; idle pages are evicted in
// the order of their release. Both orders depend on the calls alone.
//
// # The prefix cache
//
// What a page holds is a function of all tokens up to its end, and of nothing
// else: that is the contract of the kernels. So a full page can serve every
// later prompt that begins with those tokens, bit for bit. [Prefix] is a tree
// with a node per full page; the path from the root spells the tokens. A child
// is found by a hash of its page's tokens and then compared token by token: a
// collision costs time and never an answer. A tree of pages was taken rather
// than a radix tree over tokens (Zheng et al. 2024, arXiv:2312.07104), since
// memory can't be shared by less than a page, and rather than a table of
// chained block hashes (as vLLM has it), since a chain must be trusted where a
// node can be compared.
//
// Requests whose pages hold different things for the same tokens have different
// spaces. The keys of a device drafter stand in the same pages as the target's,
// so sequences share only with those of the same drafter. A server gives each
// tenant a space, so that nobody learns by timing what another has asked.
//
// A sequence walks down the tree as its pages fill ([Prefix.Extend], with a
// [Path] as its place). If another has put the same page there first, it moves
// to that page and gives up its own. Therefore
//
//   - a sequence that has a page of the tree has all pages before it,
//   - a page that is idle has only idle pages after it,
//   - pages are released last first, so idle ones stand in the list of
//     eviction after the pages that follow them,
//
// and the idle page released longest ago is always a leaf: eviction takes it
// without a search, all idle pages can be evicted, and their number is what
// admission may count on. This is LRU by the time of release.
//
// A session that goes on later can have its path pinned ([Prefix.Pin]). Pinned
// pages stand in a second list and are evicted when the first is empty, so pins
// order evictions and never refuse memory. With a page all pages before it are
// pinned, so that the order of release goes on to evict leaves first in either
// list.
//
// # Snapshots
//
// A recurrent layer's state at a position is not in any page. A hit of a hybrid
// model ends where a snapshot of the states was saved: at a page border, which
// is a window border too, where the state is exact and no open window must be
// kept (kernels.PageTokens = kernels.WindowTokens). A snapshot is as large as
// the keys of thousands of tokens, so there is a budget of them, apart from
// pages: [Prefix.ReserveSnapshot] takes one out for a save to come and evicts
// the one used longest ago, [Prefix.Attach] puts it at a path's end when it has
// been saved. A page that is evicted takes its snapshot along; a snapshot that
// is evicted leaves the page, which shows later prompts that a snapshot there
// would have served them ([Hit.Matched]). Where to save is the scheduler's
// choice.
//
// # Invariants
//
// [Pages.Check] and [Prefix.Check] verify all of the above against the page
// tables of the sequences. Tests call them after each operation, as do builds
// with the tag invariants. In tests, two slow twins that search lists stand
// against the two types under random operations, with honest and with colliding
// hashes.
package cache
