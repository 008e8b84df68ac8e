// A data set of small files pays twice for each sample: a name to look up and a request to the device. A
// shard holds many samples in one file: no names, and neighbours can be read together.
#include "lab/experiment.h"
#include "samples.h"

namespace fathom::lab::shard_packing {

const Experiment<Samples> samples{
    .question = "What do samples of 16 KiB gain when they lie in one shard and not each in a file?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"samples", {512}}},
    .check_at = {{"samples", {0, 1, 61, 63, 64, 65, 131}}},
    .variants =
        {
            {.id         = "file_per_sample",
             .launch     = file_per_sample,
             .techniques = {},
             .idea       = "open, read and close a file for each sample"},
            {.id         = "shard_by_sample",
             .launch     = shard_by_sample,
             .techniques = {"sequential_io"},
             .idea       = "one file that stays open, a read for each sample",
             .prediction = predict::ratio(1.2)},
            {.id         = "shard_by_mib",
             .launch     = shard_by_mib,
             .techniques = {"sequential_io"},
             .idea       = "one file, 64 samples a read",
             .prediction = predict::ratio_at_least(8)},
        },
    .catalog = {"storage-003"},
};
FATHOM_REGISTER(samples);

}  // namespace fathom::lab::shard_packing
