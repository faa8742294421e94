package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// create makes the instances in the order given, beside the live ones, which stay where they are. What names no
// place gets one that leaves room for those after it, if there is any.
func (g *gpu) create(live, wanted []slice, blind bool) ([]placed, error) {
	for _, one := range live {
		if one.Start == nil {
			return nil, fmt.Errorf("a live %s lies nowhere", one.Profile)
		}
	}
	there, err := g.choose(nil, live, blind)
	if err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	chosen, err := g.choose(there, wanted, blind)
	if err != nil {
		return nil, err
	}
	for _, one := range append(there, chosen...) {
		info := g.profile(one.Profile).info
		place := nvml.GpuInstancePlacement{Start: one.Start, Size: one.Size}
		if _, ret := g.device.CreateGpuInstanceWithPlacement(&info, &place); ret != nvml.SUCCESS {
			return nil, fmt.Errorf("%s at %d: %v", one.Profile, one.Start, ret)
		}
	}
	return chosen, nil
}

func (g *gpu) profile(name string) *profile {
	for i := range g.profiles {
		if g.profiles[i].Name == name {
			return &g.profiles[i]
		}
	}
	return nil
}

// choose finds a place for each wanted slice, or says for which one there is none.
func (g *gpu) choose(there []placed, wanted []slice, blind bool) ([]placed, error) {
	for _, one := range wanted {
		if g.profile(one.Profile) == nil {
			return nil, fmt.Errorf("%s: not a profile of this GPU", one.Profile)
		}
	}
	found, stuck := g.search(there, wanted, blind)
	if stuck < len(wanted) {
		return nil, fmt.Errorf("%s: insufficient resources", wanted[stuck].Profile)
	}
	return found, nil
}

// search returns places for all of wanted, or how many of them it could place at most.
func (g *gpu) search(there []placed, wanted []slice, blind bool) ([]placed, int) {
	if len(wanted) == 0 {
		return nil, 0
	}
	head, furthest := g.profile(wanted[0].Profile), 0
	if !blind && !g.supplies(there, head) {
		return nil, 0
	}
	for _, start := range head.Starts {
		if wanted[0].Start != nil && *wanted[0].Start != start {
			continue
		}
		one := placed{head.Name, start, head.Memory}
		if !blind && overlaps(there, one) {
			continue
		}
		rest, count := g.search(append(there[:len(there):len(there)], one), wanted[1:], blind)
		if 1+count == len(wanted) {
			return append([]placed{one}, rest...), len(wanted)
		}
		furthest = max(furthest, 1+count)
	}
	return nil, furthest
}

func overlaps(there []placed, one placed) bool {
	for _, other := range there {
		if one.Start < other.Start+other.Size && other.Start < one.Start+one.Size {
			return true
		}
	}
	return false
}

// supplies says whether the GPU has slices and engines for one more: together no more than its largest profile,
// which is the whole GPU, and of each profile no more than the mock's count.
func (g *gpu) supplies(there []placed, one *profile) bool {
	var whole [3]uint32
	for i := range g.profiles {
		for j, amount := range demand(&g.profiles[i]) {
			whole[j] = max(whole[j], amount)
		}
	}
	same, used := uint32(1), demand(one)
	for _, other := range there {
		for j, amount := range demand(g.profile(other.Profile)) {
			used[j] += amount
		}
		if other.Profile == one.Name {
			same++
		}
	}
	for j := range used {
		if used[j] > whole[j] {
			return false
		}
	}
	return same <= one.Most
}

// demand is what a profile takes of what the GPU has once: compute slices, the JPEG engine, the optical flow engine.
// Not decoders: the mock of the A100 80GB gives each of seven slices one of five.
func demand(one *profile) [3]uint32 {
	return [3]uint32{one.info.SliceCount, one.info.JpegCount, one.info.OfaCount}
}
