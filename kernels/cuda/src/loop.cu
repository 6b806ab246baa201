// What a program leaves for the host, and the end of sequences in a loop.

enum { POST_VIEWS = 4, RING_CLOCK = 2, RING_WORK = 4, RING_DATA = 16 };

struct PostArgs {
	Env e;
	u32* mem;    // pinned: [entries, words]
	u32* posted; // entries so far
	View<const i32> views[POST_VIEWS];
	i32 cols[POST_VIEWS];
	i32 entries, words;
};
LAYOUT(PostArgs, post);

// One block. The entry's number is written last: the host polls it.
KERNEL(post, PostArgs) {
	const i32 tid = threadIdx.x;
	const u32 n = *a.posted;
	volatile u32* entry = a.mem + (u64)(n % a.entries) * a.words;
	i32 at = RING_DATA;
	for (int i = 0; i < POST_VIEWS; i++) {
		const View<const i32>& v = a.views[i];
		for (i32 j = tid; v.p && j < v.rows * a.cols[i]; j += THREADS) entry[at + j] = (u32)v.row(j / a.cols[i])[j % a.cols[i]];
		if (v.p) at += v.rows * a.cols[i];
	}
	if (tid == 0) {
		u64 clock;
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(clock));
		entry[1] = at - RING_DATA;
		*(volatile u64*)(entry + RING_CLOCK) = clock;
		for (int i = 0; i < 3; i++) *(volatile u64*)(entry + RING_WORK + 2 * i) = ((volatile u64*)a.e.work)[i];
	}
	__threadfence_system();
	__syncthreads();
	if (tid != 0) return;
	*a.posted = n + 1;
	entry[0] = n + 1;
}

struct HaltArgs {
	Env e;
	Table slots, left, kept, next;
	View<const i32> drafts, stops; // drafts.p may be null
	i32 width, each, n, pad;
};
LAYOUT(HaltArgs, halt);

KERNEL(halt, HaltArgs) {
	const i32 s = blockIdx.x * THREADS + threadIdx.x;
	if (s >= a.n || a.slots.at(s) < 0) return;
	const i32 kept = a.kept.at(s), rows = a.drafts.p ? a.width + 1 : 1;
	if (kept < 0 || kept > rows) {
		fail(a.e, FAULT_KEPT, s, kept, rows);
		return;
	}
	const i32 left = a.left.at(s) - kept;
	bool ends = left <= 0;
	for (i32 j = 0; j < kept; j++) {
		const i32 id = j < kept - 1 ? a.drafts.row(s)[j] : a.next.at(s);
		for (i32 i = 0; i < a.each; i++) ends |= id >= 0 && a.stops.row(s)[i] == id;
	}
	a.left.at(s) = left;
	if (ends) a.slots.at(s) = -1;
}
