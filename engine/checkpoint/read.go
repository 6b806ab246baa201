package checkpoint

// ReadSafetensors parses a whole safetensors file and returns its tensors under
// the names that it has, in the order of its data: the counterpart of
// WriteSafetensors. The tensors' bytes are views of data.
func ReadSafetensors(data []byte) ([]Tensor, error) {
	head, err := parseHeader(data, int64(len(data)))
	if err != nil {
		return nil, err
	}
	start := head.size
	tensors := make([]Tensor, 0, len(head.entries))
	for _, e := range head.entries {
		tensors = append(tensors, Tensor{
			Name: e.name, Source: e.name, DType: e.dtype, Shape: e.shape,
			data: data[start+e.begin : start+e.end : start+e.end],
		})
	}
	return tensors, nil
}
