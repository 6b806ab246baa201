//go:build !amd64

package vec

func hiddenSets() []*Set { return nil }
