// From Z/2 to the integers.
#pragma once

#include <cstdint>
#include <optional>

#include "search/bilinear.h"
#include "search/flip_graph.h"

namespace fathom::search {

// A scheme with coefficients in {-1, 0, 1} that is `scheme` modulo 2, verified, or none where none was found.
//
// One step of Hensel's lemma, from Z/2 to Z/4, with zeros kept: a coefficient 1 becomes 1 - 2 e. Modulo 4
// each equation is linear in the bits e over Z/2. Its solutions are an affine space, of which `tries` points,
// chosen by `seed`, are verified in the integers.
std::optional<BilinearScheme> hensel_lift(const BinaryScheme& scheme, uint64_t seed, int tries);

}  // namespace fathom::search
