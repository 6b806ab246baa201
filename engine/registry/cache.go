package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// notes expands weights, and notes what a user should know.
func (e *Entry) notes() {
	if e.ck == nil {
		return
	}
	if n := len(e.Skipped); n > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%d tensors are left out, such as %s: they are not of the text model", n, e.Skipped[0]))
	}
	if !e.ck.Expanded() {
		return
	}
	dir, err := CacheDir()
	if err == nil && dir != "" {
		if err = e.ck.UseCache(context.Background(), filepath.Join(dir, "expanded")); err == nil {
			e.Notes = append(e.Notes, fmt.Sprintf("the weights are expanded to BF16, in %s (EXACTA_CACHE says where)", filepath.Join(dir, "expanded")))
			return
		}
	}
	if err != nil {
		e.Notes = append(e.Notes, fmt.Sprintf("the weights are expanded to BF16 each time they load: %v", err))
	}
}

// CacheDir is where expanded and packed weights are kept: EXACTA_CACHE, or the folder
// exacta of the user's cache directory. It is empty where EXACTA_CACHE is off.
func CacheDir() (string, error) {
	switch dir := os.Getenv("EXACTA_CACHE"); dir {
	case "off":
		return "", nil
	case "":
		dir, err := os.UserCacheDir()
		return filepath.Join(dir, "exacta"), err
	default:
		return dir, nil
	}
}

// PackedFile says where the weights of the model are kept as a backend has packed
// them, and the key under which; an error where no such file can be.
func (e *Entry) PackedFile() (path, key string, err error) {
	if e.ck != nil {
		key, err = e.ck.FileKey()
	}
	if err != nil {
		return "", "", fmt.Errorf("model %s: %w", e.Name, err)
	}
	dir, err := CacheDir()
	if err != nil {
		return "", "", err
	}
	if key == "" || dir == "" {
		return "", "", fmt.Errorf("model %s: packed weights are kept of models on disk, where EXACTA_CACHE is not off", e.Name)
	}
	return filepath.Join(dir, "packed", key), key, nil
}
