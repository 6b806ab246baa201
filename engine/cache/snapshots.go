package cache

// snapshots is the budget of recurrent snapshots: free, reserved for a Save to
// come, or attached to a node.
type snapshots struct {
	free  []int32 // a stack, lowest id on top at first
	owner []*node // the node that a snapshot is attached to
	used  []int64 // tick of the last use of an attached snapshot
	tick  int64
}

func newSnapshots(n int) snapshots {
	s := snapshots{free: make([]int32, n), owner: make([]*node, n), used: make([]int64, n)}
	for i := range n {
		s.free[i] = int32(n - 1 - i)
	}
	return s
}

// reserve takes a free snapshot, or else the attached one that was used longest
// ago, of those that no pin keeps if there are any; its node is returned to be
// told.
func (s *snapshots) reserve() (id int32, evicted *node, ok bool) {
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
		return id, nil, true
	}
	id = -1
	for i, n := range s.owner {
		if n != nil && (id < 0 || s.before(i, int(id))) {
			id = int32(i)
		}
	}
	if id < 0 {
		return -1, nil, false
	}
	evicted = s.owner[id]
	s.owner[id] = nil
	return id, evicted, true
}

// before reports whether attached snapshot a is evicted before b.
func (s *snapshots) before(a, b int) bool {
	if pa, pb := s.owner[a].pins > 0, s.owner[b].pins > 0; pa != pb {
		return pb
	}
	return s.used[a] < s.used[b]
}

func (s *snapshots) attach(id int32, n *node) {
	s.owner[id] = n
	s.touch(id)
}

func (s *snapshots) touch(id int32) {
	s.tick++
	s.used[id] = s.tick
}

func (s *snapshots) release(id int32) {
	s.owner[id] = nil
	s.free = append(s.free, id)
}
