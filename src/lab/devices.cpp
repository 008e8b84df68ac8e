#include "lab/devices.h"

namespace fathom::lab {

Device* device_of_rank(int rank) { return find_device({kExperimentDevice.ordinal + rank}); }

Device* device_of(const ExperimentInfo& experiment) {
  return experiment.backend == Backend::cuda ? find_device(kExperimentDevice) : nullptr;
}

}  // namespace fathom::lab
