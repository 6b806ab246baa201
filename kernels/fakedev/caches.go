package fakedev

import "exacta.dev/exacta/kernels"

// caches wraps the caches of the wrapped backend under a number of the device.
type caches struct {
	be     *Backend
	inner  kernels.Caches
	id     uint32
	length kernels.Buf
}

// ID returns the number that layer handles carry.
func (c *caches) ID() uint32 { return c.id }

// Layer returns the handle of layer i.
func (c *caches) Layer(i int) kernels.Layer { return kernels.Layer{Caches: c.id, Index: int32(i)} }

// Spec returns what the caches were made for.
func (c *caches) Spec() kernels.CacheSpec { return c.inner.Spec() }

// Len is the table of committed lengths, under a handle of the device.
func (c *caches) Len() kernels.Buf { return c.length }

// Bytes returns the memory behind one page, one slot and one snapshot.
func (c *caches) Bytes() (page, slot, snapshot int64) { return c.inner.Bytes() }

// Close runs everything recorded and frees the memory.
func (c *caches) Close() error {
	if c.be.closed || c.be.caches[c.id] == nil {
		return nil
	}
	if err := c.be.usable("close caches"); err != nil {
		return err
	}
	c.be.q.execute(c.be.q.recorded())
	delete(c.be.caches, c.id)
	delete(c.be.bufs, c.length.ID)
	return c.be.open(c.inner.Close)
}
