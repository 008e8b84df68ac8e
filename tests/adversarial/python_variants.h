// Variants in a Python process, on the host: honest ones, wrong ones, and those that die.
#pragma once

namespace fathom::lab {

// As "python/<how>": the variants "baseline", "<how>" and "bystander".
void register_python_variants();

}  // namespace fathom::lab
