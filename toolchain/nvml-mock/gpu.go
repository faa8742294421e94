package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
)

// mocks are those whose tables are right. Not here: h100, h200 and b200, whose 3g has 3 memory slices and whose 7g
// has 7, where the hardware has 4 and 8.
var mocks = map[string]gpus.Config{
	"a100-40gb": gpus.A100_SXM4_40GB,
	"a100-80gb": gpus.A100_SXM4_80GB,
	"a30":       gpus.A30_PCIE_24GB,
}

// profile is one kind of slice as the mock has it, under the name that NVIDIA's go-nvlib gives it.
type profile struct {
	Name    string   `json:"name"`
	Compute uint32   `json:"compute"`
	Memory  uint32   `json:"memory"`
	Starts  []uint32 `json:"starts"`
	Most    uint32   `json:"most"`
	info    nvml.GpuInstanceProfileInfo
}

type placed struct {
	Profile string `json:"profile"`
	Start   uint32 `json:"start"`
	Size    uint32 `json:"size"`
}

type gpu struct {
	device   nvml.Device
	profiles []profile
}

// open makes a mock GPU without any instance, in MIG mode.
func open(name string) (*gpu, error) {
	config, known := mocks[name]
	if !known {
		names := make([]string, 0, len(mocks))
		for name := range mocks {
			names = append(names, name)
		}
		sort.Strings(names)
		return nil, fmt.Errorf("unknown gpu %q; known: %s", name, strings.Join(names, ", "))
	}
	library := dgxa100.NewWithGPUs(config) // a server of that driver; the GPUs may be any
	handle, ret := library.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("no device: %v", ret)
	}
	if ret, _ := handle.SetMigMode(nvml.DEVICE_MIG_ENABLE); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("no MIG mode: %v", ret)
	}
	profiles, err := table(handle, device.New(library))
	return &gpu{handle, profiles}, err
}

// wholeCompute is the compute instance profile that takes all compute slices of a GPU instance.
var wholeCompute = map[uint32]int{
	1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE,
	2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE,
	3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE,
	4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE,
	7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
}

// table reads the GPU instance profiles that the mock supports.
func table(handle nvml.Device, namer device.Interface) ([]profile, error) {
	memory, ret := handle.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("no memory: %v", ret)
	}
	var found []profile
	for id := 0; id < nvml.GPU_INSTANCE_PROFILE_COUNT; id++ {
		info, ret := handle.GetGpuInstanceProfileInfo(id)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("profile %d: %v", id, ret)
		}
		engine := nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
		name, err := namer.NewMigProfile(id, wholeCompute[info.SliceCount], engine, info.MemorySizeMB, memory.Total)
		if err != nil {
			return nil, fmt.Errorf("name of profile %d: %w", id, err)
		}
		one := profile{Name: name.String(), Compute: info.SliceCount, Most: info.InstanceCount, info: info}
		places, ret := handle.GetGpuInstancePossiblePlacements(&info)
		if ret != nvml.SUCCESS || len(places) == 0 {
			return nil, fmt.Errorf("no places of %s: %v", one.Name, ret)
		}
		for _, place := range places {
			one.Starts, one.Memory = append(one.Starts, place.Start), place.Size
		}
		found = append(found, one)
	}
	return found, nil
}
