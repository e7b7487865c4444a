package main

import (
	"io"
	"strings"
	"testing"
)

// TestVerdictIsATableAndWhatIsWrong: tests that were left out must be named in skips, and none may fail or give up its checks.
func TestVerdictIsATableAndWhatIsWrong(t *testing.T) {
	const good = `{"Action":"pass","Test":"TestGroupETL","Elapsed":61.5}
{"Action":"pass","Test":"TestGroupETL/part","Elapsed":60}
{"Action":"output","Test":"TestSCRAMAuth","Output":"    auth_test.go:9: no SASL here\n"}
{"Action":"skip","Test":"TestSCRAMAuth"}
`
	for _, c := range []struct{ more, table, wrong string }{
		{"", "TestGroupETL passed 61.5", ""},
		{`{"Action":"fail","Test":"TestTxnEtl","Elapsed":3}`, "TestTxnEtl FAILED 3.0", "failed: TestTxnEtl"},
		{`{"Action":"skip","Test":"TestNew"}`, "TestNew left out 0.0", "1 tests were left out"},
		{`{"Action":"output","Test":"TestGroupETL","Output":"skipping validation\n"}`, "TestGroupETL passed 61.5", "gave up their checks"},
	} {
		r, err := read(strings.NewReader(good+c.more), io.Discard, false)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		got := r.verdict(&out)
		if c.wrong == "" && got != nil || c.wrong != "" && (got == nil || !strings.Contains(got.Error(), c.wrong)) {
			t.Errorf("with %q the verdict is %v", c.more, got)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(text, c.table) || strings.Contains(text, "TestGroupETL/part") {
			t.Errorf("with %q it says\n%s", c.more, out.String())
		}
		if !strings.Contains(text, "left out: TestSCRAMAuth: needs a listener with SASL") {
			t.Errorf("the reason is missing in\n%s", out.String())
		}
	}
}
