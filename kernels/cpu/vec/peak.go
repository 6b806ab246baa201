package vec

// goPeak is Peak of the Go set: eight independent float64 chains.
func goPeak(iterations int) int64 {
	var acc [8]float32
	w, x := wide(0x3f80), wide(0x3c00)
	for range iterations {
		for i := range acc {
			acc[i] = mac(acc[i], w, x)
		}
	}
	if acc[0] < 0 { // never: keeps the loop alive
		return 0
	}
	return int64(iterations) * int64(len(acc))
}
