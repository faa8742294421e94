package main

import (
	"encoding/json"
	"fmt"
	"sort"

	"sigs.k8s.io/yaml"
)

// lostKeys lists the paths of the document that NVIDIA's types dropped.
//
// A key with a zero value (false, 0, "") may be missing from what is written back only because the types omit
// empty fields. Such a key is tried again with another value of the same type: known keys then come back.
func lostKeys(raw []byte, parse parser, written json.RawMessage) ([]string, error) {
	var ours, theirs any
	if err := yaml.Unmarshal(raw, &ours); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(written, &theirs); err != nil {
		return nil, err
	}
	lost := []string{}
	for _, leaf := range missing(ours, theirs, nil) {
		if other, zero := nonZero(leaf.value); zero && survives(ours, leaf.path, other, parse) {
			continue
		}
		lost = append(lost, leaf.path.String())
	}
	sort.Strings(lost)
	return lost, nil
}

type path []any

func (p path) String() string {
	text := ""
	for _, step := range p {
		switch s := step.(type) {
		case int:
			text += fmt.Sprintf("[%d]", s)
		default:
			if text != "" {
				text += "."
			}
			text += fmt.Sprint(s)
		}
	}
	return text
}

type leaf struct {
	path  path
	value any
}

// missing walks our document beside theirs; containers without content say nothing and are never missing.
func missing(ours, theirs any, at path) []leaf {
	var found []leaf
	switch o := ours.(type) {
	case map[string]any:
		t, _ := theirs.(map[string]any)
		for key, value := range o {
			found = append(found, missing(value, t[key], append(at[:len(at):len(at)], key))...)
		}
	case []any:
		t, _ := theirs.([]any)
		for i, value := range o {
			var other any
			if i < len(t) {
				other = t[i]
			}
			found = append(found, missing(value, other, append(at[:len(at):len(at)], i))...)
		}
	case nil:
	default:
		if theirs == nil {
			found = append(found, leaf{at, o})
		}
	}
	return found
}

func nonZero(value any) (any, bool) {
	switch value {
	case false:
		return true, true
	case float64(0):
		return float64(1), true
	case "":
		return "x", true
	}
	return nil, false
}

func survives(document any, at path, value any, parse parser) bool {
	raw, err := json.Marshal(replaced(document, at, value))
	if err != nil {
		return false
	}
	result, err := parse(raw)
	if err != nil {
		return false
	}
	var theirs any
	if err := json.Unmarshal(result.written, &theirs); err != nil {
		return false
	}
	for _, step := range at {
		switch s := step.(type) {
		case int:
			list, ok := theirs.([]any)
			if !ok || s >= len(list) {
				return false
			}
			theirs = list[s]
		case string:
			table, ok := theirs.(map[string]any)
			if !ok {
				return false
			}
			theirs = table[s]
		}
	}
	return theirs != nil
}

// replaced copies the document with one leaf changed.
func replaced(document any, at path, value any) any {
	if len(at) == 0 {
		return value
	}
	switch d := document.(type) {
	case map[string]any:
		out := make(map[string]any, len(d))
		for key, old := range d {
			out[key] = old
		}
		key := at[0].(string)
		out[key] = replaced(d[key], at[1:], value)
		return out
	case []any:
		out := append([]any(nil), d...)
		index := at[0].(int)
		out[index] = replaced(d[index], at[1:], value)
		return out
	}
	return document
}
