// Commit: a path of each span becomes part of its sequence. A span keeps row i in
// the place of position start + i (pages, rings), so the rows of the path move
// down to the places of their positions: commit_fold where the path passes a
// window border by a row whose state delta did not leave, then commit_rows, then
// commit, which checks and sets the lengths. Without a path only the last one
// runs: rows 0..kept-1 are in their places.

// CommitLayer says where one layer's parts lie.
struct CommitLayer {
	u64 keys, values, index;         // attention: offsets in elements of kv
	u64 state, k_rec, u_rec, g_rec;  // Delta: offsets in a half and in a slot's records
	u64 conv;                        // and in its convolution ring
	u64 tokens, rows;                // any layer: what it keeps of positions beside
	i32 kv_heads, dim, vdim, index_dim; // kv_heads 0: a Delta layer
	i32 k_heads, v_heads, k_dim, v_dim, channels;
	i32 row_dim, keeps, pad; // keeps: tokens are kept
};

struct CommitArgs {
	Env e;
	Batch b;
	Table kept, path; // path.p may be null
	i32* length;
	const CommitLayer* layers;
	const i32* table; // [slots, slot_pages]
	u16 *kv, *conv;
	float *state, *records;
	u64 slot_state, half_state, slot_rec, slot_conv;
	i32 slots, max_draft, slot_pages, pages;
	i32 ring, conv_ring, heads, pad;
};
LAYOUT(CommitArgs, commit);

INLINE i32 kept_row(const CommitArgs& a, const Span& s, i32 j) { return a.path.p ? a.path.at(s.off + j) : j; }

// follows says whether the k rows that are kept follow each other from the
// committed prefix on. They then rise.
INLINE bool follows(const CommitArgs& a, const Span& s, i32 k) {
	i32 before = -1;
	for (i32 j = 0; j < k; j++) {
		const i32 i = kept_row(a, s, j);
		if (i <= before || i >= s.len || a.b.parent.at(s.off + i) != before) return false;
		before = i;
	}
	return true;
}

// moved brings the path of span i to path and returns its length, or 0 if no row
// of it moves or it is none.
INLINE i32 moved(const CommitArgs& a, i32 i, Span& s, i32* path) {
	__shared__ i32 n;
	if (threadIdx.x == 0) {
		n = 0;
		const i32 k = span_at(a.e, a.b, a.slots, i, s) ? a.kept.at(i) : 0;
		if (k > 0 && k <= s.len && s.len <= WINDOW && follows(a, s, k)) {
			for (i32 j = 0; j < k; j++) {
				path[j] = kept_row(a, s, j);
				if (path[j] != j) n = k;
			}
		}
	}
	__syncthreads();
	if (n > 0) span_at(a.e, a.b, a.slots, i, s);
	return n;
}

// The state at a border that the path passes: grid (layers * heads, spans).
KERNEL(commit_fold, CommitArgs) {
	__shared__ i32 path[WINDOW], rec[WINDOW];
	__shared__ float decay[WINDOW];
	const CommitLayer l = a.layers[blockIdx.x / a.heads];
	const i32 h = blockIdx.x % a.heads, tid = threadIdx.x;
	if (l.kv_heads > 0 || h >= l.v_heads) return;
	Span s;
	const i32 k = moved(a, blockIdx.y, s, path);
	if (k == 0) return;
	const i32 base = s.start / WINDOW * WINDOW, last = base + WINDOW - 1 - s.start; // depth of the window's last row
	if (k <= last || path[last] == last) return; // not passed, or delta left it
	const float* g_rec = a.records + s.slot * a.slot_rec + l.g_rec + (u64)h * a.ring;
	for (i32 t = tid; t < WINDOW; t += THREADS) {
		const i32 p = base + t;
		rec[t] = (p < s.start ? p : s.start + path[p - s.start]) % a.ring;
	}
	__syncthreads();
	const float end = g_rec[rec[WINDOW - 1]], fade = expf(end);
	for (i32 t = tid; t < WINDOW; t += THREADS) decay[t] = expf(end - g_rec[rec[t]]);
	__syncthreads();
	const i32 kd = l.k_dim, vd = l.v_dim, kh = h / (l.v_heads / l.k_heads), keys = l.k_heads * kd;
	const float* k_rec = a.records + s.slot * a.slot_rec + l.k_rec + kh * kd;
	const float* u_rec = a.records + s.slot * a.slot_rec + l.u_rec + (u64)h * a.ring * vd;
	float* halves = a.state + s.slot * a.slot_state + l.state + (u64)h * kd * vd;
	const float* S = base > 0 ? halves + base / WINDOW % 2 * a.half_state : nullptr;
	float* next = halves + (base / WINDOW + 1) % 2 * a.half_state;
	for (i32 c = tid; c < vd; c += THREADS) {
		for (i32 j = 0; j < kd; j++) {
			float w = S ? fade * S[(u64)j * vd + c] : 0.0f;
			for (i32 t = 0; t < WINDOW; t++)
				w = fmaf(decay[t] * k_rec[(u64)rec[t] * keys + j], u_rec[(u64)rec[t] * vd + c], w);
			next[(u64)j * vd + c] = w;
		}
	}
}

