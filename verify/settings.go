package verify

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"exacta.dev/exacta/engine"
)

// Settings is the configuration of a rule that has any: a pointer to a struct of
// numbers, booleans or strings with json tags. A rule is named with those that
// differ from its defaults, as "typical:epsilon=0.2,delta=0.4", in configurations,
// on the command line and in records, so that a record says what decided it.
type Settings interface {
	// Validate names the setting that is out of range.
	Validate() error
	// Rule makes the rule, for one engine.
	Rule() engine.Verifier
}

// set reads "key=value,key=value" into settings.
func set(s Settings, list string) error {
	fields, seen := fieldsOf(s), map[string]bool{}
	for _, item := range strings.Split(list, ",") {
		key, value, _ := strings.Cut(item, "=")
		field, known := fields.by[key]
		switch {
		case !known:
			return fmt.Errorf("%q is not a setting; give KEY=VALUE, of %s", item, strings.Join(fields.keys, ", "))
		case seen[key]:
			return fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		if field.Kind() == reflect.String {
			field.SetString(value)
			continue
		}
		if err := json.Unmarshal([]byte(value), field.Addr().Interface()); err != nil || value == "null" {
			return fmt.Errorf("%s is %q; want a %s", key, value, kindOf(field))
		}
	}
	return s.Validate()
}

// kindOf names the type of a setting for users.
func kindOf(v reflect.Value) string {
	switch {
	case v.CanInt():
		return "whole number"
	case v.CanFloat():
		return "number"
	}
	return v.Kind().String()
}

// settingFields are the fields of settings, in order.
type settingFields struct {
	keys []string
	by   map[string]reflect.Value
}

func fieldsOf(s Settings) settingFields {
	out := settingFields{by: map[string]reflect.Value{}}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("json")
		out.keys = append(out.keys, key)
		out.by[key] = v.Field(i)
	}
	return out
}

// Named returns the name of a registered rule with those settings that are not its
// defaults, as Verifier.Name of a rule with settings has to give it.
func Named(name string, s Settings) string {
	var list []string
	defaults := fieldsOf(registry[name].Settings())
	have := fieldsOf(s)
	for _, key := range have.keys {
		if v := have.by[key]; !v.Equal(defaults.by[key]) {
			list = append(list, fmt.Sprintf("%s=%v", key, v))
		}
	}
	if len(list) == 0 {
		return name
	}
	return name + ":" + strings.Join(list, ",")
}
