// Operations on tables and on the caches' bookkeeping: the parts of a step that
// run between forward passes.

struct ChainArgs {
	Env e;
	Batch b;
	const i32* length; // committed lengths [slots]
	Table first;
	View<i32> rest; // p may be null
	i32 width, ahead, slots, pad;
};
LAYOUT(ChainArgs, chain);

INLINE void clear(const Batch& b, i32 row) {
	b.token.at(row) = 0;
	b.pos.at(row) = 0;
	b.parent.at(row) = -1;
	b.span.at(row) = -1;
}

INLINE void place(const Batch& b, i32 s, i32 row, i32 depth, i32 start, i32 token) {
	b.token.at(row) = token;
	b.pos.at(row) = start + depth;
	b.parent.at(row) = depth - 1;
	b.span.at(row) = s;
}

// One block.
KERNEL(chain, ChainArgs) {
	const Batch& b = a.b;
	const i32 n = 1 + a.width;
	for (i32 i = threadIdx.x; i < b.logits; i += THREADS) b.logit.at(i) = -1;
	__syncthreads();
	for (i32 r = threadIdx.x; r < b.rows; r += THREADS) {
		const i32 s = r / n, j = r % n, slot = s < b.spans ? b.seq.at(s) : -1;
		if (slot >= a.slots) fail(a.e, FAULT_SLOT, s, slot, a.slots);
		if (slot < 0 || slot >= a.slots) {
			clear(b, r);
			if (j == 0 && s < b.spans) b.start.at(s) = 0, b.len.at(s) = 0, b.off.at(s) = r;
			continue;
		}
		i32 length = 1; // the span ends before its first negative token
		while (length < n && a.rest.row(s)[length - 1] >= 0) length++;
		const i32 start = a.length[slot] + a.ahead;
		if (j == 0) b.start.at(s) = start, b.len.at(s) = length, b.off.at(s) = r;
		if (j >= length) {
			clear(b, r);
			continue;
		}
		place(b, s, r, j, start, j == 0 ? a.first.at(s) : a.rest.row(s)[j - 1]);
		if (b.logits >= b.spans * n) b.logit.at(r) = r;
		else if (j == length - 1) b.logit.at(s) = r;
	}
}

struct ShiftArgs {
	Env e;
	Batch dst, src;
	Table kept, next;
};
LAYOUT(ShiftArgs, shift);

// One block.
KERNEL(shift, ShiftArgs) {
	const Batch &d = a.dst, &b = a.src;
	for (i32 r = threadIdx.x; r < d.rows; r += THREADS) clear(d, r);
	__syncthreads();
	for (i32 s = threadIdx.x; s < d.spans; s += THREADS) {
		const i32 n = b.len.at(s), off = b.off.at(s), start = b.start.at(s) + 1;
		i32 k = n == 0 ? 0 : a.kept.at(s);
		if (k < 0 || k > n || k > d.max_len || (k > 0 && (off < 0 || off > b.rows - n))) {
			fail(a.e, FAULT_KEPT, s, k, n);
			k = 0;
		}
		d.seq.at(s) = k ? b.seq.at(s) : -1;
		d.start.at(s) = k ? start : 0;
		d.len.at(s) = k;
		d.off.at(s) = k ? off : 0;
		d.logit.at(s) = k ? off + k - 1 : -1;
		for (i32 j = 0; j < k; j++) place(d, s, off + j, j, start, j < k - 1 ? b.token.at(off + j + 1) : a.next.at(s));
	}
}

struct AcceptArgs {
	Env e;
	Batch b;
	Table kept, next;
	Table target; // column 0 of its rows
};
LAYOUT(AcceptArgs, accept);

// One block: the greedy rule.
KERNEL(accept, AcceptArgs) {
	const Batch& b = a.b;
	for (i32 s = threadIdx.x; s < b.spans; s += THREADS) {
		const i32 n = b.len.at(s), off = b.off.at(s);
		i32 kept = 0, next = 0;
		for (i32 j = 0; j < n; j++) {
			const i32 r = off + j;
			if (r < 0 || r >= b.logits || r >= b.rows || b.logit.at(r) != r) {
				fail(a.e, FAULT_LOGIT, s, r, 0);
				break;
			}
			kept = j + 1;
			next = a.target.at(r);
			if (j == n - 1 || r + 1 >= b.rows || b.token.at(r + 1) != next) break;
		}
		a.kept.at(s) = kept;
		a.next.at(s) = next;
	}
}

enum { MAX_ENTRIES = 512 };

struct PagesArgs {
	Env e;
	i32* dst;
	i32 n, pad;
	i32 pages[MAX_ENTRIES];
};
LAYOUT(PagesArgs, set_pages);

KERNEL(set_pages, PagesArgs) {
	for (i32 i = threadIdx.x; i < a.n; i += THREADS) a.dst[i] = a.pages[i];
}

// Where one Delta layer's parts lie.
struct DeltaLayer {
	u64 state, floats; // offset in a half, length
	u64 conv, tail;    // offset in a slot's convolution ring, in a snapshot's
	i32 channels, taps_n;
};

struct SlotArgs {
	Env e;
	i32 *length, *saved;      // of the slot, of the snapshot
	float *state, *snap;      // the slot's half 0, the snapshot
	u16 *conv, *tails;        // the slot's ring, the snapshot's tails
	const DeltaLayer* layers;
	u64 half_state;
	i32 conv_ring, to, restore, slot;
};
LAYOUT(SlotArgs, slot_copy);

// Copies a slot's states and convolution inputs to a snapshot or back: grid
// (chunks, layers).
KERNEL(slot_copy, SlotArgs) {
	const i32 n = a.restore ? a.to : *a.length;
	if (n % WINDOW != 0) {
		fail(a.e, FAULT_WINDOW, a.slot, n, WINDOW);
		return;
	}
	if (a.restore && *a.saved != n) {
		fail(a.e, FAULT_SAVED, a.slot, *a.saved, n);
		return;
	}
	const DeltaLayer l = a.layers[blockIdx.y];
	float* state = a.state + n / WINDOW % 2 * a.half_state + l.state;
	float* snap = a.snap + l.state;
	const u64 step = (u64)gridDim.x * THREADS, first = (u64)blockIdx.x * THREADS + threadIdx.x;
	for (u64 i = first; i < l.floats; i += step) {
		if (a.restore) state[i] = snap[i];
		else snap[i] = n ? state[i] : 0.0f;
	}
	const u64 tail = (u64)(l.taps_n - 1) * l.channels;
	for (u64 i = first; i < tail; i += step) {
		const i32 m = (i32)(i / l.channels) + 1, c = (i32)(i % l.channels); // m positions before n
		u16* ring = a.conv + l.conv + (u64)((n - m + a.conv_ring) % a.conv_ring) * l.channels + c;
		u16* kept = a.tails + l.tail + i;
		if (a.restore) *ring = *kept;
		else *kept = n ? *ring : 0;
	}
}

struct LengthArgs {
	Env e;
	i32* dst;
	const i32* src; // null: value
	i32 value, pad;
};
LAYOUT(LengthArgs, set_length);

// One thread: the committed length of a slot, or that of a snapshot.
KERNEL(set_length, LengthArgs) {
	if (threadIdx.x == 0) *a.dst = a.src ? *a.src : a.value;
}
