package vec

// goPeak is Peak of the Go set: eight independent chains of a product and a sum.
func goPeak(iterations int) int64 {
	var acc [8]float32
	for range iterations {
		for i := range acc {
			acc[i] = float32(acc[i]*0.5) + 1
		}
	}
	if acc[0] < 0 { // never: keeps the loop alive
		return 0
	}
	return int64(iterations) * int64(len(acc))
}
