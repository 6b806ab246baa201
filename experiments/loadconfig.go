package experiments

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments/load"
	"exacta.dev/exacta/experiments/workload"
)

// LoadExperiment is a load experiment: workloads put on servers. A file with the key
// targets is one. Field comments are its reference.
type LoadExperiment struct {
	// Name of the experiment; the run directory starts with it.
	Name string `yaml:"name"`
	// Model is that whose tokenizer makes the prompts, and that targets in this
	// process serve; see Config.Model.
	Model string `yaml:"model"`
	// Workload is what is asked, Arrivals when; Points change them.
	Workload LoadWorkload `yaml:"workload"`
	Arrivals LoadArrivals `yaml:"arrivals"`
	// Points are the loads to measure; without any there is one, called load.
	Points []LoadPoint `yaml:"points,omitempty"`
	// Measure says what counts.
	Measure LoadMeasure `yaml:"measure"`
	// Repeats is the number of times that each point is measured; the nth has
	// the seed workload.seed + n, the same at every target.
	Repeats int `yaml:"repeats"`
	// SLO are limits of latency for goodput.
	SLO *load.SLO `yaml:"slo,omitempty"`
	// Body are fields of every request, such as temperature, top_p, seed. Without
	// temperature requests are greedy.
	Body map[string]any `yaml:"body,omitempty"`
	// Baseline is the target that the others are compared with; empty is the
	// first.
	Baseline string `yaml:"baseline"`
	// Varies names what may differ between targets, of load.Bound: a comparison
	// of drafts has varies: [draft].
	Varies []string `yaml:"varies,omitempty"`
	// Targets are the servers.
	Targets []LoadTarget `yaml:"targets"`
}

// LoadWorkload names a source of package workload with its settings.
type LoadWorkload struct {
	Source string         `yaml:"source"`
	Seed   uint64         `yaml:"seed"`
	Config map[string]any `yaml:"config,omitempty"`
}

// LoadArrivals names an arrival process of package workload with its settings.
type LoadArrivals struct {
	Process string         `yaml:"process"`
	Config  map[string]any `yaml:"config,omitempty"`
}

// LoadPoint is a load: settings of source and arrival process that it changes.
type LoadPoint struct {
	Name     string         `yaml:"name"`
	Workload map[string]any `yaml:"workload,omitempty"`
	Arrivals map[string]any `yaml:"arrivals,omitempty"`
}

// LoadMeasure says what of a load counts.
type LoadMeasure struct {
	// Warmup is the number of sessions, the first, that do not count.
	Warmup int `yaml:"warmup"`
	// Seconds is how long sessions are started; 0 sends all of them.
	Seconds float64 `yaml:"seconds"`
	// IdleCapSeconds bounds the time that all sessions pause together; 0 does
	// not.
	IdleCapSeconds float64 `yaml:"idle_cap_seconds"`
}

// LoadTarget is a server: the engine in this process (engine), one that the run
// starts (command), one that is running (url), or a stand-in (fake).
type LoadTarget struct {
	Name string `yaml:"name"`
	// Engine serves in this process, over HTTP on this machine: settings of
	// ServeConfig. Its model is the experiment's.
	Engine map[string]any `yaml:"engine,omitempty"`
	// URL is the address of a server; in that of one that is started, {port} is
	// a free port.
	URL string `yaml:"url,omitempty"`
	// Command starts a server and its arguments; {port}, {model} and the keys of
	// Tune are replaced in them. Env is added to its environment. It is ready
	// when Health (default /health) answers with status 200, within
	// ReadySeconds (default 900), and is ended with all that it started.
	Command      []string          `yaml:"command,omitempty"`
	Env          map[string]string `yaml:"env,omitempty"`
	Health       string            `yaml:"health,omitempty"`
	ReadySeconds int               `yaml:"ready_seconds,omitempty"`
	// Fake is a server that generates nothing, at a set pace.
	Fake *LoadFake `yaml:"fake,omitempty"`
	// Body are fields of requests to this target, beside those of all.
	Body map[string]any `yaml:"body,omitempty"`
	// Declares says what the server does not tell, of load.Bound.
	Declares map[string]string `yaml:"declares,omitempty"`
	// Tune lists values by name, which stand in Command in braces: every
	// combination is tried on the first point, and the one with the most output
	// tokens per second is compared.
	Tune map[string][]string `yaml:"tune,omitempty"`
}

