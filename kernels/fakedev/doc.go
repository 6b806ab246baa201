// Package fakedev is a device that isn't one: it wraps another backend and takes
// away everything that a CPU backend gives by accident and a GPU doesn't.
//
// Model code that works on the CPU may still lean on memory being the host's, on
// operations having run by the time that they were recorded, or on a handle
// being an index that it can guess. None of that is visible until the first run
// on a real device, and there it shows as wrong numbers. The fake device makes
// it visible in an ordinary test:
//
//   - Handles are its own, drawn from a counter shared by all fake devices, so
//     a handle of the wrapped backend, of another device, or of a freed buffer is
//     an error that names the operation.
//   - The queue runs nothing before Ticket.Wait, Queue.Err, Backend.Work (and
//     Free and Close, which wait as their counterparts on a device do). A wait
//     runs what stands before its ticket and not one operation more.
//   - Queue.Write takes its bytes at the call. Queue.Read fills its
//     destination with [Poison] at the call and with the data when a ticket
//     at or behind it is waited for.
//   - Memory is opaque: if the wrapped backend has a method
//     Protect(on bool) error, as kernels/cpu has, its memory is inaccessible
//     except while the device executes, so a host access through a kept pointer
//     faults.
//   - Captured programs replay what was recorded, with the host's numbers of that
//     time. Write, Read, Wait, Alloc, Load
//     and recording past the capturing queue fail the capture.
//   - Freed buffers are overwritten with [Freed] before the wrapped backend
//     gets them back.
//
// Arithmetic, counters and memory figures are those of the wrapped backend.
package fakedev
