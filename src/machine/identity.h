// Names for this machine: one for people and folders, one that says when measured ceilings no longer belong
// to it.
#pragma once

#include <string>

#include "machine/isolation.h"
#include "machine/topology.h"

namespace fathom::machine {

// Short, stable, safe in a file name: "epyc-zen3-2c". FATHOM_MACHINE overrides it; a name with other
// characters than letters, digits, '.', '_' and '-' is a ContractError.
std::string machine_id();

// What the id is made from: the words of the CPU's name, its microarchitecture where they hold no number,
// cores.
std::string machine_slug(const Topology& machine);

// The name under which runs on this process's GPU are kept: the words of its name, "h200". FATHOM_MACHINE
// overrides it too. machine_id() where there is no GPU.
std::string gpu_machine_id();
std::string gpu_slug(const std::string& name);  // "NVIDIA H100 80GB HBM3" is "h100-80gb-hbm3"

// 16 hexadecimal digits that change with processor, cores, caches, memory (to the GiB), kernel and hypervisor
// kind, and with `version`, that of the measuring code.
std::string machine_identity(const Topology& machine, const Isolation& isolation, int version);

}  // namespace fathom::machine
