// Memory moves in lines of 64 bytes. A loop that needs four of a struct's 16 floats fetches all 16.
#include "lab/experiment.h"
#include "particles.h"

namespace fathom::lab::aos_soa_cpu {

const Experiment<KineticEnergy> kinetic_energy{
    .question = "What does a loop over 4 of 16 fields pay for the other 12, in each layout?",
    .limit    = Limit::memory,
    // From DRAM, and from the L3.
    .axes     = {{"n", {1048576, 65536}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 15, 16, 17, 251}}},
    .variants =
        {
            {.id         = "aos",
             .launch     = aos,
             .techniques = {},
             .idea       = "array of structs: every line is read, a quarter of it is used",
             .prediction = predict::share(0.28)},
            {.id         = "soa",
             .launch     = soa,
             .techniques = {"layout_change"},
             .idea       = "struct of arrays: four streams, every byte used, whole vectors",
             .prediction = predict::ratio(3)},
            {.id         = "aosoa",
             .launch     = aosoa,
             .techniques = {"layout_change", "vectorization"},
             .idea       = "blocks of 16 particles: four whole lines out of each 1 KiB",
             .prediction = predict::ratio(2.5)},
        },
    .group = "aos_soa",
};
FATHOM_REGISTER(kinetic_energy);

}  // namespace fathom::lab::aos_soa_cpu
