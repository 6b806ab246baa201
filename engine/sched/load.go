package sched

// Load is how much of a core's memory is in use.
type Load struct {
	Waiting, Running int // sequences
	// Pages are all KV pages, FreePages those that nobody uses, IdlePages
	// those that the prefix cache alone keeps.
	Pages, FreePages, IdlePages int
}

// Load returns what is in use now.
func (c *Core) Load() Load {
	return Load{
		Waiting: len(c.waiting), Running: len(c.running),
		Pages: c.cfg.Pages, FreePages: c.pages.Free(), IdlePages: c.pages.Idle(),
	}
}