// LoadFake is the pace of a stand-in: milliseconds to the first token and from step
// to step, tokens of a step, and answers at once.
type LoadFake struct {
	Dialect   string  `yaml:"dialect"`
	FirstMs   float64 `yaml:"first_ms"`
	StepMs    float64 `yaml:"step_ms"`
	PerStep   int     `yaml:"per_step"`
	Sequences int     `yaml:"sequences"`
}

// DefaultLoad returns the configuration that a file starts from.
func DefaultLoad() LoadExperiment {
	return LoadExperiment{
		Name: "load", Model: "embedded", Repeats: 1, Workload: LoadWorkload{Source: "random", Seed: 42}, Arrivals: LoadArrivals{Process: "closed"},
	}
}

// IsLoad reports whether a configuration file is that of a load experiment.
func IsLoad(text []byte) bool {
	if len(text) > maxConfigBytes {
		return false
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil || len(file.Docs) != 1 {
		return false
	}
	m, ok := file.Docs[0].Body.(*ast.MappingNode)
	return ok && slices.ContainsFunc(m.Values, func(v *ast.MappingValueNode) bool { return v.Key.GetToken().Value == "targets" })
}

// ReadLoadExperiment reads and checks the file of a load experiment.
func ReadLoadExperiment(path string) (LoadExperiment, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return LoadExperiment{}, fmt.Errorf("config: %w", err)
	}
	return ParseLoadExperiment(path, text)
}

// ParseLoadExperiment reads a load experiment as strictly as ParseConfig reads others.
func ParseLoadExperiment(name string, text []byte) (LoadExperiment, error) {
	c := DefaultLoad()
	err := parseStrict(name, text, "load experiment", &c, func() error { return c.Validate() })
	return c, err
}

