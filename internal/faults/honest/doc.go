// Package honest is the laboratory in which trials are audited: that of
// experiments, with a memory. Many runs ask for the same requests, and what an
// honest engine makes of them is computed once.
package honest
