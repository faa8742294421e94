package main

import (
	"encoding/json"
	"fmt"

	plugin "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	mig "github.com/NVIDIA/mig-parted/api/spec/v1"
	"sigs.k8s.io/yaml"
)

// parsed is one configuration as NVIDIA's own types understood it.
type parsed struct {
	config   json.RawMessage // what the operand would act on
	written  json.RawMessage // what the types write back, before the operand's own defaults
	strategy string          // sharing strategy in NVIDIA's words, device plugin only
}

type parser func(raw []byte) (parsed, error)

var parsers = map[string]parser{
	"device-plugin": parseDevicePlugin,
	"mig-parted":    parseMigParted,
}

// parseDevicePlugin does what the plugin does at start: read, check the version, switch renaming of single
// resources off and force one slice per request under MPS.
func parseDevicePlugin(raw []byte) (parsed, error) {
	var config plugin.Config
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return parsed{}, fmt.Errorf("unmarshal error: %w", err)
	}
	if config.Version == "" {
		config.Version = plugin.Version
	}
	if config.Version != plugin.Version {
		return parsed{}, fmt.Errorf("unknown version: %v", config.Version)
	}
	written, err := writeBack(&config)
	if err != nil {
		return parsed{}, err
	}
	plugin.DisableResourceNamingInConfig(&config)
	if config.Sharing.MPS != nil {
		config.Sharing.MPS.FailRequestsGreaterThanOne = true
	}
	effective, err := writeBack(&config)
	if err != nil {
		return parsed{}, err
	}
	return parsed{config: effective, written: written, strategy: string(config.Sharing.SharingStrategy())}, nil
}

// writeBack marshals through pointers: NVIDIA's marshaller of "devices" hangs on the pointer type.
func writeBack(config *plugin.Config) (json.RawMessage, error) {
	out, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write back: %w", err)
	}
	return out, nil
}

// parseMigParted reads a mig-parted file; its types refuse unknown keys and malformed profile names, but know
// nothing of geometry.
func parseMigParted(raw []byte) (parsed, error) {
	var spec mig.Spec
	if err := yaml.Unmarshal(raw, &spec); err != nil {
		return parsed{}, fmt.Errorf("unmarshal error: %w", err)
	}
	out, err := json.Marshal(spec)
	if err != nil {
		return parsed{}, fmt.Errorf("write back: %w", err)
	}
	return parsed{config: out, written: out}, nil
}
