// Names of this machine: an id for people and folders, and an identity that changes when measured ceilings no
// longer apply.
#pragma once

#include <string>

#include "cuda/device_id.h"
#include "machine/isolation.h"
#include "machine/topology.h"

namespace fathom::machine {

// Short, stable, safe in a file name: "epyc-zen3-2c". FATHOM_MACHINE overrides it; a name with other
// characters than letters, digits, '.', '_' and '-' is a ContractError.
std::string machine_id();

// The id without the override: words of the CPU's name, its microarchitecture where they contain no digit,
// cores.
std::string machine_slug(const Topology& machine);

// The id under which records of that GPU are kept: words of its name, "h200". FATHOM_MACHINE overrides it
// too. machine_id() where there is no such GPU.
std::string gpu_machine_id(DeviceId device = {});
std::string gpu_slug(const std::string& name);  // "NVIDIA H100 80GB HBM3" is "h100-80gb-hbm3"

// 16 hexadecimal digits that change with processor, cores, caches, memory (to the GiB), kernel and hypervisor
// kind, and with `version`, that of the measuring code.
std::string machine_identity(const Topology& machine, const Isolation& isolation, int version);

}  // namespace fathom::machine
