package faults

// catalogue is the matrix of the fault catalogue: the audits that find a class
// for certain. Those that may find it are left out.
var catalogue = map[string][]string{
	"B1": {counts}, "B2": {counts}, "B3": {counts}, "B4": {counts, work}, "B5": {tokens, counts, work}, "B6": {work}, "B7": {work},
	"B8": {counts}, "B9": {counts}, "B10": {tokens, counts}, "B11": {tokens}, "B12": {tokens}, "B13": {counts}, "B14": {tokens, counts},
	"B15": {tokens}, "B16": {tokens}, "B17": {tokens}, "B18": {tokens}, "B19": {counts}, "B20": {tokens}, "B21": {tokens, counts},
	"B22": {tokens}, "B23": {counts, work}, "B24": {tokens}, "B25": {tokens}, "B26": {tokens}, "B27": {counts},
}

// unlike says where a variant is to be found by other audits than its class, and
// why.
var unlike = map[string]struct {
	expect []string
	why    string
}{
	"counted and not emitted behind the stop": {
		[]string{counts}, "what the client receives is right: only the counter is not",
	},
}

// expected returns the audits that have to find a fault.
func (f *Fault) expected() []string {
	if u, ok := unlike[f.Name]; ok {
		return u.expect
	}
	if e, ok := catalogue[f.ID]; ok {
		return e
	}
	return f.Expect
}
