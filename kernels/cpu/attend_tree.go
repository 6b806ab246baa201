package cpu

// A row of a tree sees its own path at the positions of the path, and the rows of
// the span lie in other places: row i in that of position start + i. So the pages
// that the span reaches into are copied with the path in place; all keys before
// them are read where they are, with the other rows of the block.

// alike returns the row after those that see one and the same page p as row r: all
// of the block, or, of a tree, the children in one line that follow it.
func (a *attention) alike(r, p int) int {
	if !a.s.tree || p < a.s.start/page {
		return a.rows
	}
	i := a.from + r/a.o.group
	return min(a.rows, (a.s.run(&a.o.b, i)-a.from)*a.o.group)
}

// detour returns the row before row end of the block, and whether other rows lie in
// the places of its path.
func (a *attention) detour(p, end int) (row int, ok bool) {
	row = a.from + (end-1)/a.o.group
	return row, a.s.tree && p >= a.s.start/page && a.s.pos(&a.o.b, row) != a.s.start+row
}

// eachMoved calls f for the keys of row's path on page p that lie elsewhere: place
// to on the page, place from of page q of the KV head.
func (a *attention) eachMoved(row, p int, f func(to, q, from int)) {
	b := &a.o.b
	for row >= 0 {
		pos := b.pos.at(a.s.row + row)
		place := a.s.start + row
		if pos < p*page || pos == place {
			return // and so are all before it
		}
		if pos < (p+1)*page {
			f(pos%page, a.o.pageOf(a.s, a.head, place/page), place%page)
		}
		row = b.parent.at(a.s.row + row)
	}
}

// keyPage returns page p as the rows up to row end of the block, not included, see
// it.
func (a *attention) keyPage(p, end int) []uint32 {
	src := a.o.l.keyPage(a.o.pageOf(a.s, a.head, p))
	row, ok := a.detour(p, end)
	if !ok {
		return src
	}
	copy(a.keys, src)
	a.eachMoved(row, p, func(to, q, from int) {
		other := a.o.l.keyPage(q)
		for k := 0; k < len(src); k += page {
			a.keys[k+to] = other[k+from]
		}
	})
	return a.keys
}

// valuePage is keyPage for values; odd says that some may not be finite.
func (a *attention) valuePage(p, end int) (values []uint16, odd bool) {
	i := a.o.pageOf(a.s, a.head, p)
	src, odd := a.o.l.valuePage(i), a.o.l.odd[i]
	row, ok := a.detour(p, end)
	if !ok {
		return src, odd
	}
	copy(a.values, src)
	a.eachMoved(row, p, func(to, q, from int) {
		odd = odd || a.o.l.odd[q]
		copyKey(a.values, to, a.o.l.valuePage(q), from)
	})
	return a.values, odd
}

// copyKey copies key from of a page of values to key to of another or the same one.
func copyKey(dst []uint16, to int, src []uint16, from int) {
	for c := 0; c < len(src); c += panelRows * page {
		d, s := dst[c+to/2*2*panelRows+to&1:], src[c+from/2*2*panelRows+from&1:]
		for i := range panelRows {
			d[2*i] = s[2*i]
		}
	}
}
