// Package cache decides which page of KV memory belongs to whom, and what of
// it can be used again. See Pages, Prefix.
package cache