// names are what targets and points may be called: parts of file names.
var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate checks ranges and names. Errors are KeyErrors.
func (c *LoadExperiment) Validate() error {
	switch {
	case !names.MatchString(c.Name):
		return bad("name", "%q is not a name of letters, digits, '-' and '_'", c.Name)
	case c.Repeats < 1 || c.Repeats > 1000:
		return bad("repeats", "%d is out of range 1..1000", c.Repeats)
	case c.Measure.Warmup < 0:
		return bad("measure.warmup", "%d is negative", c.Measure.Warmup)
	case !(c.Measure.Seconds >= 0 && c.Measure.Seconds <= 1e6):
		return bad("measure.seconds", "%v is out of range 0..1000000", c.Measure.Seconds)
	case !(c.Measure.IdleCapSeconds >= 0 && c.Measure.IdleCapSeconds <= 1e6):
		return bad("measure.idle_cap_seconds", "%v is out of range 0..1000000", c.Measure.IdleCapSeconds)
	case len(c.Targets) == 0:
		return bad("targets", "is empty; name at least one")
	}
	for i, v := range c.Varies {
		if !slices.Contains(load.Bound, v) {
			return bad(fmt.Sprintf("varies[%d]", i), "%q is not one of %v", v, load.Bound)
		}
	}
	if err := c.validatePoints(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range c.Targets {
		t := &c.Targets[i]
		key := fmt.Sprintf("targets[%d]", i)
		if !names.MatchString(t.Name) || seen[t.Name] {
			return bad(key+".name", "%q is there twice, or is not a name of letters, digits, '-' and '_'", t.Name)
		}
		seen[t.Name] = true
		if err := t.validate(key); err != nil {
			return err
		}
	}
	if c.Baseline != "" && !seen[c.Baseline] {
		return bad("baseline", "%q is not a target", c.Baseline)
	}
	return nil
}

func (c *LoadExperiment) validatePoints() error {
	if len(c.Points) == 0 {
		_, _, err := c.load(LoadPoint{})
		return err
	}
	seen := map[string]bool{}
	for i, p := range c.Points {
		key := fmt.Sprintf("points[%d]", i)
		if !names.MatchString(p.Name) || seen[p.Name] {
			return bad(key+".name", "%q is there twice, or is not a name of letters, digits, '-' and '_'", p.Name)
		}
		seen[p.Name] = true
		if _, _, err := c.load(p); err != nil {
			return bad(key, "%v", err)
		}
	}
	return nil
}

// points are those of the configuration, at least one.
func (c *LoadExperiment) points() []LoadPoint {
	if len(c.Points) == 0 {
		return []LoadPoint{{Name: "load"}}
	}
	return c.Points
}

// baseline is the target that others are compared with.
func (c *LoadExperiment) baseline() string {
	if c.Baseline == "" {
		return c.Targets[0].Name
	}
	return c.Baseline
}

// load makes source and arrival process of a point.
func (c *LoadExperiment) load(p LoadPoint) (workload.Source, workload.Arrival, error) {
	s, err := workload.NewSource(c.Workload.Source)
	if err != nil {
		return nil, nil, bad("workload.source", "%v", err)
	}
	a, err := workload.NewArrival(c.Arrivals.Process)
	if err != nil {
		return nil, nil, bad("arrivals.process", "%v", err)
	}
	for _, part := range []struct {
		key    string
		common map[string]any
		own    map[string]any
		into   interface{ Validate() error }
	}{{"workload.config", c.Workload.Config, p.Workload, s}, {"arrivals.config", c.Arrivals.Config, p.Arrivals, a}} {
		settings := maps.Clone(part.common)
		if settings == nil {
			settings = map[string]any{}
		}
		maps.Copy(settings, part.own)
		err := decodeSettings(settings, part.into)
		var ke *KeyError
		if errors.As(err, &ke) {
			return nil, nil, bad(part.key+"."+ke.Key, "%s", ke.Want)
		}
		if err == nil {
			err = part.into.Validate()
		}
		if err != nil {
			return nil, nil, bad(part.key, "%v", err)
		}
	}
	return s, a, nil
}

func (t *LoadTarget) validate(key string) error {
	kinds := 0
	for _, is := range []bool{t.Engine != nil, t.URL != "", t.Fake != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return bad(key, "has %d of engine, url and fake; give one", kinds)
	case len(t.Command) > 0 && t.URL == "":
		return bad(key+".command", "needs the server's url")
	case len(t.Command) == 0 && (len(t.Tune) > 0 || len(t.Env) > 0 || t.Health != "" || t.ReadySeconds != 0):
		return bad(key, "has tune, env, health or ready_seconds, which are for servers that command starts")
	case t.ReadySeconds < 0 || t.ReadySeconds > 86400:
		return bad(key+".ready_seconds", "%d is out of range 0..86400", t.ReadySeconds)
	}
	for name := range t.Declares {
		if !slices.Contains(load.Bound, name) {
			return bad(key+".declares", "%q is not one of %v", name, load.Bound)
		}
	}
	for name, values := range t.Tune {
		if len(values) == 0 || name == "port" || name == "model" {
			return bad(key+".tune", "%q has no values, or is a name with a meaning", name)
		}
	}
	if f := t.Fake; f != nil {
		dialects := []string{string(outside.VLLM), string(outside.SGLang), string(outside.LlamaCpp)}
		if !slices.Contains(dialects, f.Dialect) || !(f.FirstMs >= 0 && f.StepMs >= 0 && f.FirstMs < 1e6 && f.StepMs < 1e6) || f.PerStep < 1 || f.Sequences < 0 {
			return bad(key+".fake", "needs a dialect of %v, first_ms and step_ms from 0, and at least 1 token per step", dialects)
		}
	}
	if t.Engine != nil {
		if _, err := t.serve(""); err != nil {
			return bad(key+".engine", "%v", err)
		}
	}
	return nil
}

// serve is the configuration of a target in this process; the model is named by the
// experiment.
func (t *LoadTarget) serve(model string) (ServeConfig, error) {
	c := DefaultServe()
	if err := decodeSettings(t.Engine, &c); err != nil {
		return c, err
	}
	if model != "" {
		c.Model = model
	}
	return c, c.Validate()
}

// resolved is the configuration as it is written.
func (c *LoadExperiment) resolved() ([]byte, error) { return yaml.Marshal(c) }