// Moves the rows of the path: grid (layers, spans). Each thread moves columns of
// its own, in order of position, so no place is written before it was read.
KERNEL(commit_rows, CommitArgs) {
	__shared__ i32 path[WINDOW];
	const CommitLayer l = a.layers[blockIdx.x];
	Span s;
	const i32 k = moved(a, blockIdx.y, s, path), tid = threadIdx.x;
	if (k == 0) return;
	if (l.kv_heads > 0 || l.row_dim > 0 || l.keeps) {
		const i32 width = l.kv_heads * l.dim, vwidth = l.kv_heads * l.vdim;
		const i32* pages = a.table + (u64)s.slot * a.slot_pages;
		for (i32 j = 1; j < k; j++) {
			if (path[j] == j) continue;
			const i32 from = s.start + path[j], to = s.start + j;
			const i32 p = from / PAGE < a.slot_pages ? pages[from / PAGE] : -1, q = to / PAGE < a.slot_pages ? pages[to / PAGE] : -1;
			if (p < 0 || p >= a.pages || q < 0 || q >= a.pages) {
				if (tid == 0) fail(a.e, FAULT_PAGE, s.off + path[j], from, a.slot_pages);
				return;
			}
			const u64 src = (u64)p * PAGE + from % PAGE, dst = (u64)q * PAGE + to % PAGE;
			for (i32 c = tid; c < l.row_dim; c += THREADS) a.kv[l.rows + dst * l.row_dim + c] = a.kv[l.rows + src * l.row_dim + c];
			if (l.keeps && tid == 0) ((i32*)(a.kv + l.tokens))[dst] = ((i32*)(a.kv + l.tokens))[src];
			for (i32 c = tid; c < width; c += THREADS) a.kv[l.keys + dst * width + c] = a.kv[l.keys + src * width + c];
			for (i32 c = tid; c < vwidth; c += THREADS) a.kv[l.values + dst * vwidth + c] = a.kv[l.values + src * vwidth + c];
			for (i32 c = tid; c < l.index_dim; c += THREADS) a.kv[l.index + dst * l.index_dim + c] = a.kv[l.index + src * l.index_dim + c];
		}
	}
	if (l.kv_heads > 0) return;
	float* records = a.records + s.slot * a.slot_rec;
	u16* conv = a.conv + s.slot * a.slot_conv + l.conv;
	const i32 keys = l.k_heads * l.k_dim, values = l.v_heads * l.v_dim;
	for (i32 j = 1; j < k; j++) {
		if (path[j] == j) continue;
		const u64 src = (s.start + path[j]) % a.ring, dst = (s.start + j) % a.ring;
		for (i32 c = tid; c < keys; c += THREADS) records[l.k_rec + dst * keys + c] = records[l.k_rec + src * keys + c];
		for (i32 c = tid; c < values; c += THREADS) {
			float* u = records + l.u_rec + (u64)(c / l.v_dim) * a.ring * l.v_dim + c % l.v_dim;
			u[dst * l.v_dim] = u[src * l.v_dim];
		}
		for (i32 h = tid; h < l.v_heads; h += THREADS) {
			float* g = records + l.g_rec + (u64)h * a.ring;
			g[dst] = g[src];
		}
		const u64 in = (s.start + path[j]) % a.conv_ring, out = (s.start + j) % a.conv_ring;
		for (i32 c = tid; c < l.channels; c += THREADS) conv[out * l.channels + c] = conv[in * l.channels + c];
	}
}

// One block. The states of Delta layers follow the committed length.
KERNEL(commit, CommitArgs) {
	for (i32 i = threadIdx.x; i < a.b.spans; i += THREADS) {
		Span s;
		if (!span_at(a.e, a.b, a.slots, i, s)) continue;
		const i32 k = a.kept.at(i);
		if (k < 0 || k > s.len) {
			fail(a.e, FAULT_KEPT, i, k, s.len);
			continue;
		}
		if (k == 0) continue;
		if (k < s.len && s.len > a.max_draft + 1) {
			fail(a.e, FAULT_WHOLE, i, k, s.len);
			continue;
		}
		if (!follows(a, s, k)) {
			fail(a.e, FAULT_TREE, i, k, s.len);
			continue;
		}
		a.length[s.slot] = s.start + k;
	}
}
