package audit_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShow(t *testing.T) {
	w := theWorld(t)
	c := w.run(t, setup{drafter: "mtp", k: 4, rule: "greedy", simulate: "length=2.6", requests: 6, maxNew: 60})
	for n, f := range audits {
		r, err := f(t.Context(), c.Case, nil)
		require.NoError(t, err)
		b, _ := json.MarshalIndent(r, "", " ")
		fmt.Println(n, string(b))
	}
}
